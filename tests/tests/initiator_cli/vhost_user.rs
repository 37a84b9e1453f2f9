//! `attach --as vhost-user`.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use libtest_mimic::Failed;
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

use super::Bench;
use super::attach::{Attached, SOCKET, attach_line};
use super::guest::{
    Descriptor, Guest, INDIRECT, MEMORY, NEXT, QUEUE, SLOT_BYTES, SLOTS, WRITE, data, header,
};

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;
const OK: u8 = 0;
const IOERR: u8 = 1;
const UNSUPP: u8 = 2;
const WRITES: u16 = 24;
const SECTORS: u64 = (32 << 20) / 512;

fn start(bench: &Bench) -> Attached {
    Attached::start(bench, &format!("{} --as vhost-user", attach_line()))
}

fn socket(bench: &Bench) -> PathBuf {
    bench.folder.path().join(SOCKET)
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 + seed * 31) as u8).collect()
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    let mut range = sector.to_le_bytes().to_vec();
    range.extend(sectors.to_le_bytes());
    range.extend(flags.to_le_bytes());
    range
}

pub(crate) fn requests() -> Result<(), Failed> {
    let bench = Bench::new();
    let mut attached = start(&bench);
    let mut guest = Guest::new();
    guest.connect(&socket(&bench));
    let config = guest.config(60);
    assert_eq!(config[..8], SECTORS.to_le_bytes());
    assert_eq!(config[20..24], 512_u32.to_le_bytes());

    for slot in 0..SLOTS {
        guest.put(data(slot), &pattern(slot.into(), SLOT_BYTES));
        guest.ask(slot, OUT, u64::from(slot) * 512, SLOT_BYTES, 0);
    }
    for _ in 0..SLOTS {
        assert_eq!(guest.answer().1, 1);
    }
    assert_eq!(guest.run(FLUSH, 0, 0, 0), OK);
    for slot in 0..SLOTS {
        assert_eq!(guest.status(slot), OK);
        guest.ask(31, IN, u64::from(slot) * 512, SLOT_BYTES, WRITE);
        assert_eq!(guest.answer(), (93, SLOT_BYTES as u32 + 1));
        let read = guest.get(data(31), SLOT_BYTES);
        assert!(read == pattern(slot.into(), SLOT_BYTES), "slot {slot}");
    }

    assert_eq!(guest.run(GET_ID, 0, 20, WRITE), OK);
    assert!(guest.get(data(0), 20).iter().all(u8::is_ascii_hexdigit));
    guest.put(data(0), &range(0, 512, 1));
    assert_eq!(guest.run(WRITE_ZEROES, 0, 16, 0), OK);
    assert_eq!(guest.run(IN, 0, 512 * 512, WRITE), OK);
    assert!(guest.get(data(0), 512 * 512).iter().all(|&byte| byte == 0));
    guest.put(data(0), &range(512, 512, 0));
    assert_eq!(guest.run(DISCARD, 0, 16, 0), OK);

    for (kind, sector, bytes, flags, status) in [
        (IN, SECTORS - 1, 512, WRITE, OK),
        (IN, SECTORS, 512, WRITE, IOERR),
        (OUT, u64::MAX, 512, 0, IOERR),
        (IN, 0, 513, WRITE, IOERR),
        (OUT, 0, 0, 0, IOERR),
        (DISCARD, 0, 15, 0, IOERR),
        (77, 0, 512, WRITE, UNSUPP),
    ] {
        let answered = guest.run(kind, sector, bytes, flags);
        assert_eq!(answered, status, "{kind} {sector} {bytes}");
    }
    guest.put(data(0), &range(0, 8, 1));
    assert_eq!(guest.run(DISCARD, 0, 16, 0), UNSUPP);

    header_in_parts(&mut guest);
    let base = guest.link.as_ref().unwrap().front.get_vring_base(0);
    base.unwrap();
    assert!(attached.signal("-TERM").success());
    bench.stop()
}

fn header_in_parts(guest: &mut Guest) {
    guest.put_header(0, IN, SECTORS - 1);
    let (header, table) = (header(0) as u64, data(1));
    let chain: [Descriptor; 5] = [
        (header, 5, NEXT, 1),
        (header + 5, 11, NEXT, 2),
        (data(0) as u64, 100, NEXT | WRITE, 3),
        (data(0) as u64 + 100, 0, NEXT | WRITE, 4),
        (data(0) as u64 + 100, 413, WRITE, 0),
    ];
    guest.describe(table, &chain);
    guest.describe_in_table(7, &[(table as u64, 80, INDIRECT, 0)]);
    guest.offer(7);
    assert_eq!(guest.answer(), (7, 513));
    assert_eq!(guest.get(data(0) + 512, 1), [OK]);
}

pub(crate) fn killed() -> Result<(), Failed> {
    let bench = Bench::new();
    let mut attached = start(&bench);
    let mut guest = Guest::new();
    let mut has_overtaken = false;
    for round in 0..20 {
        let sought = |slot: u16| pattern(round * 40 + usize::from(slot), SLOT_BYTES);
        guest.connect(&socket(&bench));
        for slot in 0..WRITES {
            guest.put(data(slot), &sought(slot));
            guest.ask(slot, OUT, u64::from(slot) * 512, SLOT_BYTES, 0);
        }
        // GET_ID overtakes writes.
        for slot in WRITES..SLOTS {
            guest.ask(slot, GET_ID, 0, 20, WRITE);
        }
        std::thread::sleep(Duration::from_micros(300 * round as u64));
        attached.signal("-KILL");
        has_overtaken = guest.left() > 0 && guest.status(SLOTS - 1) == OK;
        attached = start(&bench);
        guest.connect(&socket(&bench));
        answers(&mut guest, SLOTS);
        for slot in 0..WRITES {
            guest.put(data(slot), &[0; SLOT_BYTES]);
            guest.ask(slot, IN, u64::from(slot) * 512, SLOT_BYTES, WRITE);
        }
        answers(&mut guest, WRITES);
        for slot in 0..WRITES {
            let read = guest.get(data(slot), SLOT_BYTES);
            assert!(read == sought(slot), "slot {slot}");
        }
        assert_eq!(guest.left(), 0);
        guest.link = None;
        if has_overtaken {
            break;
        }
    }
    assert!(has_overtaken, "no write was under way at a kill");
    attached.signal("-TERM");
    bench.stop()
}

fn answers(guest: &mut Guest, slots: u16) {
    let mut heads: Vec<u16> = (0..slots).map(|_| guest.answer().0).collect();
    heads.sort_unstable();
    assert!(heads.into_iter().eq((0..slots).map(|slot| 3 * slot)));
    assert!((0..slots).all(|slot| guest.status(slot) == OK));
}

fn lies() -> Vec<(&'static str, Vec<Descriptor>)> {
    let (header, buffer) = (header(0) as u64, data(0) as u64);
    let end = MEMORY as u64;
    let first = (header, 16, NEXT, 1);
    let status = (header + 32, 1, WRITE, 0);
    vec![
        ("no status", vec![(header, 16, 0, 0)]),
        ("a short header", vec![(header, 15, NEXT, 1), status]),
        ("no header", vec![status]),
        ("an empty chain", vec![(header, 0, 0, 0)]),
        ("a loop", vec![first, (buffer, 512, NEXT, 0)]),
        (
            "a descriptor out of its table",
            vec![(header, 16, NEXT, QUEUE)],
        ),
        ("a header behind the end", vec![(end, 16, NEXT, 1), status]),
        (
            "a buffer across the end",
            vec![first, (end - 1, 512, NEXT | WRITE, 2), status],
        ),
        (
            "an address that wraps",
            vec![first, (u64::MAX - 8, 512, NEXT | WRITE, 2), status],
        ),
        ("a status behind the end", vec![first, (end, 1, WRITE, 0)]),
        (
            "4 GiB",
            vec![first, (buffer, u32::MAX, NEXT | WRITE, 2), status],
        ),
        (
            "readable after writable",
            vec![first, (buffer, 512, NEXT | WRITE, 2), (header, 1, 0, 0)],
        ),
        ("an odd table", vec![(buffer, 17, INDIRECT, 0)]),
        ("an empty table", vec![(buffer, 0, INDIRECT, 0)]),
        ("a table behind the end", vec![(end, 32, INDIRECT, 0)]),
        (
            "a table without an end",
            vec![(u64::MAX - 15, 32, INDIRECT, 0)],
        ),
        (
            "a table and a next",
            vec![(buffer, 32, INDIRECT | NEXT, 1), status],
        ),
        ("a table in a table", vec![(0x1000, 32, INDIRECT, 0)]),
    ]
}

pub(crate) fn liars() -> Result<(), Failed> {
    let bench = Bench::new();
    let mut attached = start(&bench);
    let path = socket(&bench);
    for (what, chain) in lies() {
        eprintln!("{what}");
        let mut guest = Guest::new();
        guest.connect(&path);
        guest.put_header(0, IN, 0);
        guest.describe_in_table(0, &chain);
        guest.offer(0);
        guest.is_stopped();
        guest
            .link
            .as_ref()
            .unwrap()
            .front
            .get_vring_base(0)
            .unwrap();
    }
    let rings: [fn(&mut Guest); 3] = [
        |guest| guest.set_available(QUEUE + 1),
        |guest| guest.offer(QUEUE),
        |guest| guest.set_available(2),
    ];
    for lie in rings {
        let mut guest = Guest::new();
        guest.connect(&path);
        lie(&mut guest);
        guest.is_stopped();
    }
    messages(&path);
    let mut guest = Guest::new();
    guest.connect(&path);
    assert_eq!(guest.run(IN, 0, 4096, WRITE), OK);
    let second = UnixStream::connect(&path).unwrap();
    second
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    assert_eq!(std::io::Read::read(&mut &second, &mut [0]).unwrap(), 0);
    assert_eq!(guest.run(IN, 0, 4096, WRITE), OK);
    assert!(attached.signal("-TERM").success());
    bench.stop()
}

fn messages(path: &std::path::Path) {
    for bytes in [
        vec![1],
        vec![0xff; 12],
        vec![0xff; 4096],
        vec![1, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0],
    ] {
        let mut socket = UnixStream::connect(path).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        socket.write_all(&bytes).unwrap();
        let end = std::io::Read::read(&mut socket, &mut [0; 64]);
        assert!(matches!(end, Ok(0) | Err(_)), "{bytes:?}: {end:?}");
    }
    let mut guest = Guest::new();
    let front = guest.negotiate(path);
    let mut region = guest.region();
    region.memory_size += 4096;
    assert!(front.set_mem_table(&[region]).is_err());

    let front = guest.negotiate(path);
    assert!(
        front
            .set_mem_table(&[guest.region(), guest.region()])
            .is_err()
    );

    let front = guest.negotiate(path);
    front.set_mem_table(&[guest.region()]).unwrap();
    assert!(front.set_vring_num(0, 4096).is_err());

    let front = guest.negotiate(path);
    front.set_mem_table(&[guest.region()]).unwrap();
    front.set_vring_num(0, QUEUE).unwrap();
    let mut queue = Guest::queue();
    queue.used_ring_addr += MEMORY as u64;
    front.set_vring_addr(0, &queue).unwrap();
    let event = vmm_sys_util::eventfd::EventFd::new(0).unwrap();
    assert!(front.set_vring_kick(0, &event).is_err());

    guest.connect(path);
    let mut region = guest.region();
    region.guest_phys_addr = 1 << 40;
    let link = guest.link.take().unwrap();
    assert!(link.front.set_mem_table(&[region]).is_err());

    let mut front = guest.negotiate(path);
    let kept = vhost::vhost_user::message::VhostUserInflight::new(4096, 0, 1, QUEUE);
    let file = std::os::fd::AsRawFd::as_raw_fd(&guest.file);
    assert!(front.set_inflight_fd(&kept, file).is_err());
}
