use std::time::Duration;

use cairn_disk::Operation;
use cairn_initiator::{Data, HostError, command};
use cairn_tests::harness::{Scratch, TestTarget};
use nvme_proto::io::BlockRange;
use nvme_proto::wire::{Sqe, Status, U32};

use crate::isolation::{BLOCK, Bed, status_of};
use crate::verified::{Disk, Transfer, bytes, status};

fn sources(ranges: &[(u64, u32)]) -> Vec<BlockRange> {
    let range = |&(slba, blocks): &(u64, u32)| BlockRange { slba, blocks };
    ranges.iter().map(range).collect()
}

fn entries(ranges: &[(u64, u32)]) -> Vec<u8> {
    let sources = sources(ranges);
    sources.iter().flat_map(BlockRange::copy_entry).collect()
}

#[test]
fn a_copy_has_the_bytes_of_its_sources_in_their_order() {
    let small = Scratch::new("copy-512", 8 << 20);
    let large = Scratch::new("copy-4096", 8 << 20);
    let target = TestTarget::with_namespaces(&[
        "mem:8MiB block_size = 512",
        "mem:8MiB block_size = 4096",
        &small.export(512),
        &large.export(4096),
    ]);
    let mut host = target.connect("a");
    for nsid in 1..=4 {
        let mut disk = Disk::new(&mut host, nsid);
        let block = disk.block_bytes as usize;
        let before = bytes(u64::from(nsid), 1600 * block);
        for (at, part) in (0..).zip(before.chunks(16 * block)) {
            disk.write(at * 16, part, Transfer::Keyed);
        }
        let ranges: &[(u64, u32)] = &[(3, 1), (500, 140), (10, 37), (505, 2), (0, 1)];
        for (round, transfer) in [Transfer::Keyed, Transfer::InCapsule]
            .into_iter()
            .enumerate()
        {
            let to = 1000 + 300 * round;
            let sqe = command::copy(nsid, to as u64, ranges.len() as u32);
            disk.send_data(sqe, &entries(ranges), transfer).unwrap();
            let mut expected = before[(to - 1) * block..to * block].to_vec();
            for &(slba, blocks) in ranges {
                let start = slba as usize * block;
                expected.extend_from_slice(&before[start..start + blocks as usize * block]);
            }
            let end = to - 1 + expected.len() / block;
            expected.extend_from_slice(&before[end * block..(end + 1) * block]);
            for (at, expected) in (to as u64 - 1..).zip(expected.chunks(block)) {
                assert!(
                    disk.read(at, block, Transfer::Keyed) == expected,
                    "{nsid}: block {at}"
                );
            }
        }
    }
    host.shutdown().unwrap();
}

#[test]
fn a_copy_by_the_library_and_one_in_format_1h() {
    let target = TestTarget::with_namespaces(&["mem:1MiB", "null:1MiB"]);
    let mut host = target.connect("a");
    let namespace = host.open_namespace(1).unwrap();
    let data = bytes(1, 4 * 512);
    namespace.write(&mut host, 0, &data).unwrap();
    let ranges = sources(&[(2, 2), (0, 2)]);
    namespace.copy(&mut host, &ranges, 100).unwrap();
    let back = namespace.read(&mut host, 100, 4).unwrap();
    assert!(back == [&data[1024..], &data[..1024]].concat());
    let mut sqe = command::copy(1, 200, 1);
    sqe.cdw12 = U32::new(1 << 8);
    let mut entry = entries(&[(0, 4)]);
    entry.resize(40, 0);
    Disk::new(&mut host, 1)
        .send_data(sqe, &entry, Transfer::InCapsule)
        .unwrap();
    assert!(namespace.read(&mut host, 200, 4).unwrap() == data);
    let null = host.open_namespace(2).unwrap();
    null.copy(&mut host, &ranges, 100).unwrap();
    host.shutdown().unwrap();
}

#[test]
fn the_announced_limits_are_enforced() {
    let target = TestTarget::with_namespaces(&["mem:8MiB block_size = 512"]);
    let mut host = target.connect("a");
    let id = host.namespace(1).unwrap();
    let (mssrl, mcl) = (u32::from(id.mssrl.get()), id.mcl.get());
    assert_eq!((mssrl, mcl, id.msrc), (2048, 2048, 127));
    assert_eq!(host.identity().ocfs.get(), 0b11);
    let mut disk = Disk::new(&mut host, 1);
    let mut copy = |sdlba, ranges: &[(u64, u32)]| {
        let sqe = command::copy(1, sdlba, ranges.len() as u32);
        disk.send_data(sqe, &entries(ranges), Transfer::Keyed)
    };
    copy(4096, &[(0, mssrl)]).unwrap();
    copy(4096, &[(0, 16); 128]).unwrap();
    for (expected, sdlba, ranges) in [
        (
            Status::COMMAND_SIZE_LIMIT_EXCEEDED,
            4096,
            &[(0, mssrl + 1)][..],
        ),
        (
            Status::COMMAND_SIZE_LIMIT_EXCEEDED,
            4096,
            &[(0, mcl - 1), (0, 2)],
        ),
        (Status::COMMAND_SIZE_LIMIT_EXCEEDED, 4096, &[(0, 1); 129]),
        (Status::LBA_OUT_OF_RANGE, 16383, &[(0, 2)]),
        (Status::LBA_OUT_OF_RANGE, 0, &[(16383, 2)]),
        (Status::OVERLAPPING_IO_RANGE, 8, &[(0, 1), (5, 4)]),
    ] {
        let refused = copy(sdlba, ranges);
        let Err(HostError::Status { status, result, .. }) = refused else {
            panic!("{expected}: {refused:?}");
        };
        assert_eq!((status.code(), result), (expected, 0));
        assert!(status.dnr(), "{status}");
    }
    let mut format_2 = command::copy(1, 8, 1);
    format_2.cdw12 = U32::new(2 << 8);
    let refused = disk.send_data(format_2, &entries(&[(0, 1)]), Transfer::Keyed);
    assert_eq!(status(refused).code(), Status::INVALID_FIELD);
    host.shutdown().unwrap();
}

fn copied(blocks: u32) -> (Sqe, Vec<u8>) {
    (command::copy(1, 512, 1), entries(&[(0, blocks)]))
}

const DESTINATION: usize = 512 * BLOCK as usize;

#[test]
fn a_copy_at_a_disk_that_hangs_ends_by_an_abort_or_in_time() {
    for held in [Operation::Read, Operation::Write] {
        for is_aborted in [true, false] {
            let mut bed = Bed::new("copy-hangs", "io_timeout_s = 10");
            let host = bed.connect("one", 1, 32);
            bed.check_io(host, 1);
            bed.disks[0].allow_cancel(true);
            bed.disks[0].hold(held);
            let (sqe, entries) = copied(48);
            let copy = bed.submit(host, sqe, Data::InCapsule(&entries));
            bed.until("a step", |bed| bed.disks[0].waiting(held) == 1);
            if is_aborted {
                let abort = bed.submit_admin(host, command::abort(1, copy.cid()));
                bed.pass(Duration::from_secs(1));
                let answer = bed.host(host).take(abort).expect("the Abort is answered");
                assert_eq!(answer.answer.unwrap().cqe.dw0.get() & 1, 0);
            } else {
                bed.pass(Duration::from_secs(11));
            }
            let answer = bed.host(host).take(copy).expect("an end");
            let expected = match is_aborted {
                true => Status::ABORT_REQUESTED,
                false => Status::NAMESPACE_NOT_READY,
            };
            assert_eq!(status_of(answer.answer), expected);
            bed.disks[0].release_all();
            bed.check_io(host, 1);
            let destination = bed.disks[0].contents(DESTINATION, 48 * BLOCK as usize);
            assert!(
                destination.iter().all(|&byte| byte == 0),
                "nothing was written"
            );
            bed.quiet();
        }
    }
}

#[test]
fn an_abort_ends_a_copy_between_its_steps() {
    let mut bed = Bed::new("copy-between", "");
    let host = bed.connect("one", 1, 32);
    bed.disks[0].hold(Operation::Read);
    let (sqe, entries) = copied(16);
    let copy = bed.submit(host, sqe, Data::InCapsule(&entries));
    bed.until("a step", |bed| bed.disks[0].waiting(Operation::Read) == 1);
    bed.disks[0].hold(Operation::Write);
    let abort = bed.submit_admin(host, command::abort(1, copy.cid()));
    bed.pass(Duration::from_millis(100));
    assert!(
        bed.host(host).take(abort).is_none(),
        "the disk does not cancel"
    );
    bed.disks[0].release(Operation::Read);
    bed.collect(host, vec![abort]);
    let answer = bed.host(host).take(copy).expect("an end");
    assert_eq!(status_of(answer.answer), Status::ABORT_REQUESTED);
    assert_eq!(bed.disks[0].in_flight(), 0, "no write has begun");
    bed.disks[0].release_all();
    bed.quiet();
}

#[test]
fn a_failed_copy_names_the_first_range_that_is_not_copied() {
    let mut bed = Bed::new("copy-fails", "");
    let host = bed.connect("one", 1, 32);
    let mut data = bed.host(host).buffer(BLOCK as usize).unwrap();
    data.write(0, &[7; BLOCK as usize]);
    bed.run(host, command::write(1, 0, 1), Data::whole(data))
        .unwrap();
    bed.disks[0].hold(Operation::Write);
    let entries = entries(&[(0, 1), (100, 1), (200, 1)]);
    let copy = command::copy(1, 512, 3);
    let copy = bed.submit(host, copy, Data::InCapsule(&entries));
    bed.until("a write", |bed| bed.disks[0].waiting(Operation::Write) == 1);
    bed.disks[0].fail(Operation::Read, libc::EIO, 1);
    bed.disks[0].release_all();
    let mut ended = None;
    bed.until("an end", |bed| {
        ended = bed.host(host).take(copy);
        ended.is_some()
    });
    let answer = ended.unwrap().answer;
    let result = match &answer {
        Ok(response) => response.cqe.dw0.get(),
        Err(HostError::Status { result, .. }) => *result as u32,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(
        (status_of(answer), result),
        (Status::UNRECOVERED_READ_ERROR, 1)
    );
    assert_eq!(bed.disks[0].contents(DESTINATION, 8), [7; 8]);
    bed.quiet();
}

#[test]
fn a_copy_with_fua_is_durable() {
    let mut bed = Bed::new("copy-fua", "");
    let host = bed.connect("one", 1, 32);
    let mut data = bed.host(host).buffer(BLOCK as usize).unwrap();
    data.write(0, &[7; BLOCK as usize]);
    bed.run(host, command::write(1, 0, 1), Data::whole(data))
        .unwrap();
    let (sqe, entries) = copied(1);
    let sqe = command::with_fua(sqe);
    bed.run(host, sqe, Data::InCapsule(&entries)).unwrap();
    assert_eq!(bed.disks[0].durable(DESTINATION, 8), [7; 8]);
    assert_eq!(bed.disks[0].durable(0, 8), [0; 8]);
    bed.quiet();
}

#[test]
fn bytes_read_and_written_by_copies_count_against_rate_limits() {
    const SECONDS: u32 = 4;
    for (limit, per_copy) in [("read", 4), ("write", 4), ("total", 8)] {
        let line = format!("limits = {{ {limit} = \"1MiB\" }}");
        let mut bed = Bed::limited("copy-limits", "io_timeout_s = 1", [&line, ""]);
        let host = bed.connect("one", 1, 64);
        let (sqe, entries) = copied(4);
        let submit = |bed: &mut Bed| bed.submit(host, sqe, Data::InCapsule(&entries));
        let mut open: Vec<_> = (0..48).map(|_| submit(&mut bed)).collect();
        let end = bed.clock.now() + SECONDS * Duration::from_secs(1);
        let mut done = 0_u32;
        while bed.clock.now() < end {
            bed.turn();
            for ticket in &mut open {
                if let Some(ended) = bed.host(host).take(*ticket) {
                    assert_eq!(status_of(ended.answer), Status::SUCCESS);
                    done += 1;
                    *ticket = submit(&mut bed);
                }
            }
        }
        let (kib, allowed) = (done * 4 * per_copy, SECONDS * 1024);
        let hundredths = kib * 100 / allowed;
        assert!(
            (95..=105).contains(&hundredths),
            "{limit}: {kib} KiB of {allowed}"
        );
        bed.quiet();
    }
}
