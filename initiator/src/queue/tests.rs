use std::sync::{Arc, Weak};
use std::time::Duration;

use cairn_base::Mapping;
use cairn_rdma::loopback::Loopback;
use cairn_rdma::{Access, Provider, Region};
use nvme_proto::wire::cm::RequestData;
use nvme_proto::wire::{IntoBytes, NSID_ALL, Status};

use super::*;
use crate::buffer::Buffer;
use crate::command;

const QP: QpId = QpId::new(0, 0);

fn device() -> Arc<dyn Device> {
    let at = "10.0.0.1:4420".parse().unwrap();
    Loopback::new().device_for(at, None).unwrap()
}

fn spec(depth: u16, capsule_bytes: usize) -> QueueSpec {
    QueueSpec {
        qid: 1,
        depth,
        capsule_bytes,
        request: RequestData::new(1, depth + 1, depth, 1),
    }
}

fn queue(depth: u16) -> Queue {
    let mut queue = Queue::new(&*device(), &spec(depth, 128), QP).unwrap();
    queue.link = Link::Up(QP);
    queue
}

fn flush(queue: &mut Queue) -> Ticket {
    let ticket = prepare(queue, command::flush(1), Data::None).unwrap();
    queue.send(ticket.cid());
    ticket
}

#[expect(
    clippy::result_large_err,
    reason = "the buffer comes back without an allocation"
)]
fn prepare(queue: &mut Queue, sqe: Sqe, data: Data<'_>) -> Result<Ticket, Unsent> {
    queue.prepare(sqe, data, Owner::Caller)
}

fn answer(queue: &mut Queue, cid: u16) -> Result<Effect, Loss> {
    let cqe = Cqe::new(cid, 0, Status::SUCCESS, 0);
    queue.responded(cqe.as_bytes(), None)
}

#[test]
fn a_command_ends_with_its_response() {
    let mut queue = queue(2);
    let (first, second) = (flush(&mut queue), flush(&mut queue));
    let third = prepare(&mut queue, command::flush(1), Data::None);
    let third = third.unwrap_err().error;
    assert!(matches!(third, HostError::QueueFull { qid: 1 }));

    answer(&mut queue, second.cid()).unwrap();
    assert!(queue.take(first).is_none() && queue.take(second).unwrap().0.is_ok());
    answer(&mut queue, first.cid()).unwrap();
    assert!(queue.take(first).unwrap().0.is_ok());
    assert_eq!((queue.outstanding(), queue.unanswered()), (0, 0));
}

#[test]
fn capsules_outlive_their_commands_but_not_too_many() {
    let mut queue = queue(2);
    let places = queue.capsules.free();
    let mut signaled = Vec::new();
    let mut ended = 0;
    let waiting = loop {
        let ticket = flush_signaled(&mut queue, &mut signaled);
        answer(&mut queue, ticket.cid()).unwrap();
        if queue.take(ticket).is_none() {
            break ticket;
        }
        ended += 1;
    };
    assert_eq!(ended, places - 3);
    assert!(queue.next_over().is_none());
    assert!(ended >= 2 * signaled.len() && signaled.len() >= 2);
    queue.sent(signaled[0]);
    assert!(matches!(queue.next_over(), Some(Effect::ForCaller)));
    assert!(queue.take(waiting).unwrap().0.is_ok());
    assert!(queue.next_over().is_none());
    queue.closed(Loss::Closed, false, |_| ());
    assert_eq!(queue.capsules.free(), places);
}

fn flush_signaled(queue: &mut Queue, signaled: &mut Vec<u16>) -> Ticket {
    let ticket = prepare(queue, command::flush(1), Data::None).unwrap();
    let work = queue.send(ticket.cid());
    if work.signaled {
        signaled.push(work.id as u16);
    }
    ticket
}

#[test]
fn answers_are_taken_by_ticket_or_oldest_first() {
    let mut queue = queue(4);
    let tickets: Vec<_> = (0..4).map(|_| flush(&mut queue)).collect();
    for cid in [3, 1, 0, 2] {
        answer(&mut queue, cid).unwrap();
    }
    assert!(queue.take(tickets[1]).is_some());
    let mut order = Vec::new();
    while let Some((ticket, (answer, _))) = queue.take_oldest() {
        assert!(answer.is_ok());
        order.push(ticket.cid());
    }
    assert_eq!(order, [3, 0, 2]);
}

#[test]
fn responses_without_a_command_are_distinguished_from_others() {
    for capsule in [
        Cqe::new(7, 0, Status::SUCCESS, 0).as_bytes(),
        Cqe::new(1, 0, Status::SUCCESS, 0).as_bytes(),
        &[0; 15],
    ] {
        let mut queue = queue(2);
        assert_eq!(flush(&mut queue).cid(), 0);
        let refused = queue.responded(capsule, None);
        assert!(matches!(refused, Err(Loss::Protocol(_))));
    }
    let mut queue = queue(1);
    flush(&mut queue);
    answer(&mut queue, 0).unwrap();
    assert!(matches!(answer(&mut queue, 0), Err(Loss::Protocol(_))));
}

#[test]
fn a_forgotten_command_keeps_its_slot_until_it_is_over() {
    let mut queue = queue(1);
    let ticket = flush(&mut queue);
    queue.forget(ticket);
    assert!(prepare(&mut queue, command::flush(1), Data::None).is_err());
    answer(&mut queue, 0).unwrap();
    assert!(queue.take_oldest().is_none());
    assert!(prepare(&mut queue, command::flush(1), Data::None).is_ok());
}

#[test]
fn a_command_has_its_buffer_until_the_connection_is_closed() {
    let mut queue = queue(1);
    let (ticket, region) = read(&mut queue);
    queue.link = Link::Broken(QP, Loss::Closed);
    assert!(queue.take(ticket).is_none() && region.upgrade().is_some());
    queue.closed(Loss::Closed, false, |_| ());
    let (answer, buffer) = queue.take(ticket).unwrap();
    assert!(answer.is_err());
    drop(buffer.expect("the end of a command gives its buffer back"));
    assert!(region.upgrade().is_none());
}

#[test]
fn a_forgotten_command_keeps_its_buffer_until_it_is_over() {
    let mut queue = queue(1);
    let (ticket, region) = read(&mut queue);
    queue.forget(ticket);
    assert!(region.upgrade().is_some());
    answer(&mut queue, ticket.cid()).unwrap();
    assert!(region.upgrade().is_none());
}

#[test]
fn a_command_that_does_not_fit_gives_its_buffer_back() {
    let mut queue = queue(1);
    flush(&mut queue);
    let buffer = Buffer::new(&*device(), 512).unwrap();
    let refused = prepare(&mut queue, command::read(1, 0, 1), Data::whole(buffer));
    assert!(refused.unwrap_err().buffer.is_some());
    let long = prepare(
        &mut queue,
        command::write(1, 0, 1),
        Data::InCapsule(&[0; 65]),
    );
    assert!(long.unwrap_err().to_string().contains("takes 64"));
}

fn read(queue: &mut Queue) -> (Ticket, Weak<Region>) {
    let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = Arc::new(device().register(mapping, access).unwrap());
    let weak = Arc::downgrade(&region);
    let data = Data::start_of(Buffer::of(region), 512);
    let ticket = prepare(queue, command::read(1, 0, 1), data).unwrap();
    queue.send(ticket.cid());
    (ticket, weak)
}

#[test]
fn a_closed_connection_answers_parks_or_loses_each_command() {
    let mut queue = queue(4);
    let answered = flush(&mut queue);
    let waiting = flush(&mut queue);
    let unsafe_sqe = command::plain(0xc1, NSID_ALL);
    let lost = prepare(&mut queue, unsafe_sqe, Data::None).unwrap();
    queue.send(lost.cid());
    answer(&mut queue, answered.cid()).unwrap();
    queue.closed(Loss::Closed, true, |_| ());
    assert!(queue.take(answered).unwrap().0.is_ok());
    assert!(queue.take(lost).unwrap().0.is_err());
    assert!(queue.take(waiting).is_none());
    assert_eq!(queue.parked(Duration::ZERO, |_| true), Some(waiting.cid()));

    queue.reconnect(&spec(4, 128), QP, &Loss::Closed);
    let work = queue.send(waiting.cid());
    assert_eq!(work.sges.total_len(), 64);
    let capsule = queue.capsules.bytes(work.id as u16, 64);
    let (sqe, _) = Sqe::split_capsule(&capsule).unwrap();
    assert_eq!((sqe.opc, sqe.cid.get()), (0, waiting.cid()));
    answer(&mut queue, waiting.cid()).unwrap();
    assert!(queue.take(waiting).unwrap().0.is_ok());
    assert_eq!(queue.free.len(), 4);
}

#[test]
fn a_smaller_connection_ends_what_it_cannot_take() {
    let mut queue = queue(3);
    let small = flush(&mut queue);
    let long = prepare(
        &mut queue,
        command::write(1, 0, 1),
        Data::InCapsule(&[0; 64]),
    )
    .unwrap();
    let high = flush(&mut queue);
    queue.send(long.cid());
    queue.closed(Loss::Closed, true, |_| ());
    queue.reconnect(&spec(2, 64), QP, &Loss::Closed);
    assert!(queue.take(small).is_none());
    assert!(queue.take(long).unwrap().0.is_err());
    assert!(queue.take(high).unwrap().0.is_err());
    assert_eq!((queue.depth(), queue.in_capsule_max()), (2, 0));
    assert_eq!(flush(&mut queue).cid(), long.cid());
    assert!(prepare(&mut queue, command::flush(1), Data::None).is_err());
    let own = Owner::Duty(Duty::Step(1));
    let connect = queue.prepare(command::plain(0x7f, 0), Data::None, own);
    assert_eq!(connect.unwrap().cid(), 3);
}

#[test]
fn what_waits_in_vain_ends() {
    let mut queue = queue(2);
    let ticket = flush(&mut queue);
    queue.closed(Loss::Closed, true, |_| ());
    queue.end_parked(&Loss::Closed, |_| true);
    assert!(queue.take(ticket).unwrap().0.is_err());
}

#[test]
fn commands_age_by_sweeps() {
    let mut queue = queue(2);
    let ticket = flush(&mut queue);
    let old = |queue: &mut Queue| queue.sweep(2).collect::<Vec<_>>();
    assert!(old(&mut queue).is_empty() && old(&mut queue).is_empty());
    assert_eq!(old(&mut queue), [(0, false)]);
    queue.note_abort(ticket.cid());
    assert!(old(&mut queue).is_empty() && old(&mut queue).is_empty());
    assert_eq!(old(&mut queue), [(0, true)]);
    answer(&mut queue, 0).unwrap();
    assert!(old(&mut queue).is_empty());
}

#[test]
#[should_panic(expected = "was taken before")]
fn a_ticket_is_good_for_one_answer() {
    let mut queue = queue(1);
    let ticket = flush(&mut queue);
    answer(&mut queue, 0).unwrap();
    queue.take(ticket);
    queue.take(ticket);
}

#[test]
fn the_capsule_holds_sqe_and_data() {
    let mut queue = queue(2);
    let data = Data::InCapsule(b"sixty-four bytes fit and no more");
    let ticket = prepare(&mut queue, command::write(1, 9, 1), data).unwrap();
    let work = queue.send(ticket.cid());
    assert_eq!(work.sges.total_len(), 64 + 32);
    let capsule = queue.capsules.bytes(work.id as u16, 96);
    let (sqe, rest) = Sqe::split_capsule(&capsule).unwrap();
    assert_eq!(sqe.cid.get(), ticket.cid());
    assert_eq!(sqe.dptr, SglDescriptor::in_capsule(0, 32));
    assert_eq!(rest, b"sixty-four bytes fit and no more");
}

#[test]
fn a_deep_queue_fetches_only_data_whose_capsule_takes_two_packets() {
    let mut queue = Queue::new(&*device(), &spec(16, SQE_BYTES + 4096), QP).unwrap();
    queue.link = Link::Up(QP);
    for _ in 0..16 {
        flush(&mut queue);
    }
    let near = |packet_bytes| {
        Some(Trains {
            packet_bytes,
            round_trip: Some(Duration::from_micros(1)),
        })
    };
    let whole = SQE_BYTES as u32 + 4096;
    assert!(queue.prefers_capsule(4096, near(whole)));
    assert!(!queue.prefers_capsule(4096, near(4096)));
    assert!(queue.prefers_capsule(512, near(4096)));
    assert!(
        !queue.prefers_capsule(4097, near(whole)),
        "no capsule has room for it"
    );
}
