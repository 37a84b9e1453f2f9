use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cairn_rdma::{
    ConnectOptions, DisconnectReason, Event, FabricError, ListenOptions, Operation, PKey,
    PostError, QpOptions,
};

use super::Setting;
use super::pair::{Link, PATIENCE, Pair, Patience, about, connect_options};
use crate::case::suite;
use crate::node::{DATA, Node, receive_id, signaled, unsignaled};

suite! {
    private_data_both_ways: "REQ and REP carry the consumer's private data, to the last byte",
    reject_carries_private_data: "a refused host gets the REJ's private data, then Closed",
    dropped_request_rejects: "dropping a request refuses the host",
    no_listener_refuses: "connecting where nothing listens ends in Rejected or ConnectFailed",
    dropped_listener_refuses: "a dropped listener refuses newcomers and spares its connections",
    taken_address_is_refused: "a second listener on an address is refused: it is in use",
    other_partitions_are_refused: "a listener accepts the members of its partition alone",
    read_depths_are_exchanged: "the target learns how many READs the host sends and answers",
    host_disconnects: "the host disconnects: the target gets the event, both close",
    target_disconnects: "the target disconnects: the host gets the event, both close",
    both_disconnect: "both disconnect at once: both close",
    disconnect_twice_is_harmless: "disconnecting a closing or closed queue pair does nothing",
    silent_work_holds_up_no_other: "unsignaled work that has succeeded does not hold up its queue pair's end",
    host_gives_up_early: "a host that leaves before it is accepted leaves nothing behind",
    host_vanishes: "a host that drops its endpoint is noticed by the target",
    closed_queue_pair_refuses_work: "posting on a closed queue pair is Broken",
    ids_are_not_reused: "a slot's next queue pair has another id, and the old id stays dead",
    slots_wait_for_closed: "a slot is not another queue pair's before its owner got Closed",
    many_queue_pairs: "32 connections of one endpoint keep their messages apart",
    full_endpoint_refuses_then_recovers: "a full endpoint refuses the peer, and serves again after a Closed",
    accept_on_another_thread: "a request can be accepted by an endpoint on another thread",
    acceptor_leaves_at_once: "an acceptor that leaves at once refuses or disconnects, never both",
}

/// Maximum private data of a REQ in bytes: 92 minus the RDMA-CM header (IBTA A11.6).
const REQ_DATA: usize = 56;
/// Maximum private data of a REP in bytes (IBTA 12.6.8).
const REP_DATA: usize = 196;
/// Maximum private data of a REJ in bytes (IBTA 12.6.7).
const REJ_DATA: usize = 148;
/// REJ reason "consumer reject" (IBTA 12.6.7.2).
const REJ_CONSUMER: u16 = 28;

fn private_data_both_ways(setting: &Setting) -> Result<()> {
    for lengths in [(32, 32), (REQ_DATA, REP_DATA)] {
        let mut pair = Pair::open(setting)?;
        let (asked, answered) = (pattern(lengths.0, 3), pattern(lengths.1, 5));
        let host = pair.begin_connect(&QpOptions::default(), &asked)?;
        let request = pair.request()?;
        ensure!(
            request.private_data.as_slice().starts_with(&asked),
            "the REQ's private data arrived as {:?}",
            request.private_data
        );
        ensure!(
            request.local == pair.door.address(),
            "the request's local address is {}",
            request.local
        );
        let accepted = pair
            .target
            .endpoint
            .accept(request, &QpOptions::default(), &answered)?;
        let link = Link {
            host,
            target: accepted,
        };
        let got = pair.established(link)?;
        ensure!(
            got.as_slice().starts_with(&answered),
            "the REP's private data arrived as {got:?}"
        );
        pair.close(link)?;
    }
    Ok(())
}

fn reject_carries_private_data(setting: &Setting) -> Result<()> {
    let mut pair = Pair::open(setting)?;
    for length in [0, 4, REJ_DATA] {
        let why = pattern(length, 7);
        let host = pair.begin_connect(&QpOptions::default(), &[])?;
        pair.request()?.reject(&why);
        let event = pair.host_event(host)?;
        let Event::Rejected {
            private_data,
            reason,
            ..
        } = event
        else {
            bail!("expected Rejected, got {event:?}");
        };
        ensure!(reason == REJ_CONSUMER, "the reason is {reason}, not 28");
        ensure!(
            private_data.as_slice().starts_with(&why),
            "the REJ's private data arrived as {private_data:?}"
        );
        closes_by_itself(&mut pair, host)?;
    }
    Ok(())
}

fn dropped_request_rejects(setting: &Setting) -> Result<()> {
    let mut pair = Pair::open(setting)?;
    let host = pair.begin_connect(&QpOptions::default(), &[])?;
    drop(pair.request()?);
    let event = pair.host_event(host)?;
    ensure!(
        matches!(event, Event::Rejected { .. }),
        "expected Rejected, got {event:?}"
    );
    closes_by_itself(&mut pair, host)
}

fn no_listener_refuses(setting: &Setting) -> Result<()> {
    let mut pair = Pair::open(setting)?;
    let empty = {
        let other = super::pair::Door::open(setting)?;
        other.address()
    };
    let options = connect_options(empty, &QpOptions::default());
    let host = pair.host.endpoint.connect(&options, &[])?;
    refused(&mut pair, host)
}

fn dropped_listener_refuses(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    let other = super::pair::Door::open(setting)?;
    let address = pair.door.address();
    drop(std::mem::replace(&mut pair.door, other));

    let options = connect_options(address, &QpOptions::default());
    let late = pair.host.endpoint.connect(&options, &[])?;
    refused(&mut pair, late)?;

    pair.target.post_receives(0..1)?;
    pair.check_works(link)?;
    pair.close(link)
}

fn taken_address_is_refused(setting: &Setting) -> Result<()> {
    let pair = Pair::open(setting)?;
    let options = ListenOptions {
        address: pair.door.address(),
        backlog: 1,
        pkey: PKey::DEFAULT,
        roce: None,
    };
    match setting.provider.listen(&options, Box::new(|_| ())) {
        Err(FabricError::AddressInUse { address }) => {
            ensure!(address == options.address, "it names {address}");
            Ok(())
        }
        other => bail!("expected AddressInUse, got {other:?}"),
    }
}

fn other_partitions_are_refused(setting: &Setting) -> Result<()> {
    let pkey = |bits| PKey::new(bits).context("no partition");
    let mut pair = Pair::open(setting)?;
    match super::pair::Door::open_in(setting, pkey(0x8001)?) {
        Ok(door) => pair.door = door,
        Err(error) => match error.downcast()? {
            FabricError::NoPartition { pkey, .. } => {
                ensure!(pkey.bits() == 0x8001, "it names {pkey}");
                return Ok(());
            }
            other => return Err(other.into()),
        },
    }
    for other in [0xffff, 0x8002, 0x7fff] {
        let options = ConnectOptions {
            pkey: pkey(other)?,
            ..connect_options(pair.door.address(), &QpOptions::default())
        };
        let host = pair.host.endpoint.connect(&options, &[])?;
        refused(&mut pair, host)?;
    }
    for member in [0x8001, 0x0001] {
        let options = ConnectOptions {
            pkey: pkey(member)?,
            ..connect_options(pair.door.address(), &QpOptions::default())
        };
        let host = pair.host.endpoint.connect(&options, &[])?;
        let request = pair.request()?;
        let target = pair
            .target
            .endpoint
            .accept(request, &QpOptions::default(), &[])?;
        let link = Link { host, target };
        pair.established(link)?;
        pair.target.post_receives(0..1)?;
        pair.check_works(link)?;
        pair.close(link)?;
    }
    Ok(())
}

fn read_depths_are_exchanged(setting: &Setting) -> Result<()> {
    let mut pair = Pair::open(setting)?;
    let limits = pair.host.endpoint.limits();
    for (initiator_depth, responder_resources) in [(4, 8), (0, 3), (2, 0)] {
        let options = QpOptions {
            initiator_depth,
            responder_resources,
            ..QpOptions::default()
        };
        let host = pair.begin_connect(&options, &[])?;
        let request = pair.request()?;
        let sends = initiator_depth.min(limits.initiator_depth);
        let answers = responder_resources.min(limits.responder_resources);
        ensure!(
            request.peer_initiator_depth == sends,
            "the target learns that the host sends {} READs, not {sends}",
            request.peer_initiator_depth
        );
        ensure!(
            request.peer_responder_resources == answers,
            "the target learns that the host answers {} READs, not {answers}",
            request.peer_responder_resources
        );
        request.reject(&[]);
        refused(&mut pair, host)?;
    }
    Ok(())
}

fn host_disconnects(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    pair.host.endpoint.disconnect(link.host);
    let reason = pair.target_disconnected(link.target)?;
    ensure!(reason == DisconnectReason::Peer, "the reason is {reason:?}");
    pair.close_target(link.target)?;
    pair.close_host(link.host)
}

fn target_disconnects(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    pair.target.endpoint.disconnect(link.target);
    let reason = pair.host_disconnected(link.host)?;
    ensure!(reason == DisconnectReason::Peer, "the reason is {reason:?}");
    pair.close_host(link.host)?;
    pair.close_target(link.target)
}

fn both_disconnect(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    pair.host.endpoint.disconnect(link.host);
    pair.target.endpoint.disconnect(link.target);
    pair.close_host(link.host)?;
    pair.close_target(link.target)
}

fn disconnect_twice_is_harmless(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    pair.host.endpoint.disconnect(link.host);
    pair.host.endpoint.disconnect(link.host);
    pair.close_host(link.host)?;
    pair.host.endpoint.disconnect(link.host);
    pair.target_disconnected(link.target)?;
    pair.close_target(link.target)?;
    pair.settle()?;

    let next = pair.link(&QpOptions::default())?;
    pair.host.endpoint.disconnect(link.host);
    pair.target.post_receives(0..1)?;
    pair.check_works(next)?;
    pair.close(next)
}

fn silent_work_holds_up_no_other(setting: &Setting) -> Result<()> {
    const DEADLINE: Duration = Duration::from_secs(1);
    let mut pair = Pair::open(setting)?;
    let mut quickest = Duration::MAX;
    for round in 0..5 {
        let link = pair.link(&QpOptions::default())?;
        pair.target.post_receives(round..round + 1)?;
        let work = unsignaled(1, Operation::Send, pair.host.sge(DATA, 64).into());
        pair.host.endpoint.post(link.host, &[work])?;
        pair.target_receive()?;
        let begun = Instant::now();
        pair.close_host(link.host)?;
        quickest = quickest.min(begun.elapsed());
        pair.target_disconnected(link.target)?;
        pair.close_target(link.target)?;
    }
    ensure!(
        quickest < DEADLINE,
        "the quickest of five took {quickest:?}: a deadline ended them, not the device"
    );
    Ok(())
}

fn host_gives_up_early(setting: &Setting) -> Result<()> {
    let mut pair = Pair::open(setting)?;
    let host = pair.begin_connect(&QpOptions::default(), &[])?;
    let request = pair.request()?;
    pair.close_host(host)?;

    if let Ok(target) = pair
        .target
        .endpoint
        .accept(request, &QpOptions::default(), &[])
    {
        pair.wait("the end of a half-open connection", |pair| {
            pair.target.take_event(|event| {
                about(target)(event) && !matches!(event, Event::Established { .. })
            })
        })?;
        pair.close_target(target)?;
    }
    let link = pair.link(&QpOptions::default())?;
    pair.close(link)
}

fn host_vanishes(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    let device = Arc::clone(pair.host.endpoint.device());
    pair.host = Node::open(&device)?;
    pair.target_disconnected(link.target)?;
    pair.close_target(link.target)?;

    let link = pair.link(&QpOptions::default())?;
    pair.close(link)
}

fn closed_queue_pair_refuses_work(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    pair.close(link)?;
    let work = signaled(1, Operation::Send, pair.host.sge(DATA, 64).into());
    let result = pair.host.endpoint.post(link.host, &[work]);
    ensure!(
        result == Err(PostError::Broken),
        "the host's post gave {result:?}"
    );
    let work = signaled(1, Operation::Send, pair.target.sge(DATA, 64).into());
    let result = pair.target.endpoint.post(link.target, &[work]);
    ensure!(
        result == Err(PostError::Broken),
        "the target's post gave {result:?}"
    );
    pair.settle()?;
    ensure!(
        pair.host.waiting_completions() + pair.target.waiting_completions() == 0,
        "refused work completed"
    );
    Ok(())
}

fn ids_are_not_reused(setting: &Setting) -> Result<()> {
    let mut pair = Pair::open(setting)?;
    let mut seen = HashSet::new();
    let mut dead = None;
    for round in 0..16 {
        let link = pair.link(&QpOptions::default())?;
        ensure!(
            seen.insert(("host", link.host)),
            "round {round} reuses {:?}",
            link.host
        );
        ensure!(
            seen.insert(("target", link.target)),
            "round {round} reuses {:?}",
            link.target
        );
        if let Some(old) = dead {
            let work = signaled(1, Operation::Send, pair.host.sge(DATA, 8).into());
            let result = pair.host.endpoint.post(old, &[work]);
            ensure!(
                result == Err(PostError::Broken),
                "an old id's post gave {result:?}"
            );
        }
        pair.close(link)?;
        dead = Some(link.host);
    }
    Ok(())
}

fn slots_wait_for_closed(setting: &Setting) -> Result<()> {
    let (mut pair, old) = Pair::connected(setting)?;
    let mut host = Node::open(&Arc::clone(pair.host.endpoint.device()))?;
    std::mem::swap(&mut host, &mut pair.host);
    host.endpoint.disconnect(old.host);
    pair.target_disconnected(old.target)?;
    pair.close_target(old.target)?;
    pair.settle()?;
    let mut completions = [cairn_rdma::Completion::EMPTY; 4];
    host.endpoint.poll(&mut completions);
    let options = connect_options(pair.door.address(), &QpOptions::default());
    let new = host.endpoint.connect(&options, &[])?;
    ensure!(
        new.slot() != old.host.slot(),
        "{new:?} has the slot of {:?}, whose Closed was not taken",
        old.host
    );
    pair.host = host;
    pair.request()?.reject(&[]);
    refused(&mut pair, new)
}

fn many_queue_pairs(setting: &Setting) -> Result<()> {
    const COUNT: u32 = 32;
    let mut pair = Pair::open(setting)?;
    pair.target.post_receives(0..COUNT)?;
    let options = QpOptions {
        receives: 1,
        ..QpOptions::default()
    };
    let mut links = Vec::new();
    for _ in 0..COUNT {
        links.push(pair.link(&options)?);
    }
    for (index, link) in links.iter().enumerate() {
        let offset = DATA + index * 64;
        pair.host.fill(offset, &[index as u8; 64]);
        pair.host
            .post_one(link.host, index as u64, Operation::Send, offset, 64)?;
    }
    let mut got = HashSet::new();
    for _ in 0..COUNT {
        let landed = pair.target_receive()?;
        let bytes = pair.target.received(&landed);
        let index = usize::from(bytes[0]);
        ensure!(bytes == [index as u8; 64], "messages are mixed up");
        ensure!(
            links
                .get(index)
                .is_some_and(|link| link.target == landed.qp),
            "connection {index}'s message came as {:?}'s",
            landed.qp
        );
        ensure!(got.insert(index), "connection {index} was reported twice");
    }
    for (index, link) in links.iter().enumerate() {
        let sent = pair.host_completion(index as u64)?;
        ensure!(
            sent.qp == link.host,
            "a send completed on another queue pair"
        );
    }
    for link in links {
        pair.close(link)?;
    }
    Ok(())
}

fn full_endpoint_refuses_then_recovers(setting: &Setting) -> Result<()> {
    let mut pair = Pair::open(setting)?;
    let device = Arc::clone(pair.target.endpoint.device());
    pair.target = Node::open_with(&device, 2)?;
    let first = pair.link(&QpOptions::default())?;
    let second = pair.link(&QpOptions::default())?;

    let host = pair.begin_connect(&QpOptions::default(), &[])?;
    let request = pair.request()?;
    match pair
        .target
        .endpoint
        .accept(request, &QpOptions::default(), &[])
    {
        Err(FabricError::Limit { limit, .. }) => ensure!(limit == 2, "it says {limit}"),
        other => bail!("expected a Limit of 2, got {other:?}"),
    }
    refused(&mut pair, host)?;

    pair.close(first)?;
    let third = pair.link(&QpOptions::default())?;
    pair.close(second)?;
    pair.close(third)
}

fn accept_on_another_thread(setting: &Setting) -> Result<()> {
    let mut pair = Pair::open(setting)?;
    let host = pair.begin_connect(&QpOptions::default(), &[])?;
    let request = pair.request()?;
    let device = Arc::clone(&request.device);
    let elsewhere = thread::spawn(move || -> Result<Vec<u8>> {
        let mut node = Node::open(&device)?;
        node.post_receives(0..1)?;
        let qp = node.endpoint.accept(request, &QpOptions::default(), &[])?;
        let mut patience = Patience::new(PATIENCE);
        let message = loop {
            let progress = node.pump()?;
            if let Some(landed) = node.take_completion(receive_id(0)) {
                break node.received(&landed);
            }
            ensure!(patience.step(progress), "no message came");
        };
        node.endpoint.disconnect(qp);
        while !node.is_closed(qp) {
            ensure!(patience.step(node.pump()?), "no Closed came");
        }
        Ok(message)
    });
    let event = pair.host_event(host)?;
    ensure!(matches!(event, Event::Established { .. }), "got {event:?}");
    pair.host.fill(DATA, b"over there");
    pair.host.post_one(host, 1, Operation::Send, DATA, 10)?;
    pair.host_disconnected(host)?;
    pair.close_host(host)?;
    let message = elsewhere
        .join()
        .map_err(|_| anyhow::anyhow!("the accepting thread panicked"))?
        .context("on the accepting thread")?;
    ensure!(message == b"over there", "the message arrived mangled");
    Ok(())
}

fn acceptor_leaves_at_once(setting: &Setting) -> Result<()> {
    let mut pair = Pair::open(setting)?;
    let link = pair.link(&QpOptions::default())?;
    pair.close(link)?;
    for _ in 0..8 {
        let host = pair.begin_connect(&QpOptions::default(), &[])?;
        let request = pair.request()?;
        let target = &mut pair.target.endpoint;
        let accepted = target.accept(request, &QpOptions::default(), &[])?;
        target.disconnect(accepted);
        let event = pair.host_event(host)?;
        if matches!(event, Event::Established { .. }) {
            pair.host_disconnected(host)?;
            pair.close_host(host)?;
        } else {
            ensure!(
                matches!(event, Event::Rejected { .. } | Event::ConnectFailed { .. }),
                "expected a refusal, got {event:?}"
            );
            closes_by_itself(&mut pair, host)?;
        }
        pair.wait("Closed at the target", |pair| {
            pair.target.is_closed(accepted).then_some(())
        })?;
    }
    Ok(())
}

fn refused(pair: &mut Pair, host: cairn_rdma::QpId) -> Result<()> {
    let event = pair.host_event(host)?;
    ensure!(
        matches!(event, Event::Rejected { .. } | Event::ConnectFailed { .. }),
        "expected a refusal, got {event:?}"
    );
    closes_by_itself(pair, host)
}

fn closes_by_itself(pair: &mut Pair, host: cairn_rdma::QpId) -> Result<()> {
    let event = pair.host_event(host)?;
    ensure!(
        matches!(event, Event::Closed { .. }),
        "expected Closed, got {event:?}"
    );
    Ok(())
}

fn pattern(length: usize, step: u8) -> Vec<u8> {
    (0..length)
        .map(|index| (index as u8).wrapping_mul(step) | 1)
        .collect()
}
