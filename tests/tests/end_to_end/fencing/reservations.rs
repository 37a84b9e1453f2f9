//! Reservations while a disk hangs, and after a host has disappeared.

use nvme_proto::reservation::ReservationType as Type;
use nvme_proto::wire::reservation::{AcquireCdw10, RegisterCdw10, ReservationStatusExtended};
use nvme_proto::wire::{FromBytes, Sqe};

use super::*;

const REGISTER: u8 = 0x0d;
const REPORT: u8 = 0x0e;
const ACQUIRE: u8 = 0x11;

fn keys(current: u64, other: u64) -> [u8; 16] {
    let mut data = [0; 16];
    data[..8].copy_from_slice(&current.to_le_bytes());
    data[8..].copy_from_slice(&other.to_le_bytes());
    data
}

fn send(host: &mut Controller, opcode: u8, cdw10: u32, data: [u8; 16]) -> Ticket {
    let sqe = Sqe {
        cdw10: cdw10.into(),
        ..command::plain(opcode, 1)
    };
    host.submit(sqe, Data::InCapsule(&data)).unwrap()
}

fn preempt(host: &mut Controller, action: u8) -> Ticket {
    let rtype = Type::WriteExclusive.code();
    let fields = AcquireCdw10(0).with_racqa(action).with_rtype(rtype);
    send(host, ACQUIRE, fields.0, keys(1, 2))
}

impl Bed {
    fn register(&mut self, host: &mut Controller, key: u64) {
        let ticket = send(host, REGISTER, RegisterCdw10(0).0, keys(0, key));
        assert_eq!(self.answer(host, ticket), Status::SUCCESS);
    }

    fn registrants(&mut self, host: &mut Controller) -> u16 {
        let buffer = host.buffer(64).unwrap();
        let sqe = Sqe {
            cdw10: 15.into(),
            cdw11: 1.into(),
            ..command::plain(REPORT, 1)
        };
        let ticket = host.submit(sqe, Data::whole(buffer)).unwrap();
        let (status, buffer) = self.end(host, ticket);
        assert_eq!(status, Status::SUCCESS);
        let bytes = buffer.unwrap().bytes(0, 64);
        let report = ReservationStatusExtended::read_from_bytes(&bytes).unwrap();
        report.status.registrants.get()
    }

    fn is_unanswered(&mut self, host: &mut Controller, ticket: Ticket, turns: usize) {
        for _ in 0..turns {
            self.turn(host);
            assert!(host.take(ticket).is_none(), "answered too early");
        }
    }
}

/// Checks that a preemption completes only after the disk has completed a write of the preempted
/// host.
fn is_answered_after_the_write(action: u8) {
    let mut bed = Bed::new("preempted-write");
    let mut winner = bed.live_host("winner", 0);
    let mut loser = bed.live_host("loser", 0);
    bed.register(&mut winner, 1);
    bed.register(&mut loser, 2);
    let rtype = u32::from(Type::WriteExclusive.code()) << 8;
    let acquire = send(&mut loser, ACQUIRE, rtype, keys(2, 0));
    assert_eq!(bed.answer(&mut loser, acquire), Status::SUCCESS);
    let old = bed.holds_a_write(&mut loser);
    let preempting = preempt(&mut winner, action);
    for _ in 0..3 {
        bed.is_unanswered(&mut winner, preempting, 100);
        bed.pass(Duration::from_secs(6));
    }
    assert_eq!(
        bed.registrants(&mut winner),
        2,
        "reports show answered changes"
    );
    let refused = write(&mut loser, 1, 5, &[9; BLOCK]);
    let conflict = bed.answer(&mut loser, refused);
    assert_eq!(conflict.code(), Status::RESERVATION_CONFLICT);
    let other = send(&mut loser, REGISTER, 0, keys(0, 7));
    bed.is_unanswered(&mut loser, other, 100);
    bed.disk.release(Operation::Write);
    assert_eq!(bed.answer(&mut winner, preempting), Status::SUCCESS);
    assert_eq!(bed.answer(&mut loser, other), Status::SUCCESS);
    assert_eq!(bed.registrants(&mut winner), 2);
    assert_eq!(bed.answer(&mut loser, old), Status::SUCCESS);
    bed.writes(&mut winner, 3);
    assert_eq!(bed.block(5), [0; BLOCK]);
}

#[test]
fn a_preempt_is_answered_once_the_disk_has_no_write_that_it_forbids() {
    is_answered_after_the_write(AcquireCdw10::PREEMPT);
    is_answered_after_the_write(AcquireCdw10::PREEMPT_AND_ABORT);
}

#[test]
fn a_preempt_and_abort_also_waits_for_reads_that_it_permits() {
    for (action, waits) in [
        (AcquireCdw10::PREEMPT, false),
        (AcquireCdw10::PREEMPT_AND_ABORT, true),
    ] {
        let mut bed = Bed::new("preempted-read");
        let mut winner = bed.live_host("winner", 0);
        let mut loser = bed.live_host("loser", 0);
        bed.register(&mut winner, 1);
        bed.register(&mut loser, 2);
        bed.disk.hold(Operation::Read);
        let buffer = loser.buffer(BLOCK).unwrap();
        let data = Data::whole(buffer);
        let read = loser.submit(command::read(1, 0, 1), data).unwrap();
        for _ in 0..100 {
            bed.turn(&mut loser);
        }
        assert_eq!(bed.disk.waiting(Operation::Read), 1);
        let preempting = preempt(&mut winner, action);
        if waits {
            bed.is_unanswered(&mut winner, preempting, 200);
        } else {
            assert_eq!(bed.answer(&mut winner, preempting), Status::SUCCESS);
        }
        bed.disk.release_all();
        if waits {
            assert_eq!(bed.answer(&mut winner, preempting), Status::SUCCESS);
        }
        assert_eq!(bed.answer(&mut loser, read), Status::SUCCESS);
        assert_eq!(bed.registrants(&mut winner), 1);
    }
}

#[test]
fn a_waiting_command_of_a_host_that_is_gone_is_not_executed() {
    const KATO: Duration = Duration::from_secs(3);
    let mut bed = Bed::new("gone-registrant");
    let mut winner = bed.live_host("winner", 0);
    let mut loser = bed.live_host("loser", 0);
    let mut gone = bed.live_host("gone", KATO.as_millis() as u32);
    bed.register(&mut winner, 1);
    bed.register(&mut loser, 2);
    let _old = bed.holds_a_write(&mut loser);
    let preempting = preempt(&mut winner, AcquireCdw10::PREEMPT_AND_ABORT);
    bed.is_unanswered(&mut winner, preempting, 100);
    let late = send(&mut gone, REGISTER, 0, keys(0, 3));
    bed.is_unanswered(&mut gone, late, 20);
    bed.pass(2 * KATO);
    bed.disk.release_all();
    assert_eq!(bed.answer(&mut winner, preempting), Status::SUCCESS);
    bed.pass(Duration::from_millis(100));
    assert_eq!(
        bed.registrants(&mut winner),
        1,
        "the host may have sent it again"
    );
}

#[test]
fn a_controller_has_eight_waiting_changes() {
    let mut bed = Bed::new("many-changes");
    let mut winner = bed.live_host("winner", 0);
    let mut loser = bed.live_host("loser", 0);
    bed.register(&mut winner, 1);
    bed.register(&mut loser, 2);
    let _old = bed.holds_a_write(&mut loser);
    let preempting = preempt(&mut winner, AcquireCdw10::PREEMPT_AND_ABORT);
    bed.is_unanswered(&mut winner, preempting, 100);
    let waiting: Vec<Ticket> = (0..8)
        .map(|_| send(&mut loser, REGISTER, 0, keys(0, 2)))
        .collect();
    let excess = send(&mut loser, REGISTER, 0, keys(0, 2));
    let refused = bed.answer(&mut loser, excess);
    assert_eq!(refused.code(), Status::COMMAND_INTERRUPTED);
    assert!(!refused.dnr());
    bed.disk.release_all();
    assert_eq!(bed.answer(&mut winner, preempting), Status::SUCCESS);
    for ticket in waiting {
        assert_eq!(bed.answer(&mut loser, ticket), Status::SUCCESS);
    }
}
