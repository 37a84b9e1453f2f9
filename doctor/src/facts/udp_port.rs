use cairn_rdma::ROCE_PORT;
use serde::Serialize;

use crate::source::{Question, Source, Unknown, unless_absent};

/// Socket on UDP port 4791.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UdpHolder {
    /// Path of the file in /proc/net that lists the socket.
    pub path: String,
    /// Line of the socket in the file.
    pub line: String,
    /// User ID of the owner; 0 for the kernel.
    pub uid: u32,
    /// Owning process, if known.
    pub process: Option<String>,
}

impl UdpHolder {
    pub(super) fn read_all(source: &dyn Source) -> Result<Vec<Self>, Unknown> {
        let mut holders = Vec::new();
        for path in ["/proc/net/udp", "/proc/net/udp6"] {
            let Some(table) = unless_absent(source.read(path))? else {
                continue;
            };
            for line in table.lines() {
                let holder = Self::parse(source, path, line);
                // rdma_rxe has one socket for IPv4 and one for IPv6, of which one is reported.
                let is_known = |holder: &Self| {
                    let mut known = holders.iter();
                    known.any(|other: &Self| {
                        (other.uid, &other.process) == (holder.uid, &holder.process)
                    })
                };
                if let Some(holder) = holder.filter(|holder| !is_known(holder)) {
                    holders.push(holder);
                }
            }
        }
        Ok(holders)
    }

    fn parse(source: &dyn Source, path: &str, line: &str) -> Option<Self> {
        // Columns: sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...
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
            process: source
                .answer(&Question::SocketHolder(inode))
                .unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Recording;

    #[test]
    fn the_holder_of_the_port_is_found_by_its_socket() {
        let line =
            |inode| format!("7: 00000000:12B7 00000000:0000 07 0:0 00:0 0 33 0 {inode} 2 0 0");
        let other = " 8: 00000000:0044 00000000:0000 07 0:0 00:0 0 0 0 4712 2";
        let recording = Recording::parse(&format!(
            "[/proc/net]\nudp = sl local rem st\\n{}\\n{other}\nudp6 = sl\\n{}\n[?]\n\
             socket 4711 = \"other (pid 41)\"\nsocket 4712 = \"other (pid 41)\"\n",
            line(4711),
            line(4712)
        ));
        let holders = UdpHolder::read_all(&recording.unwrap()).unwrap();
        assert_eq!(holders.len(), 1, "one program, two sockets");
        assert_eq!(holders[0].uid, 33);
        assert_eq!(holders[0].process.as_deref(), Some("other (pid 41)"));
    }
}
