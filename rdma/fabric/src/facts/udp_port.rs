//! Who has UDP port 4791.

use serde::Serialize;

use crate::source::{Source, Unknown, unless_absent};

/// RoCE v2's UDP port.
pub const ROCE_PORT: u16 = 4791;

/// A socket on RoCE's port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UdpHolder {
    /// The table that lists it.
    pub path: String,
    /// Its line.
    pub line: String,
    /// The user; the kernel's own sockets say 0.
    pub uid: u32,
    /// The process, where it could be found.
    pub process: Option<String>,
}

impl UdpHolder {
    /// The lines of /proc/net/udp and udp6 that are about the port.
    pub(super) fn read_all(source: &dyn Source) -> Result<Vec<Self>, Unknown> {
        let mut holders = Vec::new();
        for path in ["/proc/net/udp", "/proc/net/udp6"] {
            let Some(table) = unless_absent(source.read(path))? else {
                continue;
            };
            for line in table.lines() {
                holders.extend(Self::parse(source, path, line));
            }
        }
        Ok(holders)
    }

    fn parse(source: &dyn Source, path: &str, line: &str) -> Option<Self> {
        // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.split_once(':')?;
        if u16::from_str_radix(port, 16) != Ok(ROCE_PORT) {
            return None;
        }
        let inode: u64 = fields.get(9)?.parse().ok()?;
        Some(Self {
            path: path.to_owned(),
            line: line.trim().to_owned(),
            uid: fields.get(7)?.parse().ok()?,
            process: process(source, inode),
        })
    }
}

/// The process that has a socket open: nobody for a socket of the kernel's.
fn process(source: &dyn Source, inode: u64) -> Option<String> {
    if inode == 0 {
        return None;
    }
    let wanted = format!("socket:[{inode}]");
    let processes = source.list("/proc").ok()?;
    let mut processes = processes
        .into_iter()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    processes.find_map(|process| {
        let directory = format!("/proc/{process}/fd");
        let mut open = source.list(&directory).ok()?.into_iter();
        open.find(|fd| source.link(&format!("{directory}/{fd}")).ok().as_ref() == Some(&wanted))?;
        let name = source.text(&format!("/proc/{process}/comm")).ok();
        Some(format!("{} (pid {process})", name.unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Recording;

    #[test]
    fn the_holder_of_the_port_is_found_by_its_socket() {
        let recording = Recording::parse(
            "[/proc]\nnet/udp = sl local rem st\\n 7: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 33 0 4711 2 0 0\\n 8: 00000000:0044 00000000:0000 07 0:0 00:0 0 0 0 4712 2\n\
             41/fd/3 -> socket:[4711]\n41/comm = other\nuptime = 1\n",
        )
        .unwrap();
        let holders = UdpHolder::read_all(&recording).unwrap();
        assert_eq!(holders.len(), 1);
        assert_eq!(holders[0].uid, 33);
        assert_eq!(holders[0].process.as_deref(), Some("other (pid 41)"));
    }
}
