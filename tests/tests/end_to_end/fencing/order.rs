//! Order of writes and deallocations that one host sends on several associations.
//!
//! A write waits until the disk has completed the host's older writes to the same blocks on other
//! associations, even if the target has not yet detected the loss of those associations.

use super::*;
use cairn_initiator::IoQueue;
use nvme_proto::io::BlockRange;

fn only_the_held_block_waits(bed: &mut Bed, host: &mut Controller) {
    let buffer = [2; BLOCK];
    let waits = write(host, 1, 3, &buffer);
    for (nsid, block) in [(1, 4), (1, 2), (2, 3)] {
        let ticket = write(host, nsid, block, &buffer);
        assert_eq!(bed.answer(host, ticket), Status::SUCCESS);
    }
    let read = Data::whole(host.buffer(BLOCK).unwrap());
    let ticket = host.submit(command::read(1, 3, 1), read).unwrap();
    assert_eq!(bed.answer(host, ticket), Status::SUCCESS);
    bed.waits_until_the_disk_lets_go(host, waits);
    assert_eq!(bed.block(3), [2; BLOCK], "the old write ends first");
}

impl Bed {
    fn waits_until_the_disk_lets_go(&mut self, host: &mut Controller, change: Ticket) {
        for _ in 0..2000 {
            self.turn(host);
        }
        assert!(host.take(change).is_none(), "an older one is at the disk");
        self.disk.release_all();
        assert_eq!(self.answer(host, change), Status::SUCCESS);
    }

    fn deallocates(&mut self, host: &mut Controller, ranges: &[(u64, u32)]) -> Ticket {
        let range = |&(slba, blocks): &(u64, u32)| {
            let mut bytes = [0; 16];
            bytes[4..8].copy_from_slice(&blocks.to_le_bytes());
            bytes[8..].copy_from_slice(&slba.to_le_bytes());
            bytes
        };
        let bytes: Vec<u8> = ranges.iter().flat_map(range).collect();
        let mut buffer = host.buffer(BLOCK).unwrap();
        buffer.write(0, &bytes);
        let data = Data::start_of(buffer, bytes.len() as u32);
        let sqe = command::deallocate(1, ranges.len() as u32);
        host.submit(sqe, data).unwrap()
    }

    fn both_until(&mut self, hosts: &mut [&mut Controller], done: impl Fn(&Self) -> bool) {
        for _ in 0..TURNS_MAX {
            hosts.iter_mut().for_each(|host| self.turn(host));
            if done(self) {
                return;
            }
        }
        panic!("it did not come about: {:?}", self.target);
    }
}

#[test]
fn a_dead_associations_write_does_not_land_after_its_successors() {
    let mut bed = Bed::new("noticed");
    let (first, _) = host_with_a_held_write(&mut bed, "returns");
    drop(first);
    bed.pass(Duration::from_millis(100));
    let mut second = bed.live_host("returns", 60_000);
    only_the_held_block_waits(&mut bed, &mut second);
}

#[test]
fn neither_does_one_whose_end_the_target_has_not_noticed() {
    let mut bed = Bed::new("unnoticed");
    let (_first, _) = host_with_a_held_write(&mut bed, "returns");
    let mut second = bed.live_host("returns", 60_000);
    only_the_held_block_waits(&mut bed, &mut second);
}

#[test]
fn neither_does_a_lost_paths_write_after_those_by_another_path() {
    for is_noticed in [true, false] {
        let mut bed = Bed::new("other-path");
        let mut second = bed.live_host("two-paths", 60_000);
        let mut first = bed.live_host("two-paths", 60_000);
        bed.holds_a_write(&mut first);
        if is_noticed {
            drop(first);
            bed.pass(Duration::from_millis(100));
            only_the_held_block_waits(&mut bed, &mut second);
        } else {
            only_the_held_block_waits(&mut bed, &mut second);
            drop(first);
        }
    }
}

#[test]
fn a_connect_does_not_wait_for_the_disk() {
    let mut bed = Bed::new("connect");
    let (_first, _) = host_with_a_held_write(&mut bed, "returns");
    let begin = bed.clock.now();
    let _second = bed.live_host("returns", 60_000);
    assert!(bed.clock.now() - begin < Duration::from_millis(500));
    bed.disk.release_all();
    bed.pass(Duration::from_millis(100));
}

/// The target receives the first association's capsules only after the second association has
/// begun.
#[test]
fn capsules_that_the_target_has_not_read_count_as_well() {
    const CAPSULES: usize = 300;
    let mut bed = Bed::new("unread");
    let options = HostOptions {
        queue_entries: 512,
        ..bed.options("returns", 60_000)
    };
    let mut first = bed.begin(options);
    bed.until(&mut first, Controller::is_live);
    let _between = bed.live_host("between", 60_000);
    let mut second = bed.host("returns", 60_000);
    while !second.is_admin_up() {
        bed.target.step();
        second.poll(bed.clock.now());
    }
    bed.disk.hold(Operation::Write);
    let buffer = [1; BLOCK];
    for _ in 0..CAPSULES {
        write(&mut first, 1, 3, &buffer);
    }
    for _ in 0..20 {
        bed.jump(Duration::from_millis(1));
        bed.target.round();
        second.poll(bed.clock.now());
    }
    bed.until(&mut second, Controller::is_live);
    let buffer = [2; BLOCK];
    let waits = write(&mut second, 1, 3, &buffer);
    bed.waits_until_the_disk_lets_go(&mut second, waits);
    bed.until(&mut first, |first| first.outstanding(IoQueue::FIRST) == 0);
    bed.pass(Duration::from_millis(10));
    assert_eq!(bed.block(3), [2; BLOCK]);
}

#[test]
fn another_host_does_not_wait() {
    let mut bed = Bed::new("another");
    let (_first, _) = host_with_a_held_write(&mut bed, "holds");
    let _second = bed.live_host("holds", 60_000);
    let mut other = bed.live_host("other", 0);
    bed.writes(&mut other, 3);
    bed.disk.release_all();
    bed.pass(Duration::from_millis(100));
}

#[test]
fn a_second_path_does_not_harm_the_first() {
    let mut bed = Bed::new("two-paths");
    let (mut first, ticket) = host_with_a_held_write(&mut bed, "two-paths");
    let mut second = bed.live_host("two-paths", 60_000);
    bed.disk.release(Operation::Write);
    assert_eq!(bed.answer(&mut first, ticket), Status::SUCCESS);
    bed.writes(&mut first, 3);
    bed.writes(&mut second, 3);
    bed.writes(&mut first, 3);
    drop(second);
    bed.pass(Duration::from_millis(100));
    bed.writes(&mut first, 3);
}

#[test]
fn a_second_path_to_a_limited_namespace_fails_no_write() {
    let mut bed = Bed::with("limited", "limits = { iops = 20 }");
    let mut first = bed.live_host("two-paths", 60_000);
    let buffer = [1; BLOCK];
    let tickets: Vec<Ticket> = (0..40)
        .map(|block| write(&mut first, 1, block, &buffer))
        .collect();
    for _ in 0..100 {
        bed.turn(&mut first);
    }
    let mut second = bed.live_host("two-paths", 60_000);
    let buffer = [2; BLOCK];
    let ticket = write(&mut second, 1, 50, &buffer);
    assert_eq!(bed.answer(&mut second, ticket), Status::SUCCESS);
    for ticket in tickets {
        assert_eq!(bed.answer(&mut first, ticket), Status::SUCCESS);
    }
}

#[test]
fn a_write_that_was_overtaken_is_not_carried_out() {
    let mut bed = Bed::with("overtaken", "limits = { iops = 20 }");
    let mut first = bed.live_host("two-paths", 60_000);
    let mut second = bed.live_host("two-paths", 60_000);
    let buffer = [1; BLOCK];
    for block in 10..50 {
        write(&mut first, 1, block, &buffer);
    }
    let overtaken = write(&mut first, 1, 3, &buffer);
    for _ in 0..10 {
        bed.turn(&mut first);
    }
    bed.writes(&mut second, 3);
    let status = bed.answer(&mut first, overtaken);
    assert_eq!(status.code(), Status::ANA_TRANSITION);
    assert!(!status.dnr(), "the host may send it again");
    assert_eq!(bed.block(3), [2; BLOCK]);
    bed.until(&mut first, |first| first.outstanding(IoQueue::FIRST) == 0);
    let again = write(&mut first, 1, 3, &buffer);
    assert_eq!(bed.answer(&mut first, again), Status::SUCCESS);
    assert_eq!(bed.block(3), [1; BLOCK]);
}

#[test]
fn a_change_that_waits_for_too_long_is_sent_back_to_the_path() {
    let mut bed = Bed::new("too-long");
    let (first, _) = host_with_a_held_write(&mut bed, "returns");
    drop(first);
    let mut second = bed.live_host("returns", 0);
    let buffer = [2; BLOCK];
    let ticket = write(&mut second, 1, 3, &buffer);
    bed.turn(&mut second);
    bed.pass(Duration::from_secs(29));
    bed.turn(&mut second);
    assert!(second.take(ticket).is_none(), "too early");
    bed.pass(Duration::from_secs(2));
    let status = bed.answer(&mut second, ticket);
    assert_eq!(status.code(), Status::ANA_TRANSITION);
    assert!(!status.dnr(), "the host may send it again");
    bed.disk.release_all();
    bed.pass(Duration::from_millis(100));
    assert_eq!(
        bed.block(3),
        [1; BLOCK],
        "what was sent back is not carried out"
    );
    bed.writes(&mut second, 3);
}

#[test]
fn a_change_that_waits_ends_with_its_association() {
    let mut bed = Bed::new("waits-and-ends");
    let (_first, _) = host_with_a_held_write(&mut bed, "returns");
    let mut second = bed.live_host("returns", 60_000);
    let mut buffer = second.buffer(2 * BLOCK).unwrap();
    buffer.write(0, &[9; 2 * BLOCK]);
    let data = Data::whole(buffer);
    second.submit(command::write(1, 3, 2), data).unwrap();
    for _ in 0..20 {
        bed.turn(&mut second);
    }
    drop(second);
    bed.pass(Duration::from_millis(100));
    let mut third = bed.live_host("returns", 60_000);
    only_the_held_block_waits(&mut bed, &mut third);
    assert_eq!(
        bed.block(4),
        [2; BLOCK],
        "the write of the second association"
    );
}

#[test]
fn an_abort_takes_out_a_change_that_waits() {
    let mut bed = Bed::new("abort");
    let (_first, _) = host_with_a_held_write(&mut bed, "returns");
    let mut second = bed.live_host("returns", 60_000);
    let buffer = [9; BLOCK];
    let waits = write(&mut second, 1, 3, &buffer);
    for _ in 0..20 {
        bed.turn(&mut second);
    }
    let abort = command::abort(1, waits.cid());
    let abort = second.submit_admin(abort, Data::None).unwrap();
    assert_eq!(bed.answer(&mut second, abort), Status::SUCCESS);
    let status = bed.answer(&mut second, waits);
    assert_eq!(status.code(), Status::ABORT_REQUESTED);
    only_the_held_block_waits(&mut bed, &mut second);
}

#[test]
fn write_zeroes_and_deallocations_wait_as_well() {
    for deallocates in [false, true] {
        let mut bed = Bed::new("zeroes");
        let (_first, _) = host_with_a_held_write(&mut bed, "two-paths");
        let mut second = bed.live_host("two-paths", 60_000);
        let waits = if deallocates {
            bed.deallocates(&mut second, &[(40, 8), (2, 2)])
        } else {
            let zeroes = command::write_zeroes(1, 2, 4, false);
            second.submit(zeroes, Data::None).unwrap()
        };
        let elsewhere = bed.deallocates(&mut second, &[(10, 8), (30, 2)]);
        assert_eq!(bed.answer(&mut second, elsewhere), Status::SUCCESS);
        bed.waits_until_the_disk_lets_go(&mut second, waits);
        assert_eq!(bed.block(3), [0; BLOCK], "the old write ends first");
    }
}

#[test]
fn a_copy_waits_for_an_older_write_to_its_destination() {
    let mut bed = Bed::new("copy");
    let (_first, _) = host_with_a_held_write(&mut bed, "two-paths");
    let mut second = bed.live_host("two-paths", 60_000);
    let elsewhere = copy(&mut second, 40, 50, 4);
    assert_eq!(bed.answer(&mut second, elsewhere), Status::SUCCESS);
    let waits = copy(&mut second, 20, 2, 4);
    bed.waits_until_the_disk_lets_go(&mut second, waits);
    assert_eq!(bed.block(3), [0; BLOCK], "the old write ends first");
}

#[test]
fn the_destination_of_a_copy_is_waited_for_until_its_last_step() {
    for is_first_alone in [true, false] {
        let mut bed = Bed::new("copies");
        let mut first = bed.live_host("two-paths", 60_000);
        let mut second = is_first_alone.then(|| bed.live_host("two-paths", 60_000));
        bed.disk.hold(Operation::Read);
        copy(&mut first, 8, 30, 20);
        bed.both_until(&mut [&mut first], |bed| {
            bed.disk.waiting(Operation::Read) == 1
        });
        let second = second.get_or_insert_with(|| bed.live_host("two-paths", 60_000));
        bed.disk.release_oldest(Operation::Read);
        bed.both_until(&mut [&mut first], |bed| {
            bed.disk.waiting(Operation::Read) == 1
        });
        let buffer = [2; BLOCK];
        let waits = write(second, 1, 49, &buffer);
        bed.writes(second, 20);
        bed.waits_until_the_disk_lets_go(second, waits);
        bed.until(&mut first, |first| first.outstanding(IoQueue::FIRST) == 0);
        assert_eq!(bed.block(49), [2; BLOCK], "the copy ends first");
    }
}

#[test]
fn an_aborted_command_of_several_steps_leaves_the_order() {
    for is_copy in [true, false] {
        let mut bed = Bed::new("aborted-steps");
        let mut first = bed.live_host("two-paths", 60_000);
        let mut second = bed.live_host("two-paths", 60_000);
        bed.disk.allow_cancel(true);
        bed.disk.hold(Operation::Read);
        bed.disk.hold(Operation::Zero);
        let victim = match is_copy {
            true => copy(&mut first, 8, 3, 1),
            false => bed.deallocates(&mut first, &[(3, 1), (7, 1)]),
        };
        bed.both_until(&mut [&mut first], |bed| bed.disk.in_flight() == 1);
        let abort = command::abort(1, victim.cid());
        let abort = first.submit_admin(abort, Data::None).unwrap();
        assert_eq!(bed.answer(&mut first, abort), Status::SUCCESS);
        let status = bed.answer(&mut first, victim);
        assert_eq!(status.code(), Status::ABORT_REQUESTED);
        bed.disk.release_all();
        bed.writes(&mut second, 3);
    }
}

fn copy(host: &mut Controller, slba: u64, sdlba: u64, blocks: u32) -> Ticket {
    let entry = BlockRange { slba, blocks }.copy_entry();
    let sqe = command::copy(1, sdlba, 1);
    host.submit(sqe, Data::InCapsule(&entry)).unwrap()
}

#[test]
fn all_ranges_of_a_deallocation_are_waited_for() {
    for is_first_alone in [true, false] {
        let mut bed = Bed::new("ranges");
        let mut first = bed.live_host("two-paths", 60_000);
        let mut second = is_first_alone.then(|| bed.live_host("two-paths", 60_000));
        bed.disk.hold(Operation::Zero);
        bed.deallocates(&mut first, &[(40, 8), (3, 1)]);
        bed.both_until(&mut [&mut first], |bed| {
            bed.disk.waiting(Operation::Zero) == 1
        });
        let second = second.get_or_insert_with(|| bed.live_host("two-paths", 60_000));
        let buffer = [2; BLOCK];
        let waits = write(second, 1, 3, &buffer);
        bed.writes(second, 20);
        bed.waits_until_the_disk_lets_go(second, waits);
        bed.until(&mut first, |first| first.outstanding(IoQueue::FIRST) == 0);
        assert_eq!(bed.block(3), [2; BLOCK], "the deallocation ends first");
    }
}

#[test]
fn changes_of_memory_are_in_order_too() {
    let mut bed = Bed::new("memory");
    let mut first = bed.live_host("two-paths", 60_000);
    let old = [1; BLOCK];
    let ticket = write(&mut first, 2, 3, &old);
    bed.target.round();
    let mut second = bed.host("two-paths", 60_000);
    bed.both_until(&mut [&mut second], |_| true);
    assert_eq!(bed.answer(&mut first, ticket), Status::SUCCESS);
    bed.until(&mut second, Controller::is_live);
    for host in [&mut second, &mut first] {
        let newer = [2; BLOCK];
        let ticket = write(host, 2, 3, &newer);
        assert_eq!(bed.answer(host, ticket), Status::SUCCESS);
    }
    let read = Data::whole(second.buffer(BLOCK).unwrap());
    let ticket = second.submit(command::read(2, 3, 1), read).unwrap();
    let (status, back) = bed.end(&mut second, ticket);
    assert_eq!(status, Status::SUCCESS);
    let back = back.expect("a Read has a buffer");
    assert_eq!(back.bytes(0, BLOCK), [2; BLOCK]);
}
