//! Cancel for commands that wait in a queue, or execute at a disk.

use std::time::Duration;

use cairn_disk::Operation;
use cairn_initiator::{Data, Ticket, command};
use nvme_proto::io::Cancel;
use nvme_proto::wire::{NSID_ALL, Sqe, Status};

use super::isolation::{BLOCK, Bed, status_of};

const SECOND: Duration = Duration::from_secs(1);

impl Bed {
    fn cancels(&mut self, host: usize, sqe: Sqe) -> (Status, [u32; 2]) {
        let ticket = self.submit(host, sqe, Data::None);
        let mut ended = None;
        self.until("the end of the Cancel", |bed| {
            ended = bed.host(host).take(ticket);
            ended.is_some()
        });
        let cqe = ended.unwrap().answer.unwrap().cqe;
        let counts = cqe.dw0.get();
        (cqe.status().code(), [counts & 0xffff, counts >> 16])
    }

    fn end_of(&mut self, host: usize, ticket: Ticket) -> Option<Status> {
        let ended = self.host(host).take(ticket)?;
        Some(status_of(ended.answer))
    }
}

#[test]
fn all_commands_of_a_namespace_are_aborted_and_no_others() {
    let limited = ["limits = { iops = 1 }", "limits = { iops = 1 }"];
    for nsid in [1, NSID_ALL] {
        let mut bed = Bed::limited("cancel-all", "", limited);
        let host = bed.connect("one", 2, 32);
        let mut held = Vec::new();
        for nsid in [1, 2] {
            let own = bed.flood(host, 2, 6, command::read(nsid, 0, 1), BLOCK);
            bed.pass(SECOND / 100);
            held.extend(own.into_iter().map(|ticket| (nsid, ticket)));
        }
        held.retain(|(_, ticket)| bed.host(host).take(*ticket).is_none());
        let is_victim =
            |&(of, ticket): &(u32, Ticket)| ticket.qid() == 1 && (nsid == NSID_ALL || nsid == of);
        let (victims, others): (Vec<_>, Vec<_>) = held.into_iter().partition(is_victim);
        assert!(victims.len() > 1 && others.len() > 1);
        let cancel = Cancel::sqe(nsid, 1, None);
        let ended = bed.cancels(host, cancel);
        assert_eq!(ended, (Status::SUCCESS, [victims.len() as u32, 0]));
        for (_, ticket) in victims {
            assert_eq!(bed.end_of(host, ticket), Some(Status::ABORT_REQUESTED));
        }
        bed.pass(20 * SECOND);
        bed.collect(host, others.into_iter().map(|(_, ticket)| ticket).collect());
        bed.quiet();
    }
}

#[test]
fn one_command_is_aborted_by_its_cid() {
    let mut bed = Bed::limited("cancel-one", "", ["limits = { iops = 1 }", ""]);
    let host = bed.connect("one", 1, 32);
    let mut held = bed.flood(host, 1, 6, command::read(1, 0, 1), BLOCK);
    held.retain(|ticket| bed.host(host).take(*ticket).is_none());
    let victim = held.remove(1);
    let of_other_namespace = Cancel::sqe(2, 1, Some(victim.cid()));
    let refused = bed.cancels(host, of_other_namespace);
    assert_eq!(refused, (Status::INVALID_FIELD, [0, 0]));
    for (nsid, count) in [(NSID_ALL, 1), (1, 0)] {
        let cancel = Cancel::sqe(nsid, 1, Some(victim.cid()));
        let ended = bed.cancels(host, cancel);
        assert_eq!(ended, (Status::SUCCESS, [count, 0]));
    }
    assert_eq!(bed.end_of(host, victim), Some(Status::ABORT_REQUESTED));
    bed.pass(10 * SECOND);
    bed.collect(host, held);
    bed.quiet();
}

#[test]
fn commands_at_a_disk_are_deferred_and_end_when_the_disk_lets_go() {
    let mut bed = Bed::new("cancel-disk", "");
    let host = bed.connect("one", 1, 32);
    bed.disks[0].hold(Operation::Read);
    let reads = bed.flood(host, 1, 2, command::read(1, 0, 1), BLOCK);
    bed.pass(SECOND / 10);
    bed.disks[0].allow_cancel(false);
    let one = Cancel::sqe(1, 1, Some(reads[0].cid()));
    assert_eq!(bed.cancels(host, one), (Status::SUCCESS, [0, 1]));
    bed.pass(SECOND);
    assert_eq!(bed.end_of(host, reads[0]), None, "the disk still reads");
    bed.disks[0].allow_cancel(true);
    let all = Cancel::sqe(1, 1, None);
    assert_eq!(bed.cancels(host, all), (Status::SUCCESS, [0, 2]));
    bed.pass(SECOND);
    for read in reads {
        assert_eq!(bed.end_of(host, read), Some(Status::ABORT_REQUESTED));
    }
    bed.quiet();
}

#[test]
fn commands_of_every_kind_are_aborted() {
    let mut bed = Bed::new("cancel-kinds", "");
    let host = bed.connect("one", 1, 32);
    bed.check_io(host, 1);
    let kinds = [
        Operation::Read,
        Operation::Write,
        Operation::Flush,
        Operation::Zero,
    ];
    for operation in kinds {
        bed.disks[0].hold(operation);
    }
    bed.disks[0].allow_cancel(true);
    let mut held: Vec<Ticket> = [
        command::read(1, 0, 1),
        command::write(1, 1, 1),
        command::compare(1, 2, 1),
    ]
    .map(|sqe| {
        let data = bed.block(host);
        bed.submit(host, sqe, data)
    })
    .into();
    let without_data = [
        command::flush(1),
        command::flush(1),
        command::write_zeroes(1, 3, 1, false),
        command::verify(1, 4, 1),
    ];
    held.extend(without_data.map(|sqe| bed.submit(host, sqe, Data::None)));
    let mut range = [0; 16];
    range[4..][..4].copy_from_slice(&1_u32.to_le_bytes());
    range[8] = 5;
    held.push(bed.submit(host, command::deallocate(1, 1), Data::InCapsule(&range)));
    let mut range = [0; 32];
    range[8] = 6;
    held.push(bed.submit(host, command::copy(1, 40, 1), Data::InCapsule(&range)));
    bed.pass(SECOND / 10);
    let (status, [immediate, deferred]) = bed.cancels(host, Cancel::sqe(1, 1, None));
    assert_eq!(status, Status::SUCCESS);
    assert_eq!((immediate + deferred) as usize, held.len());
    bed.pass(SECOND);
    for ticket in held {
        let end = bed.end_of(host, ticket);
        assert_eq!(end, Some(Status::ABORT_REQUESTED), "{ticket:?}");
    }
    for operation in kinds {
        bed.disks[0].hold_no_more(operation);
    }
    bed.check_io(host, 1);
    bed.quiet();
}
