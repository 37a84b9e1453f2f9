//! Temporary loss of a host's only path, during which the disk may be replaced, and old commands
//! may execute.

use std::time::{Duration, Instant};

use cairn_initiator::{
    Buffer, Controller, Data, Ended, HostError, HostOptions, Namespace, Recovery, Response, Ticket,
    command,
};
use cairn_tests::harness::{NQN, Scratch, subsystem};
use nvme_proto::host::multipath::time_in_doubt;
use nvme_proto::wire::identify::{Cns, IDENTIFY_BYTES, IdentifyNamespace};
use nvme_proto::wire::{FromBytes, Sqe};

use super::recovery::{BLOCK, Bed};

type Answer = Result<Response, HostError>;

fn bed(name: &str) -> Bed {
    Bed::new(name, |options: &mut HostOptions| {
        options.kato_ms = 2000;
        options.recovery = Recovery {
            reconnect_delay: Duration::from_millis(500),
            ..Recovery::default()
        };
    })
}

fn end(bed: &mut Bed, ticket: Ticket) -> Ended {
    let mut ended = None;
    bed.until("an answer", |host| {
        ended = host.take(ticket);
        ended.is_some()
    });
    ended.unwrap()
}

fn answer(bed: &mut Bed, ticket: Ticket) -> Answer {
    end(bed, ticket).answer
}

fn open(bed: &mut Bed) {
    let mut ask = |cns| {
        let data = Data::whole(bed.host.buffer(IDENTIFY_BYTES).unwrap());
        let ticket = bed
            .host
            .submit_admin(command::identify(cns, 1), data)
            .unwrap();
        let buffer = end(bed, ticket).into_buffer().unwrap();
        buffer.bytes(0, IDENTIFY_BYTES)
    };
    let descriptors = ask(Cns::NAMESPACE_DESCRIPTORS);
    let identify = IdentifyNamespace::read_from_bytes(&ask(Cns::NAMESPACE)).unwrap();
    let namespace = Namespace::parse(1, &identify, &descriptors).unwrap();
    bed.host.expect_disk(&namespace).unwrap();
}

fn submit(bed: &mut Bed, sqe: Sqe, block: &[u8; BLOCK]) -> Ticket {
    let data = Data::whole(filled(bed, block));
    bed.host.submit(sqe, data).unwrap()
}

fn filled(bed: &Bed, block: &[u8; BLOCK]) -> Buffer {
    let mut buffer = bed.host.buffer(BLOCK).unwrap();
    buffer.write(0, block);
    buffer
}

#[derive(Clone, Copy)]
enum Fate {
    Killed,
    Paused,
}

fn come_back(bed: &mut Bed, fate: Fate) -> Instant {
    let paused = match fate {
        Fate::Killed => {
            bed.kill();
            None
        }
        Fate::Paused => bed.target.take(),
    };
    pass_until(bed, |host| !host.is_live());
    let lost = bed.now;
    match paused {
        None => bed.restart(),
        paused => bed.target = paused,
    }
    pass_until(bed, |host| host.is_live());
    lost
}

fn pass_until(bed: &mut Bed, reached: impl Fn(&Controller) -> bool) {
    for _ in 0..3000 {
        if reached(&bed.host) {
            return;
        }
        bed.pass(Duration::from_millis(20));
    }
    panic!("it does not come about: {:?}", bed.host);
}

#[test]
fn another_disk_is_not_touched() {
    let mut bed = bed("another-disk");
    open(&mut bed);
    let ones = [1; BLOCK];
    let outstanding = submit(&mut bed, command::write(1, 0, 1), &ones);
    let read = submit(&mut bed, command::read(1, 0, 1), &ones);
    let other = Scratch::new("the-other-disk", (24 * BLOCK) as u64);
    bed.config = format!(
        "[target]\nreactors = 1\n{}[[listener]]\naddress = \"192.0.2.1\"\n",
        subsystem(NQN, &[&other.export(BLOCK as u32)])
    );
    come_back(&mut bed, Fate::Killed);
    for ticket in [outstanding, read] {
        let error = answer(&mut bed, ticket).unwrap_err();
        assert!(
            matches!(error, HostError::Replaced { nsid: 1, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("open the namespace anew"));
    }
    let data = Data::whole(filled(&bed, &ones));
    let refused = bed.host.submit(command::write(1, 0, 1), data);
    let refused = refused.unwrap_err();
    assert!(matches!(refused.error, HostError::Replaced { .. }));
    come_back(&mut bed, Fate::Killed);
    bed.pass(Duration::from_secs(10));
    let data = Data::whole(refused.buffer.unwrap());
    assert!(bed.host.submit(command::write(1, 0, 1), data).is_err());
    let bytes = std::fs::read(other.path()).unwrap();
    assert!(
        bytes.iter().all(|&byte| byte == 0),
        "the other disk was written"
    );
    open(&mut bed);
    let read = submit(&mut bed, command::read(1, 0, 1), &ones);
    let back = end(&mut bed, read).into_buffer().unwrap();
    assert_eq!(back.bytes(0, BLOCK), [0; BLOCK]);
}

#[test]
fn a_write_in_doubt_waits_and_nothing_else_does() {
    write_in_doubt("in-doubt", Fate::Killed);
}

#[test]
fn so_does_one_that_a_paused_target_has() {
    write_in_doubt("paused", Fate::Paused);
}

fn write_in_doubt(name: &str, fate: Fate) {
    let mut bed = bed(name);
    open(&mut bed);
    let hold = time_in_doubt(2000, bed.host.identity());
    assert!(hold > Duration::from_secs(2), "{hold:?}");
    let (ones, twos) = ([1; BLOCK], [2; BLOCK]);
    let in_doubt = submit(&mut bed, command::write(1, 3, 1), &ones);
    let lost = come_back(&mut bed, fate);
    assert!(
        bed.now < lost + hold / 2,
        "it came back too late for this test"
    );
    let same_block = submit(&mut bed, command::write(1, 3, 1), &ones);
    let other_block = submit(&mut bed, command::write(1, 4, 1), &twos);
    let read = submit(&mut bed, command::read(1, 4, 1), &twos);
    for ticket in [other_block, read] {
        assert!(answer(&mut bed, ticket).unwrap().cqe.status().is_success());
    }
    let left = (lost + hold).saturating_duration_since(bed.now);
    bed.pass(left.saturating_sub(Duration::from_millis(50)));
    let is_held =
        |host: &mut Controller| host.take(in_doubt).is_none() && host.take(same_block).is_none();
    assert!(
        is_held(&mut bed.host),
        "it was sent before {hold:?} had passed"
    );
    bed.pass(Duration::from_secs(1));
    for ticket in [in_doubt, same_block] {
        assert!(answer(&mut bed, ticket).unwrap().cqe.status().is_success());
    }
}

#[test]
fn a_reset_leaves_no_write_in_doubt() {
    let mut bed = bed("no-doubt");
    open(&mut bed);
    let ones = [1; BLOCK];
    let write = submit(&mut bed, command::write(1, 3, 1), &ones);
    bed.host.reset();
    let begun = bed.now;
    for _ in 0..100 {
        bed.pass(Duration::from_millis(20));
        if let Some(ended) = bed.host.take(write) {
            assert!(ended.answer.unwrap().cqe.status().is_success());
            assert!(bed.now - begun < Duration::from_secs(1));
            return;
        }
    }
    panic!("no answer: {:?}", bed.host);
}
