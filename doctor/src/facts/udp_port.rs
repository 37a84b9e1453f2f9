use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cairn_rdma::ROCE_PORT;
use serde::Serialize;

use crate::source::{Question, Source, Unknown, unless_absent};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UdpHolder {
    /// Path of the file in /proc/net that lists the socket.
    pub path: String,
    pub line: String,
    /// Local address of the socket; unspecified for all addresses.
    pub address: IpAddr,
    /// User ID of the owner; 0 for the kernel.
    pub uid: u32,
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
                // rdma_rxe has one socket for IPv4 and one for IPv6. Only the first is reported.
                let place = |one: &Self| Some(one.address).filter(|at| !at.is_unspecified());
                let is_known = |holder: &Self| {
                    let mut known = holders.iter();
                    known.any(|other: &Self| {
                        (other.uid, &other.process, place(other))
                            == (holder.uid, &holder.process, place(holder))
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
        let (address, port) = fields.get(1)?.split_once(':')?;
        if u16::from_str_radix(port, 16) != Ok(ROCE_PORT) {
            return None;
        }
        let inode: u64 = fields.get(9)?.parse().ok()?;
        Some(Self {
            path: path.to_owned(),
            line: line.trim().to_owned(),
            address: parse_address(address)?,
            uid: fields.get(7)?.parse().ok()?,
            process: source
                .answer(&Question::SocketHolder(inode))
                .unwrap_or_default(),
        })
    }
}

/// Parses an address in /proc/net: hexadecimal words of 32 bits in the byte order of this machine.
fn parse_address(text: &str) -> Option<IpAddr> {
    let words = (0..text.len()).step_by(8);
    let words = words.map(|at| u32::from_str_radix(text.get(at..at + 8)?, 16).ok());
    let words: Option<Vec<[u8; 4]>> = words.map(|word| word.map(u32::to_ne_bytes)).collect();
    let bytes = words?.concat();
    let v4 = <[u8; 4]>::try_from(&*bytes).map(|bytes| Ipv4Addr::from(bytes).into());
    let v6 = <[u8; 16]>::try_from(&*bytes).map(|bytes| Ipv6Addr::from(bytes).to_canonical());
    v4.or(v6).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Recording;

    #[test]
    fn addresses_of_sockets_are_parsed() {
        for (text, expected) in [
            ("0100007F", Some("127.0.0.1")),
            ("00000000", Some("0.0.0.0")),
            ("B80D0120000000000000000001000000", Some("2001:db8::1")),
            ("0000000000000000FFFF00000100007F", Some("127.0.0.1")),
            ("0100007", None),
            ("", None),
        ] {
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(parse_address(text), expected, "{text}");
        }
    }

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
