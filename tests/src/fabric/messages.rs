//! Delivery of SENDs to receives, complete and in order.

use anyhow::{Result, ensure};
use cairn_rdma::{
    CompletionKind, Operation, PostError, QpOptions, RecvWork, SendWork, SgeList, WorkStatus,
};

use super::Setting;
use super::pair::{Link, Pair};
use crate::case::suite;
use crate::node::{DATA, RECEIVES, SLOT, receive_id, signaled, unsignaled};
use cairn_sim::Random;

suite! {
    send_sizes: "messages of 0 to 8192 bytes arrive whole, both ways",
    two_stretches: "a message is gathered from two stretches and scattered to two",
    messages_keep_their_order: "1000 messages arrive in the order of their posting",
    full_depth: "as many sends as the queue holds, in one chain, all complete in order",
    unsignaled_sends: "unsignaled work succeeds in silence and frees its place",
    full_send_queue: "a chain that does not fit is refused whole",
    full_receive_queue: "receives beyond the queue's size are refused",
    receive_shortage: "a message without a receive waits, and lands once there is one",
    rnr_retries_run_out: "where the RNR budget is finite, the sender learns that there is no receive",
}

fn send_sizes(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    let mut random = Random::new(1);
    for (round, length) in [0, 1, 16, 64, 1023, 1024, 1025, 4096, 4160, 8192]
        .into_iter()
        .enumerate()
    {
        let id = round as u64;
        let bytes = random.bytes(length);

        pair.target.post_receives(0..1)?;
        pair.host.fill(DATA, &bytes);
        pair.host
            .post_one(link.host, id, Operation::Send, DATA, length)?;
        let landed = pair.target_completion(receive_id(0))?;
        ensure!(landed.kind == CompletionKind::Recv, "it is {landed:?}");
        ensure!(
            landed.status.is_success() && landed.qp == link.target,
            "{landed:?}"
        );
        ensure!(landed.invalidated_rkey.is_none(), "nothing was invalidated");
        ensure!(
            pair.target.received(&landed) == bytes,
            "{length} bytes arrived mangled"
        );
        let sent = pair.host_completion(id)?;
        ensure!(
            sent.kind == CompletionKind::Send && sent.status.is_success(),
            "{sent:?}"
        );

        pair.host.post_receives(0..1)?;
        pair.target.fill(DATA, &bytes);
        pair.target
            .post_one(link.target, id, Operation::Send, DATA, length)?;
        let landed = pair.host_completion(receive_id(0))?;
        ensure!(
            landed.status.is_success() && landed.qp == link.host,
            "{landed:?}"
        );
        ensure!(
            pair.host.received(&landed) == bytes,
            "{length} bytes came back mangled"
        );
        pair.target_completion(id)?;
    }
    pair.close(link)
}

fn two_stretches(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    let bytes = Random::new(2).bytes(64 + 4096);
    for (front, back, seam) in [(64, 4096, 64), (64, 4096, 1000), (4096, 64, 16)] {
        pair.target.fill(DATA, &[0; 16 * 1024]);
        let sges = SgeList::two(
            pair.target.sge(DATA + 8192, seam),
            pair.target.sge(DATA, 8192),
        );
        pair.target.endpoint.post_receives(&[RecvWork {
            id: receive_id(0),
            sges,
        }])?;
        pair.host.fill(DATA + 100, &bytes[..front]);
        pair.host.fill(DATA + 20_000, &bytes[front..]);
        let sges = SgeList::two(
            pair.host.sge(DATA + 100, front),
            pair.host.sge(DATA + 20_000, back),
        );
        pair.host
            .endpoint
            .post(link.host, &[signaled(1, Operation::Send, sges)])?;
        let landed = pair.target_completion(receive_id(0))?;
        ensure!(landed.byte_len as usize == bytes.len(), "{landed:?}");
        let mut arrived = pair.target.bytes(DATA + 8192, seam);
        arrived.extend(pair.target.bytes(DATA, bytes.len() - seam));
        ensure!(
            arrived == bytes,
            "cut at {front} and {seam}, it arrived mangled"
        );
        pair.host_completion(1)?;
    }
    pair.close(link)
}

fn messages_keep_their_order(setting: &Setting) -> Result<()> {
    const COUNT: u32 = 1000;
    const WINDOW: u32 = 32;
    let (mut pair, link) = Pair::connected(setting)?;
    pair.target.post_receives(0..WINDOW)?;
    let mut posted = 0;
    for expected in 0..COUNT {
        while posted < COUNT && posted < expected + WINDOW {
            let offset = DATA + (posted % WINDOW) as usize * 64;
            pair.host.fill(offset, &posted.to_le_bytes());
            pair.host
                .post_one(link.host, posted.into(), Operation::Send, offset, 4)?;
            posted += 1;
        }
        let landed = pair.target_receive()?;
        let bytes = pair.target.received(&landed);
        ensure!(
            bytes == expected.to_le_bytes(),
            "message {expected} arrived as {bytes:?}"
        );
        let slot = (landed.id & 0xffff) as u32;
        pair.target.post_receives(slot..slot + 1)?;
        pair.host_completion(expected.into())?;
    }
    pair.close(link)
}

fn full_depth(setting: &Setting) -> Result<()> {
    let options = QpOptions {
        send_work: 128,
        receives: 128,
        ..QpOptions::default()
    };
    let (mut pair, link) = Pair::connected_with(setting, &options)?;
    pair.target.post_receives(0..options.send_work)?;
    let chain: Vec<_> = (0..options.send_work)
        .map(|index| numbered_send(&pair, index, true))
        .collect();
    pair.host.endpoint.post(link.host, &chain)?;
    for index in 0..options.send_work {
        let landed = pair.target_receive()?;
        let bytes = pair.target.received(&landed);
        ensure!(
            bytes == index.to_le_bytes(),
            "message {index} arrived as {bytes:?}"
        );
    }
    for index in 0..u64::from(options.send_work) {
        let sent = pair.wait("a completed send", |pair| pair.host.take_any())?;
        ensure!(
            sent.id == index && sent.status.is_success(),
            "{sent:?} came for {index}"
        );
    }
    pair.close(link)
}

fn unsignaled_sends(setting: &Setting) -> Result<()> {
    let options = QpOptions {
        send_work: 16,
        ..QpOptions::default()
    };
    let (mut pair, link) = Pair::connected_with(setting, &options)?;
    // The test posts more unsignaled work requests than the queue holds, so completed requests must
    // free their entries.
    for round in 0..10 {
        pair.target.post_receives(0..16)?;
        let chain: Vec<_> = (0..16)
            .map(|index| numbered_send(&pair, index, index == 15))
            .collect();
        pair.host.endpoint.post(link.host, &chain)?;
        for index in 0..16_u32 {
            let landed = pair.target_receive()?;
            let bytes = pair.target.received(&landed);
            ensure!(
                bytes == index.to_le_bytes(),
                "round {round}: {index} is {bytes:?}"
            );
        }
        pair.host_completion(15)?;
    }
    pair.settle()?;
    ensure!(
        pair.host.waiting_completions() == 0,
        "unsignaled work was reported"
    );
    pair.close(link)
}

fn full_send_queue(setting: &Setting) -> Result<()> {
    let options = QpOptions {
        send_work: 8,
        rnr_retry_count: 7,
        ..QpOptions::default()
    };
    let (mut pair, link) = Pair::connected_with(setting, &options)?;
    let chain: Vec<_> = (0..5)
        .map(|index| numbered_send(&pair, index, true))
        .collect();
    pair.host.endpoint.post(link.host, &chain)?;
    let more: Vec<_> = (5..9)
        .map(|index| numbered_send(&pair, index, true))
        .collect();
    let result = pair.host.endpoint.post(link.host, &more);
    ensure!(
        result == Err(PostError::Full),
        "four more than 8 - 5 gave {result:?}"
    );
    pair.host.endpoint.post(link.host, &more[..3])?;

    pair.target.post_receives(0..16)?;
    for index in 0..8_u32 {
        let sent = pair.host_completion(index.into())?;
        ensure!(sent.status.is_success(), "{sent:?}");
        let landed = pair.target_receive()?;
        let bytes = pair.target.received(&landed);
        ensure!(bytes == index.to_le_bytes(), "{index} arrived as {bytes:?}");
    }
    pair.settle()?;
    ensure!(
        pair.host.take_completion(8).is_none() && pair.target.take_receive().is_none(),
        "part of the refused chain was carried out"
    );
    pair.close(link)
}

fn full_receive_queue(setting: &Setting) -> Result<()> {
    let mut pair = Pair::open(setting)?;
    pair.target.post_receives(0..RECEIVES)?;
    let one_more = RecvWork {
        id: 1,
        sges: pair.target.sge(DATA, SLOT).into(),
    };
    let result = pair.target.endpoint.post_receives(&[one_more]);
    ensure!(result == Err(PostError::Full), "one more gave {result:?}");

    let link = pair.link(&QpOptions::default())?;
    for _ in 0..3 {
        pair.check_works(link)?;
    }
    pair.target.post_receives(0..3)?;
    pair.close(link)
}

fn receive_shortage(setting: &Setting) -> Result<()> {
    let options = QpOptions {
        rnr_retry_count: 7,
        ..QpOptions::default()
    };
    let (mut pair, link) = Pair::connected_with(setting, &options)?;
    for index in 0..4 {
        let send = numbered_send(&pair, index, true);
        pair.host.endpoint.post(link.host, &[send])?;
    }
    pair.settle()?;
    ensure!(
        pair.host.waiting_completions() + pair.target.waiting_completions() == 0,
        "a message completed though no receive could take it"
    );
    for index in 0..4_u32 {
        pair.target.post_receives(index..index + 1)?;
        let landed = pair.target_receive()?;
        let bytes = pair.target.received(&landed);
        ensure!(bytes == index.to_le_bytes(), "{index} arrived as {bytes:?}");
        let sent = pair.host_completion(index.into())?;
        ensure!(sent.status.is_success(), "{sent:?}");
    }
    pair.close(link)
}

fn rnr_retries_run_out(setting: &Setting) -> Result<()> {
    let options = QpOptions {
        rnr_retry_count: 1,
        ..QpOptions::default()
    };
    let (mut pair, link) = Pair::connected_with(setting, &options)?;
    let send = numbered_send(&pair, 0, false);
    pair.host.endpoint.post(link.host, &[send])?;
    let sent = pair.host_completion(0)?;
    ensure!(sent.status == WorkStatus::RnrRetryExceeded, "{sent:?}");
    close_broken(&mut pair, link)
}

fn close_broken(pair: &mut Pair, link: Link) -> Result<()> {
    pair.close_host(link.host)?;
    pair.target_disconnected(link.target)?;
    pair.close_target(link.target)
}

fn numbered_send(pair: &Pair, index: u32, is_signaled: bool) -> SendWork {
    let offset = DATA + index as usize * 64;
    pair.host.fill(offset, &index.to_le_bytes());
    let sges = pair.host.sge(offset, 4).into();
    if is_signaled {
        signaled(index.into(), Operation::Send, sges)
    } else {
        unsignaled(index.into(), Operation::Send, sges)
    }
}
