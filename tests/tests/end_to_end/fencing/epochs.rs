//! Hosts that enable write protection or disable the write cache. The command completes only after
//! the change applies to all outstanding writes.

use nvme_proto::wire::Sqe;
use nvme_proto::wire::feature::{Feature, WriteProtectionState};

use super::*;

const COMMANDS: usize = 40;
const LIMIT: &str = "limits = { iops = 20 }";
const PROTECTABLE: &str = "write_protection = true";
const LONG: Duration = Duration::from_secs(6);

fn protection(state: WriteProtectionState) -> Sqe {
    let fid = Feature::NAMESPACE_WRITE_PROTECTION.0;
    command::set_features(fid, 1, u32::from(state.0))
}

fn write_cache_off() -> Sqe {
    command::set_features(Feature::VOLATILE_WRITE_CACHE.0, 0, 0)
}

impl Bed {
    fn waiting_writes(&mut self, host: &mut Controller) -> Vec<Ticket> {
        let tickets = (0..COMMANDS as u64).map(|block| {
            let data = Data::InCapsule(&[7; BLOCK]);
            host.submit(command::write(1, block, 1), data).unwrap()
        });
        let tickets = tickets.collect();
        for _ in 0..40 {
            self.turn(host);
        }
        tickets
    }

    fn admin(&mut self, host: &mut Controller, sqe: Sqe) -> Status {
        let ticket = host.submit_admin(sqe, Data::None).unwrap();
        self.answer(host, ticket)
    }

    fn waits_for_the_disk(&mut self, host: &mut Controller, sqe: Sqe) {
        let ticket = host.submit_admin(sqe, Data::None).unwrap();
        for _ in 0..100 {
            self.turn(host);
        }
        assert!(host.take(ticket).is_none(), "an older write is at the disk");
        self.disk.release(Operation::Write);
        assert_eq!(self.answer(host, ticket), Status::SUCCESS);
        assert_eq!(self.block(3), [1; BLOCK], "the older write has ended");
    }

    fn fails_when_the_disk_hangs(&mut self, host: &mut Controller, sqe: Sqe) {
        let ticket = host.submit_admin(sqe, Data::None).unwrap();
        self.pass(LONG);
        let status = self.answer(host, ticket);
        assert_eq!(status.code(), Status::WRITE_FAULT);
        self.disk.release(Operation::Write);
        self.pass(MOMENT);
    }

    fn contents(&self) -> Vec<u8> {
        self.disk.contents(0, BLOCKS * BLOCK)
    }
}

#[test]
fn nothing_changes_once_a_protection_has_completed() {
    let mut bed = Bed::exporting("protects", "", &format!("{PROTECTABLE}\n{LIMIT}"));
    let mut writer = bed.live_host("writer", 0);
    let mut other = bed.live_host("other", 0);
    let tickets = bed.waiting_writes(&mut writer);
    let protect = protection(WriteProtectionState::PROTECTED);
    assert_eq!(bed.admin(&mut other, protect), Status::SUCCESS);
    let before = bed.contents();
    let mut refused = 0;
    for ticket in tickets {
        let status = bed.answer(&mut writer, ticket);
        refused += usize::from(status.code() == Status::NAMESPACE_WRITE_PROTECTED);
        let is_known = status.is_success() || status.code() == Status::NAMESPACE_WRITE_PROTECTED;
        assert!(is_known, "{status}");
    }
    assert!(refused > COMMANDS / 2, "only {refused} waited");
    assert!(
        bed.contents() == before,
        "a protected namespace has changed"
    );
}

#[test]
fn a_protection_completes_when_older_writes_have_left_the_disk() {
    let mut bed = Bed::exporting("protects-late", "", PROTECTABLE);
    let (_writer, _) = host_with_a_held_write(&mut bed, "writer");
    let mut other = bed.live_host("other", 0);
    bed.waits_for_the_disk(&mut other, protection(WriteProtectionState::PROTECTED));
}

#[test]
fn a_protection_fails_if_the_disk_hangs() {
    let mut bed = Bed::exporting("protects-hung", "", PROTECTABLE);
    let (_writer, _) = host_with_a_held_write(&mut bed, "writer");
    let mut other = bed.live_host("other", 0);
    let protect = protection(WriteProtectionState::PROTECTED);
    bed.fails_when_the_disk_hangs(&mut other, protect);
    bed.writes(&mut other, 4);
    assert_eq!(bed.admin(&mut other, protect), Status::SUCCESS);
}

#[test]
fn without_a_write_cache_all_that_was_answered_is_durable() {
    let mut bed = Bed::exporting("no-cache", "", LIMIT);
    let mut host = bed.live_host("host", 0);
    let tickets = bed.waiting_writes(&mut host);
    assert_eq!(bed.answer(&mut host, tickets[0]), Status::SUCCESS);
    assert_eq!(bed.admin(&mut host, write_cache_off()), Status::SUCCESS);
    let durable = bed.disk.durable(0, BLOCK);
    assert!(durable == [7; BLOCK], "block 0 would be lost");
    let (mut early, mut late) = (1, 0);
    for (block, ticket) in tickets.into_iter().enumerate().skip(1) {
        match host.take(ticket) {
            Some(ended) => {
                assert_eq!(ended.answer.unwrap().cqe.status(), Status::SUCCESS);
                early += 1;
            }
            None => {
                assert_eq!(bed.answer(&mut host, ticket), Status::SUCCESS);
                late += 1;
            }
        }
        let durable = bed.disk.durable(block * BLOCK, BLOCK);
        assert!(durable == [7; BLOCK], "block {block} would be lost");
    }
    assert!(early > 0 && late > 0, "{early} before, {late} after");
}

#[test]
fn a_write_cache_is_off_when_older_writes_have_left_the_disk() {
    let mut bed = Bed::new("no-cache-late");
    let (mut writer, _) = host_with_a_held_write(&mut bed, "writer");
    bed.waits_for_the_disk(&mut writer, write_cache_off());
}

#[test]
fn a_write_cache_that_a_hung_disk_keeps_is_reported() {
    let mut bed = Bed::new("no-cache-hung");
    let (mut writer, ticket) = host_with_a_held_write(&mut bed, "writer");
    bed.fails_when_the_disk_hangs(&mut writer, write_cache_off());
    assert_eq!(bed.answer(&mut writer, ticket), Status::SUCCESS);
    assert_eq!(bed.admin(&mut writer, write_cache_off()), Status::SUCCESS);
}
