use anyhow::{Context, Result, ensure};
use cairn_initiator::command;
use cairn_rdma::QpId;
use nvme_proto::io::Cancel;
use nvme_proto::wire::{Cqe, IntoBytes, Sqe, Status, U16};

use super::capsules::plain;
use super::peer::{Answer, ENTRIES, Peer};
use super::{BLOCK_BYTES, Bystander, Setting};
use crate::case::suite;

const LARGE_BLOCKS: u32 = 2048;
const LARGE_QUEUES: u16 = 4;

suite! {
    stops_reading: "a host that posts no receives for its responses loses that queue in time",
    hoards_buffers: "a host that never takes its data leaves buffers for the others",
    more_than_the_queue_holds: "more commands outstanding than the queue has entries close it",
    abort_of_duplicates: "an Abort of a CID that several commands have leaves none of them behind",
    abort_of_duplicate_pairs: "an Abort of a CID that several pairs have leaves none of them behind",
    cancel_of_full_queues: "a Cancel in a full queue of reads and pairs leaves none of them behind",
    cancels_of_nothing: "a Cancel of itself, another queue or no command aborts nothing",
    abort_storm: "more Aborts than ACL allows are answered, none twice",
    event_request_flood: "more event requests than AERL allows fail with Asynchronous Event Request Limit Exceeded",
    error_flood: "a thousand failing commands are a thousand answers",
}

fn stops_reading(setting: &Setting) -> Result<()> {
    let (mut peer, queues) = deaf_peer(setting, 1)?;
    let io = queues[0];
    let mut capsules = Vec::new();
    for _ in 0..ENTRIES / 2 {
        let mut read = plain(&mut peer, command::read(setting.nsid, 0, 1));
        read.dptr = peer.keyed(BLOCK_BYTES);
        capsules.push(read);
    }
    say_all(&mut peer, io, &capsules)?;
    peer.expect_closed(io)
}

fn hoards_buffers(setting: &Setting) -> Result<()> {
    let mut bystander = Bystander::connect(setting, "second-bystander")?;
    let (mut peer, queues) = deaf_peer(setting, LARGE_QUEUES)?;
    for &io in &queues {
        let reads: Vec<Sqe> = (0..ENTRIES - 1)
            .map(|_| {
                let mut read = plain(&mut peer, command::read(setting.nsid, 0, LARGE_BLOCKS));
                read.dptr = peer.keyed(LARGE_BLOCKS * BLOCK_BYTES);
                read
            })
            .collect();
        say_all(&mut peer, io, &reads)?;
    }
    bystander.limit_patience(setting.patience / 4);
    bystander
        .check_io(4)
        .context("while another host has all buffers it can get")?;
    bystander.leave()
}

fn more_than_the_queue_holds(setting: &Setting) -> Result<()> {
    let (mut peer, queues) = deaf_peer(setting, 1)?;
    let io = queues[0];
    for _ in 0..8 {
        let flushes: Vec<Sqe> = (0..ENTRIES)
            .map(|_| plain(&mut peer, command::flush(setting.nsid)))
            .collect();
        if say_all(&mut peer, io, &flushes).is_err() {
            break;
        }
    }
    peer.expect_closed(io)
}

fn abort_of_duplicates(setting: &Setting) -> Result<()> {
    let (mut peer, admin, queues) = deaf_peer_and_admin(setting, LARGE_QUEUES)?;
    let mut read = plain(&mut peer, command::read(setting.nsid, 0, LARGE_BLOCKS));
    read.dptr = peer.keyed(LARGE_BLOCKS * BLOCK_BYTES);
    let copies = vec![read; usize::from(ENTRIES - 1)];
    for &io in &queues {
        say_all(&mut peer, io, &copies)?;
    }
    let aborts: Vec<Sqe> = (1..=LARGE_QUEUES)
        .map(|qid| plain(&mut peer, command::abort(qid, read.cid.get())))
        .collect();
    say_all(&mut peer, admin, &aborts)?;
    peer.read_again()?;
    answers(&mut peer, admin, &aborts)?;
    for &io in &queues {
        answers(&mut peer, io, &copies)?;
    }
    Ok(())
}

fn read_and_pair(peer: &mut Peer, setting: &Setting) -> (Sqe, [Sqe; 2]) {
    let mut read = plain(peer, command::read(setting.nsid, 0, LARGE_BLOCKS));
    read.dptr = peer.keyed(LARGE_BLOCKS * BLOCK_BYTES);
    let compare = plain(peer, command::compare(setting.nsid, 0, 1));
    let write = plain(peer, command::write(setting.nsid, 0, 1));
    let mut pair = command::fused(compare, write);
    for sqe in &mut pair {
        sqe.dptr = peer.keyed(BLOCK_BYTES);
    }
    (read, pair)
}

fn abort_of_duplicate_pairs(setting: &Setting) -> Result<()> {
    const READS: u16 = ENTRIES / 2 - 1;
    let (mut peer, admin, queues) = deaf_peer_and_admin(setting, LARGE_QUEUES)?;
    let (read, mut pair) = read_and_pair(&mut peer, setting);
    for named in [0, 1] {
        pair[named].cid = read.cid;
        pair[1 - named].cid = U16::new(peer.new_cid());
        let mut capsules = vec![read; usize::from(READS)];
        capsules.extend([pair; ENTRIES as usize / 4].iter().flatten());
        for &io in &queues[2 * named..2 * named + 2] {
            say_all(&mut peer, io, &capsules)?;
        }
    }
    let aborts: Vec<Sqe> = (1..=LARGE_QUEUES)
        .map(|qid| plain(&mut peer, command::abort(qid, read.cid.get())))
        .collect();
    say_all(&mut peer, admin, &aborts)?;
    peer.read_again()?;
    answers(&mut peer, admin, &aborts)?;
    for &io in &queues {
        let mut ended = 0;
        while ended < READS + 2 * (ENTRIES / 4) {
            match peer.receive(io)? {
                Answer::Closed => anyhow::bail!("the target closed the queue"),
                Answer::Response(_) => ended += 1,
            }
        }
    }
    Ok(())
}

fn cancel_of_full_queues(setting: &Setting) -> Result<()> {
    const READS: u16 = ENTRIES / 2 - 2;
    let (mut peer, queues) = deaf_peer(setting, LARGE_QUEUES)?;
    let (read, pair) = read_and_pair(&mut peer, setting);
    let mut said = Vec::new();
    for (qid, &io) in (1..).zip(&queues) {
        let mut capsules = vec![read; usize::from(READS)];
        capsules.extend([pair; ENTRIES as usize / 4].iter().flatten());
        let victim = [None, Some(read.cid.get()), Some(pair[0].cid.get())];
        let victim = victim[usize::from(qid) % 3];
        let cancel = Cancel::sqe(setting.nsid, qid, victim);
        capsules.push(plain(&mut peer, cancel));
        say_all(&mut peer, io, &capsules)?;
        said.push(capsules);
    }
    peer.read_again()?;
    for (capsules, &io) in said.iter().zip(&queues) {
        answers(&mut peer, io, capsules)?;
    }
    Ok(())
}

fn cancels_of_nothing(setting: &Setting) -> Result<()> {
    let (mut peer, _, io) = Peer::with_io_queue(setting)?;
    let mut own = plain(&mut peer, Cancel::sqe(setting.nsid, 1, Some(0)));
    own.cdw10.set(1 | u32::from(own.cid.get()) << 16);
    peer.expect(io, own, Status::INVALID_COMMAND_ID)?;
    for sqid in [0, 2, u16::MAX] {
        for victim in [None, Some(own.cid.get())] {
            let other = plain(&mut peer, Cancel::sqe(setting.nsid, sqid, victim));
            peer.expect(io, other, Status::INVALID_FIELD)?;
        }
    }
    for victim in [None, Some(own.cid.get())] {
        let nothing = plain(&mut peer, Cancel::sqe(setting.nsid, 1, victim));
        peer.say(io, nothing.as_bytes())?;
        let cqe = answers(&mut peer, io, &[nothing])?[0];
        let ended = (cqe.status().code(), cqe.dw0.get());
        ensure!(ended == (Status::SUCCESS, 0), "it ended in {ended:?}");
    }
    Ok(())
}

fn abort_storm(setting: &Setting) -> Result<()> {
    let (mut peer, admin, io) = Peer::with_io_queue(setting)?;
    for round in 0..20_u16 {
        let victim = plain(&mut peer, command::flush(setting.nsid));
        peer.say(io, victim.as_bytes())?;
        let aborts: Vec<Sqe> = (0..ENTRIES - 2)
            .map(|n| {
                let (sqid, cid) = match n % 3 {
                    0 => (1, victim.cid.get()),
                    1 => (0, 0x7000 + round),
                    _ => (0x4444, 1),
                };
                plain(&mut peer, command::abort(sqid, cid))
            })
            .collect();
        say_all(&mut peer, admin, &aborts)?;
        for cqe in answers(&mut peer, admin, &aborts)? {
            ensure!(
                matches!(
                    cqe.status().code(),
                    Status::SUCCESS
                        | Status::ABORT_COMMAND_LIMIT_EXCEEDED
                        | Status::INVALID_FIELD
                        | Status::INVALID_QUEUE_IDENTIFIER
                ),
                "an Abort ended in {}",
                cqe.status()
            );
        }
        let end = answers(&mut peer, io, &[victim])?[0].status().code();
        ensure!(
            matches!(end, Status::SUCCESS | Status::ABORT_REQUESTED),
            "the victim ended in {end}"
        );
    }
    Ok(())
}

fn event_request_flood(setting: &Setting) -> Result<()> {
    let (mut peer, admin) = Peer::with_controller(setting)?;
    let requests: Vec<Sqe> = (0..ENTRIES - 2)
        .map(|_| plain(&mut peer, command::async_event_request()))
        .collect();
    say_all(&mut peer, admin, &requests)?;
    let last = plain(&mut peer, command::keep_alive());
    peer.say(admin, last.as_bytes())?;
    let mut refused = 0;
    loop {
        match peer.receive(admin)? {
            Answer::Response(cqe) if cqe.cid == last.cid => break,
            Answer::Response(cqe) => {
                ensure!(
                    cqe.status().code() == Status::ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED,
                    "an event request ended in {}",
                    cqe.status()
                );
                refused += 1;
            }
            Answer::Closed => anyhow::bail!("the target closed the admin queue"),
        }
    }
    ensure!(
        refused > 0 && refused < requests.len(),
        "{refused} of {} were refused",
        requests.len()
    );
    Ok(())
}

fn error_flood(setting: &Setting) -> Result<()> {
    let (mut peer, _, io) = Peer::with_io_queue(setting)?;
    for _ in 0..1000 / (ENTRIES - 1) {
        let reads: Vec<Sqe> = (0..ENTRIES - 1)
            .map(|_| {
                let mut read = plain(&mut peer, command::read(setting.nsid, u64::MAX - 1, 1));
                read.dptr = peer.keyed(BLOCK_BYTES);
                read
            })
            .collect();
        say_all(&mut peer, io, &reads)?;
        for cqe in answers(&mut peer, io, &reads)? {
            ensure!(!cqe.status().is_success(), "there is no such block");
        }
    }
    Ok(())
}

fn deaf_peer(setting: &Setting, io_queues: u16) -> Result<(Peer, Vec<QpId>)> {
    let (peer, _, queues) = deaf_peer_and_admin(setting, io_queues)?;
    Ok((peer, queues))
}

fn deaf_peer_and_admin(setting: &Setting, io_queues: u16) -> Result<(Peer, QpId, Vec<QpId>)> {
    let mut peer = Peer::open_deaf(setting)?;
    peer.node.post_receives(0..3 + u32::from(io_queues))?;
    let admin = peer.connect_queue(0, ENTRIES)?;
    peer.enable(admin)
        .context("a target that is ready at once is needed here")?;
    let queues = (1..=io_queues).map(|qid| peer.connect_queue(qid, ENTRIES));
    let queues = queues.collect::<Result<Vec<QpId>>>()?;
    Ok((peer, admin, queues))
}

fn say_all(peer: &mut Peer, qp: QpId, sqes: &[Sqe]) -> Result<()> {
    let capsules: Vec<&[u8]> = sqes.iter().map(IntoBytes::as_bytes).collect();
    peer.say_all(qp, &capsules)
}

fn answers(peer: &mut Peer, qp: QpId, sqes: &[Sqe]) -> Result<Vec<Cqe>> {
    let mut waiting: Vec<u16> = sqes.iter().map(|sqe| sqe.cid.get()).collect();
    let mut responses = Vec::new();
    while !waiting.is_empty() {
        match peer.receive(qp)? {
            Answer::Closed => anyhow::bail!("the target closed the queue"),
            Answer::Response(cqe) => {
                let at = waiting.iter().position(|&cid| cid == cqe.cid.get());
                let at = at.with_context(|| format!("{cqe:?} answers nothing"))?;
                waiting.swap_remove(at);
                responses.push(cqe);
            }
        }
    }
    Ok(responses)
}
