//! Fused Compare and Write commands while the disk hangs, a host is lost, or a command is aborted.

use cairn_initiator::IoQueue;
use nvme_proto::io::Cancel;

use super::*;

type Pair = [Ticket; 2];

fn filled(host: &Controller, byte: u8) -> Data<'static> {
    let mut buffer = host.buffer(BLOCK).unwrap();
    buffer.write(0, &[byte; BLOCK]);
    Data::whole(buffer)
}

fn pair(host: &mut Controller, block: u64, old: u8, new: u8) -> Pair {
    let (compare, write) = (command::compare(1, block, 1), command::write(1, block, 1));
    let (old, new) = (filled(host, old), filled(host, new));
    let pair = [(compare.into(), old), (write.into(), new)];
    host.submit_pair(IoQueue::FIRST, pair).unwrap()
}

impl Bed {
    fn pair_ends(&mut self, host: &mut Controller, pair: Pair) -> [Status; 2] {
        pair.map(|ticket| self.answer(host, ticket).code())
    }

    fn swaps(&mut self, host: &mut Controller, block: u64, old: u8, new: u8) {
        let pair = pair(host, block, old, new);
        assert_eq!(self.pair_ends(host, pair), [Status::SUCCESS; 2]);
        assert!(self.block(block as usize) == [new; BLOCK]);
    }

    fn waits(&mut self, host: &mut Controller, ticket: Ticket) {
        for _ in 0..500 {
            self.turn(host);
            assert!(host.take(ticket).is_none(), "it did not wait");
        }
    }

    fn holds_a_pair(&mut self, host: &mut Controller, at: Operation) -> Pair {
        self.disk.hold(at);
        let pair = pair(host, 3, 0, 1);
        for _ in 0..TURNS_MAX {
            self.turn(host);
            if self.disk.waiting(at) > 0 {
                self.disk.hold_no_more(at);
                return pair;
            }
        }
        panic!("the disk has nothing: {:?}", self.target);
    }

    fn until_unused(&mut self, hosts: [Controller; 2]) {
        drop(hosts);
        self.pass(Duration::from_secs(1));
        assert!(self.is_alone(), "{:?}", self.target);
    }
}

const FAILED: [Status; 2] = [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED];

#[test]
fn a_write_at_the_disk_ends_before_another_hosts_pair() {
    let mut bed = Bed::new("fused-after-write");
    let [mut writer, mut other] = ["writer", "pairs"].map(|name| bed.live_host(name, 0));
    let write = bed.holds_a_write(&mut writer);
    let late = pair(&mut other, 3, 0, 5);
    bed.waits(&mut other, late[0]);
    bed.swaps(&mut other, 4, 0, 5);
    bed.disk.release_all();
    assert_eq!(bed.pair_ends(&mut other, late), FAILED);
    assert_eq!(bed.answer(&mut writer, write), Status::SUCCESS);
    bed.swaps(&mut other, 3, 1, 5);
    bed.until_unused([writer, other]);
}

#[test]
fn changes_and_comparisons_wait_for_a_pair_at_the_disk() {
    for at in [Operation::Read, Operation::Write] {
        let mut bed = Bed::new("fused-excludes");
        let [mut first, mut other] = ["first", "other"].map(|name| bed.live_host(name, 0));
        let held = bed.holds_a_pair(&mut first, at);
        let changes: [fn(&mut Controller) -> Ticket; 4] = [
            |host| pair(host, 3, 1, 2)[1],
            |host| {
                let data = filled(host, 1);
                host.submit(command::compare(1, 3, 1), data).unwrap()
            },
            |host| write(host, 1, 3, &[9; BLOCK]),
            |host| {
                let zeroes = command::write_zeroes(1, 2, 8, false);
                host.submit(zeroes, Data::None).unwrap()
            },
        ];
        let waiting = changes.map(|submit| {
            let ticket = submit(&mut other);
            bed.waits(&mut other, ticket);
            ticket
        });
        bed.writes(&mut other, 12);
        bed.disk.release_all();
        assert_eq!(bed.pair_ends(&mut first, held), [Status::SUCCESS; 2]);
        let ends = waiting.map(|ticket| bed.answer(&mut other, ticket).code());
        let success = Status::SUCCESS;
        assert_eq!(ends, [success, Status::COMPARE_FAILURE, success, success]);
        bed.until_unused([first, other]);
    }
}

#[test]
fn a_pair_of_a_lost_host_excludes_others_as_long_as_the_disk_has_it() {
    for (at, found) in [(Operation::Read, 0), (Operation::Write, 1)] {
        let mut bed = Bed::new("fused-lost-host");
        let [mut first, mut other] = ["dies", "other"].map(|name| bed.live_host(name, 0));
        bed.holds_a_pair(&mut first, at);
        drop(first);
        let late = pair(&mut other, 3, found, 7);
        bed.waits(&mut other, late[0]);
        bed.disk.release_all();
        assert_eq!(bed.pair_ends(&mut other, late), [Status::SUCCESS; 2]);
        assert!(bed.block(3) == [7; BLOCK]);
        let third = bed.live_host("third", 0);
        bed.until_unused([other, third]);
    }
}

#[test]
fn a_new_association_of_the_host_sees_the_pair_of_the_old_one() {
    let mut bed = Bed::new("fused-new-association");
    let mut first = bed.live_host("returns", 0);
    bed.holds_a_pair(&mut first, Operation::Write);
    drop(first);
    let mut second = bed.live_host("returns", 0);
    let compare = filled(&second, 1);
    let compare = second.submit(command::compare(1, 3, 1), compare).unwrap();
    bed.waits(&mut second, compare);
    bed.disk.release_all();
    assert_eq!(bed.answer(&mut second, compare), Status::SUCCESS);
}

#[test]
fn a_first_command_without_its_second_ends() {
    let mut bed = Bed::new("fused-missing");
    let [mut host, other] = ["misses", "other"].map(|name| bed.live_host(name, 0));
    let [compare, _] = command::fused(command::compare(1, 3, 1), command::write(1, 3, 1));
    for data in [filled(&host, 0), Data::InCapsule(&[0; BLOCK])] {
        let alone = host.submit(compare, data).unwrap();
        bed.waits(&mut host, alone);
        bed.pass(Duration::from_secs(2));
        let status = bed.answer(&mut host, alone).code();
        assert_eq!(status, Status::ABORTED_MISSING_FUSED);
    }
    bed.swaps(&mut host, 3, 0, 1);
    host.submit(compare, Data::InCapsule(&[0; BLOCK])).unwrap();
    bed.turn(&mut host);
    bed.until_unused([host, other]);
}

#[test]
fn aborting_one_of_a_waiting_pair_ends_both() {
    for aborts_first in [true, false] {
        let mut bed = Bed::new("fused-abort");
        let [mut writer, mut host] = ["writer", "aborts"].map(|name| bed.live_host(name, 0));
        bed.holds_a_write(&mut writer);
        let waiting = pair(&mut host, 3, 0, 5);
        bed.waits(&mut host, waiting[0]);
        let victim = waiting[usize::from(!aborts_first)];
        let abort = command::abort(1, victim.cid());
        let abort = host.submit_admin(abort, Data::None).unwrap();
        assert_eq!(bed.answer(&mut host, abort), Status::SUCCESS);
        let mut expected = [Status::ABORT_REQUESTED, Status::ABORTED_FAILED_FUSED];
        if !aborts_first {
            expected.reverse();
        }
        assert_eq!(bed.pair_ends(&mut host, waiting), expected);
        bed.disk.release_all();
        bed.swaps(&mut host, 3, 1, 6);
        bed.until_unused([writer, host]);
    }
}

#[test]
fn a_cancel_ends_both_of_a_waiting_pair() {
    let (aborted, failed) = (Status::ABORT_REQUESTED, Status::ABORTED_FAILED_FUSED);
    for (victim, count, expected) in [
        (Some(0), 1, [aborted, failed]),
        (Some(1), 1, [failed, aborted]),
        (None, 2, [failed, aborted]),
    ] {
        let mut bed = Bed::new("fused-cancel");
        let [mut writer, mut host] = ["writer", "cancels"].map(|name| bed.live_host(name, 0));
        bed.holds_a_write(&mut writer);
        let waiting = pair(&mut host, 3, 0, 5);
        bed.waits(&mut host, waiting[0]);
        let victim = victim.map(|at: usize| waiting[at].cid());
        let cancel = Cancel::sqe(1, waiting[0].qid(), victim);
        let cancel = host.submit(cancel, Data::None).unwrap();
        let mut ended = None;
        while ended.is_none() {
            bed.turn(&mut host);
            ended = host.take(cancel);
        }
        assert_eq!(ended.unwrap().answer.unwrap().cqe.dw0.get(), count);
        assert_eq!(bed.pair_ends(&mut host, waiting), expected);
        bed.disk.release_all();
        bed.swaps(&mut host, 3, 1, 6);
        bed.until_unused([writer, host]);
    }
}

#[test]
fn a_pair_whose_disk_fails_ends_with_its_reason() {
    let mut bed = Bed::new("fused-errors");
    let [mut host, other] = ["fails", "other"].map(|name| bed.live_host(name, 0));
    bed.disk.fail(Operation::Read, libc::EIO, 1);
    let failing = pair(&mut host, 3, 0, 1);
    let unread = [Status::UNRECOVERED_READ_ERROR, Status::ABORTED_FAILED_FUSED];
    assert_eq!(bed.pair_ends(&mut host, failing), unread);
    bed.disk.fail(Operation::Write, libc::EIO, 1);
    let failing = pair(&mut host, 3, 0, 1);
    let unwritten = [Status::SUCCESS, Status::WRITE_FAULT];
    assert_eq!(bed.pair_ends(&mut host, failing), unwritten);
    bed.swaps(&mut host, 3, 0, 1);
    bed.until_unused([host, other]);
}

#[test]
fn exclusion_ends_and_begins_again() {
    let mut bed = Bed::new("fused-again");
    let [mut writer, mut host] = ["writer", "pairs"].map(|name| bed.live_host(name, 0));
    for round in 0..3 {
        bed.swaps(&mut host, 7, round, round + 1);
        for _ in 0..20 {
            bed.writes(&mut writer, 8);
            bed.pass(Duration::from_millis(200));
        }
        let write = bed.holds_a_write(&mut writer);
        let late = pair(&mut host, 3, 9, 5);
        bed.waits(&mut host, late[0]);
        bed.disk.release_all();
        assert_eq!(bed.pair_ends(&mut host, late), FAILED);
        assert_eq!(bed.answer(&mut writer, write), Status::SUCCESS);
    }
    bed.until_unused([writer, host]);
}
