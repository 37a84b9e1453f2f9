//! Capture of a provider's packets in a pcapng file with timestamps in nanoseconds.
//!
//! A UDP socket does not report the headers below the BTH. MAC addresses, and the hop limit and IPv4
//! identification of received packets, are invented. RoCE v1 packets lack flow label and VLAN tag.

use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::phy::Version;
use crate::phy::receive::Received;
use crate::phy::send::Flow;
use cairn_roce_proto::wire::Header;
use cairn_roce_proto::wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE, Ethernet};
use cairn_roce_proto::wire::frame::{Frame, Network};
use cairn_roce_proto::wire::grh::{NEXT_HEADER_BTH, gid_of};
use cairn_roce_proto::wire::ipv4::{self, Ipv4, PROTOCOL_UDP};
use cairn_roce_proto::wire::ipv6::Ipv6;
use cairn_roce_proto::wire::packet::MAX_LEN;
use cairn_roce_proto::wire::udp::{ROCE_PORT, Udp};

const HEADERS: usize = 14 + 40 + 8;
const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Capture file of limited size.
pub struct Capture {
    file: Mutex<Sink>,
    is_full: AtomicBool,
}

struct Sink {
    file: BufWriter<File>,
    left_bytes: u64,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Capture")
    }
}

struct Ends {
    version: Version,
    source: IpAddr,
    destination: IpAddr,
    source_port: u16,
    traffic_class: u8,
    hop_limit: u8,
}

impl Capture {
    /// Creates a file that only its owner can read, with at most `limit_bytes` of packets.
    ///
    /// An existing file is replaced only if it belongs to this user and is empty or a capture of
    /// Cairn. Captured packets contain data, and other users may create links at the path.
    pub fn create(path: &Path, limit_bytes: u64) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 20, own_file(path)?);
        file.write_all(&file_header()?)?;
        file.flush()?;
        Ok(Self {
            file: Mutex::new(Sink {
                file,
                left_bytes: limit_bytes,
            }),
            is_full: AtomicBool::new(false),
        })
    }

    pub(crate) fn received(&self, received: &Received<'_>) {
        let headers = received.headers;
        let ends = Ends {
            version: headers.version,
            source: headers.source.ip().to_canonical(),
            destination: headers.local.to_canonical(),
            source_port: headers.source.port(),
            traffic_class: headers.traffic_class,
            hop_limit: 64,
        };
        let macs = (PEER_MAC, OUR_MAC);
        self.write(&ends, macs, received.index, received.bytes);
    }

    pub(crate) fn sent(&self, version: Version, flow: &Flow, id: u16, packet: &[u8]) {
        let ends = Ends {
            version,
            source: flow.local,
            destination: flow.remote,
            source_port: flow.source_port,
            traffic_class: flow.traffic_class,
            hop_limit: flow.hop_limit,
        };
        self.write(&ends, (OUR_MAC, PEER_MAC), id, packet);
    }

    /// Writes buffered packets to the file.
    pub fn flush(&self) {
        let mut sink = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = sink.file.flush();
    }

    fn write(&self, ends: &Ends, macs: ([u8; 6], [u8; 6]), id: u16, packet: &[u8]) {
        let mut bytes = [0; HEADERS + MAX_LEN];
        if self.is_full.load(Ordering::Relaxed) {
            return;
        }
        if packet.len() > MAX_LEN {
            return; // no packet of a peer is so long
        }
        let length = frame(ends, macs, id, packet).emit(&mut bytes);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let nanos = now.as_nanos() as u64;
        let mut block = Vec::with_capacity(length + 24);
        block.extend(0_u32.to_le_bytes());
        block.extend(((nanos >> 32) as u32).to_le_bytes());
        block.extend((nanos as u32).to_le_bytes());
        block.extend((length as u32).to_le_bytes());
        block.extend((length as u32).to_le_bytes());
        block.extend(&bytes[..length]);
        block.resize(block.len().next_multiple_of(4), 0);
        let mut sink = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = sink.left_bytes.checked_sub(block.len() as u64 + 12) else {
            let _ = sink.file.flush();
            if !self.is_full.swap(true, Ordering::Relaxed) {
                // Logged once for each file that reaches the size limit.
                tracing::warn!(
                    "packet capture stopped: the file has reached the size of --pcap-limit"
                );
            }
            return;
        };
        sink.left_bytes = left;
        let _ = write_block(&mut sink.file, 6, &block);
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.flush();
    }
}

fn own_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.create(true).truncate(false).mode(0o600);
    // Without O_NONBLOCK, opening a named pipe would wait for a reader.
    let file = options
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => io::Error::other("is a symbolic link: give the path of the file"),
            _ => error,
        })?;
    let found = file.metadata()?;
    // SAFETY: geteuid takes no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    if !found.is_file() || found.uid() != user || found.nlink() != 1 {
        return Err(io::Error::other(
            "something is there that is not a file of this user alone: name another",
        ));
    }
    if found.len() != 0 && !is_capture(&file)? {
        return Err(io::Error::other(
            "the file is not a capture of Cairn: name another file",
        ));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    Ok(file)
}

/// True if the file begins with the header of a capture, without moving the file's offset.
fn is_capture(file: &File) -> io::Result<bool> {
    let header = file_header()?;
    let mut found = vec![0; header.len()];
    match file.read_exact_at(&mut found, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        result => result.map(|()| found == header),
    }
}

fn file_header() -> io::Result<Vec<u8>> {
    let mut section = Vec::new();
    section.extend(0x1a2b_3c4d_u32.to_le_bytes());
    section.extend(1_u16.to_le_bytes());
    section.extend(0_u16.to_le_bytes());
    section.extend(u64::MAX.to_le_bytes());
    let mut interface = Vec::new();
    interface.extend(1_u16.to_le_bytes());
    interface.extend(0_u16.to_le_bytes());
    interface.extend(0_u32.to_le_bytes());
    interface.extend([9, 0, 1, 0, 9, 0, 0, 0]);
    interface.extend([0; 4]);
    let mut header = Vec::new();
    write_block(&mut header, 0x0a0d_0d0a, &section)?;
    write_block(&mut header, 1, &interface)?;
    Ok(header)
}

fn frame<'a>(ends: &Ends, macs: ([u8; 6], [u8; 6]), id: u16, packet: &'a [u8]) -> Frame<'a> {
    let length = (Udp::LEN + packet.len()) as u16;
    let udp = Udp {
        source: ends.source_port,
        destination: ROCE_PORT,
        length,
        checksum: 0,
    };
    let ipv6 = |next_header, payload_len| Ipv6 {
        traffic_class: ends.traffic_class,
        flow_label: 0,
        payload_len,
        next_header,
        hop_limit: ends.hop_limit,
        source: gid_of(ends.source),
        destination: gid_of(ends.destination),
    };
    let (network, ethertype) = match (ends.source, ends.destination) {
        _ if ends.version == Version::V1 => {
            let grh = ipv6(NEXT_HEADER_BTH, packet.len() as u16);
            (Network::V1(grh), ETHERTYPE_ROCE)
        }
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4 {
                tos: ends.traffic_class,
                total_len: ipv4::LEN as u16 + length,
                id,
                dont_fragment: true,
                ttl: ends.hop_limit,
                protocol: PROTOCOL_UDP,
                source,
                destination,
            };
            (Network::V4(ip, udp), ETHERTYPE_IPV4)
        }
        _ => (Network::V6(ipv6(PROTOCOL_UDP, length), udp), ETHERTYPE_IPV6),
    };
    Frame {
        ethernet: Ethernet {
            destination: macs.1,
            source: macs.0,
            vlan: None,
            ethertype,
        },
        network,
        packet,
    }
}

fn write_block(out: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&length)?;
    out.write_all(body)?;
    out.write_all(&length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phy::send_sockets::SendSocket;
    use std::fs;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn packet() -> (Flow, [u8; 64]) {
        let flow = Flow {
            fd: SendSocket::UNDECIDED.fd,
            source_port: 4791,
            local: [127, 0, 0, 1].into(),
            remote: [127, 0, 0, 2].into(),
            traffic_class: 0,
            is_of_class: false,
            hop_limit: 64,
        };
        (flow, [7; 64])
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = folder();
        let (target, link) = (folder.path().join("secret"), folder.path().join("link"));
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let error = Capture::create(&link, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        let hard = folder.path().join("hard");
        fs::hard_link(&target, &hard).unwrap();
        Capture::create(&hard, 1 << 20).unwrap_err();
        assert_eq!(fs::read(&target).unwrap(), b"precious");
    }

    #[test]
    fn only_its_owner_can_read_it() {
        let folder = folder();
        let path = folder.path().join("own");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        drop(Capture::create(&path, 1 << 20).unwrap());
        let found = fs::metadata(&path).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn only_a_capture_is_overwritten() {
        let folder = folder();
        let path = folder.path().join("disk");
        let mut other = file_header().unwrap();
        other[8] ^= 1;
        for content in [b"x".to_vec(), vec![0; 4096], other] {
            fs::write(&path, &content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
            let error = Capture::create(&path, 1 << 20).unwrap_err();
            assert!(error.to_string().contains("is not a capture"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), content);
            let found = fs::metadata(&path).unwrap();
            assert_eq!(found.permissions().mode() & 0o777, 0o640);
        }
        fs::remove_file(&path).unwrap();
        let capture = Capture::create(&path, 1 << 20).unwrap();
        let (flow, bytes) = packet();
        capture.sent(Version::V2, &flow, 0, &bytes);
        drop(capture);
        let header = file_header().unwrap();
        assert!(fs::read(&path).unwrap().len() > header.len());
        drop(Capture::create(&path, 1 << 20).unwrap());
        assert_eq!(fs::read(&path).unwrap(), header);
    }

    #[test]
    fn it_ends_at_its_limit() {
        let folder = folder();
        let path = folder.path().join("own");
        let capture = Capture::create(&path, 4096).unwrap();
        let (flow, bytes) = packet();
        for id in 0..1000 {
            capture.sent(Version::V2, &flow, id, &bytes);
        }
        drop(capture);
        let length = fs::metadata(&path).unwrap().len();
        assert!((2048..=4096 + 128).contains(&length), "{length}");
    }
}
