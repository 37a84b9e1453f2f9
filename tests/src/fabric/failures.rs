use std::sync::Arc;

use anyhow::{Result, ensure};
use cairn_base::Mapping;
use cairn_rdma::{
    Access, Operation, PostError, QpOptions, RecvWork, Region, RemoteBuffer, SendWork, Sge,
    WorkStatus,
};

use super::Setting;
use super::pair::{Link, Pair};
use crate::case::suite;
use crate::node::{DATA, receive_id, signaled, unsignaled};

suite! {
    wrong_rkey: "a key that was never given out is refused, and both ends break",
    out_of_range: "one byte past a region is refused, and both ends break",
    missing_right: "WRITE needs the WRITE right and READ the READ right",
    dropped_region: "a dropped region's key is refused",
    foreign_lkey: "local bytes outside their region fail locally",
    long_message: "a message longer than its receive is an error at both ends",
    work_behind_a_failure_is_flushed: "what was posted behind a failing work completes as Flushed, in order",
    failure_spares_the_others: "a broken connection does not disturb its endpoint's others",
    host_leaves_with_work_outstanding: "disconnecting flushes every outstanding work, then Closed",
    peer_leaves_with_work_outstanding: "a peer's disconnect flushes every outstanding work, then Closed",
    receives_outlive_connections: "receives of the shared queue serve the next connection",
}

fn wrong_rkey(setting: &Setting) -> Result<()> {
    for read in [false, true] {
        let (mut pair, link) = Pair::connected(setting)?;
        let mut there = pair.target.remote(DATA);
        there.rkey ^= 0x5a5a_5a00;
        access_is_refused(&mut pair, link, there, 64, read)?;
    }
    Ok(())
}

fn out_of_range(setting: &Setting) -> Result<()> {
    for read in [false, true] {
        let (mut pair, link) = Pair::connected(setting)?;
        let end = pair.target.region.mapping().len();
        let there = pair.target.remote(end - 63);
        access_is_refused(&mut pair, link, there, 64, read)?;

        let (mut pair, link) = Pair::connected(setting)?;
        let mut there = pair.target.remote(0);
        there.addr -= 1;
        access_is_refused(&mut pair, link, there, 64, read)?;

        let (mut pair, link) = Pair::connected(setting)?;
        there.addr = u64::MAX - 31;
        access_is_refused(&mut pair, link, there, 64, read)?;
    }
    Ok(())
}

fn missing_right(setting: &Setting) -> Result<()> {
    for (access, read) in [
        (Access::LOCAL_WRITE, false),
        (Access::LOCAL_WRITE, true),
        (Access::LOCAL_WRITE | Access::REMOTE_READ, false),
        (Access::REMOTE_WRITE, true),
    ] {
        let (mut pair, link) = Pair::connected(setting)?;
        let region = extra_region(&pair, access)?;
        let there = whole(&region);
        access_is_refused(&mut pair, link, there, 64, read)?;
    }
    Ok(())
}

fn dropped_region(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    let region = extra_region(&pair, Access::REMOTE_READ | Access::REMOTE_WRITE)?;
    let there = whole(&region);
    let mapping = Arc::clone(region.mapping());
    pair.host
        .post_one(link.host, 1, Operation::Write(there), DATA, 64)?;
    let done = pair.host_completion(1)?;
    ensure!(done.status.is_success(), "while registered: {done:?}");
    drop(region);
    access_is_refused(&mut pair, link, there, 64, false)?;
    drop(mapping);
    Ok(())
}

fn foreign_lkey(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    pair.target.post_receives(0..1)?;
    let end = pair.host.region.mapping().len();
    let past_the_end = Sge {
        length: 64,
        ..pair.host.sge(end - 32, 32)
    };
    let send = signaled(1, Operation::Send, past_the_end.into());
    pair.host.endpoint.post(link.host, &[send])?;
    let done = pair.host_completion(1)?;
    ensure!(
        matches!(
            done.status,
            WorkStatus::LocalProtection | WorkStatus::LocalQpOperation | WorkStatus::Flushed
        ),
        "{done:?}"
    );
    both_are_broken(&mut pair, link)
}

fn long_message(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    let short = RecvWork {
        id: receive_id(0),
        sges: pair.target.sge(0, 63).into(),
    };
    pair.target.endpoint.post_receives(&[short])?;
    pair.target.fill(0, &[0; 128]);
    pair.host.fill(DATA, &[0xff; 64]);
    pair.host
        .post_one(link.host, 1, Operation::Send, DATA, 64)?;
    let sent = pair.host_completion(1)?;
    ensure!(
        matches!(
            sent.status,
            WorkStatus::RemoteInvalidRequest | WorkStatus::RemoteOperation
        ),
        "the sender sees {sent:?}"
    );
    both_are_broken(&mut pair, link)?;
    if let Some(landed) = pair.target.take_receive() {
        ensure!(!landed.status.is_success(), "the receiver sees {landed:?}");
    }
    ensure!(
        pair.target.bytes(63, 65) == [0; 65],
        "a byte went past the receive"
    );
    Ok(())
}

fn work_behind_a_failure_is_flushed(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    pair.target.post_receives(0..8)?;
    let local = pair.host.sge(DATA, 64).into();
    let mut nowhere = pair.target.remote(DATA);
    nowhere.rkey ^= 0x5a5a_5a00;
    let chain = [
        signaled(1, Operation::Send, local),
        unsignaled(2, Operation::Write(nowhere), local),
        signaled(3, Operation::Send, local),
        unsignaled(4, Operation::Send, local),
    ];
    pair.host.endpoint.post(link.host, &chain)?;
    for (id, status) in [
        (1, WorkStatus::Success),
        (2, WorkStatus::RemoteAccess),
        (3, WorkStatus::Flushed),
        (4, WorkStatus::Flushed),
    ] {
        let done = pair.wait("the next completion", |pair| pair.host.take_any())?;
        ensure!(
            done.id == id && done.status == status,
            "{done:?} came, not {id} {status:?}"
        );
    }
    both_are_broken(&mut pair, link)?;
    let landed = pair.target.take_receive();
    ensure!(
        landed.is_some_and(|first| first.status.is_success())
            && pair
                .target
                .take_receive()
                .is_none_or(|c| !c.status.is_success()),
        "a message overtook a failed WRITE"
    );
    Ok(())
}

fn failure_spares_the_others(setting: &Setting) -> Result<()> {
    let (mut pair, bad) = Pair::connected(setting)?;
    let good = pair.link(&QpOptions::default())?;
    pair.target.post_receives(0..2)?;
    pair.check_works(good)?;
    let mut there = pair.target.remote(DATA);
    there.rkey ^= 0x5a5a_5a00;
    access_is_refused(&mut pair, bad, there, 64, false)?;
    pair.check_works(good)?;
    pair.close(good)
}

fn host_leaves_with_work_outstanding(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected_with(setting, &patient())?;
    post_stuck_work(&mut pair, link)?;
    pair.host.endpoint.disconnect(link.host);
    stuck_work_is_flushed(&mut pair)?;
    pair.target_disconnected(link.target)?;
    pair.close_target(link.target)?;
    pair.close_host(link.host)
}

fn peer_leaves_with_work_outstanding(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected_with(setting, &patient())?;
    post_stuck_work(&mut pair, link)?;
    pair.target.endpoint.disconnect(link.target);
    pair.host_disconnected(link.host)?;
    pair.host.endpoint.disconnect(link.host);
    stuck_work_is_flushed(&mut pair)?;
    pair.close_host(link.host)?;
    pair.close_target(link.target)
}

fn receives_outlive_connections(setting: &Setting) -> Result<()> {
    let mut pair = Pair::open(setting)?;
    pair.target.post_receives(0..4)?;
    for _ in 0..4 {
        let link = pair.link(&QpOptions::default())?;
        pair.check_works(link)?;
        pair.close(link)?;
    }
    ensure!(
        pair.target.waiting_completions() == 0,
        "a receive of the shared queue was flushed with a connection"
    );
    Ok(())
}

fn access_is_refused(
    pair: &mut Pair,
    link: Link,
    there: RemoteBuffer,
    length: usize,
    read: bool,
) -> Result<()> {
    let op = if read {
        Operation::Read(there)
    } else {
        Operation::Write(there)
    };
    pair.host.post_one(link.host, 77, op, DATA, length)?;
    let done = pair.host_completion(77)?;
    ensure!(
        done.status == WorkStatus::RemoteAccess,
        "{op:?} ended as {:?}",
        done.status
    );
    both_are_broken(pair, link)
}

fn both_are_broken(pair: &mut Pair, link: Link) -> Result<()> {
    pair.host_disconnected(link.host)?;
    let work = signaled(99, Operation::Send, pair.host.sge(DATA, 1).into());
    let result = pair.host.endpoint.post(link.host, &[work]);
    ensure!(
        result == Err(PostError::Broken),
        "a broken queue pair took work: {result:?}"
    );
    pair.close_host(link.host)?;
    pair.target_disconnected(link.target)?;
    pair.close_target(link.target)
}

fn post_stuck_work(pair: &mut Pair, link: Link) -> Result<()> {
    let chain: Vec<SendWork> = (0..STUCK)
        .map(|id| SendWork {
            signaled: id % 2 == 0,
            ..signaled(id, Operation::Send, pair.host.sge(DATA, 64).into())
        })
        .collect();
    pair.host.endpoint.post(link.host, &chain)?;
    pair.settle()
}

fn stuck_work_is_flushed(pair: &mut Pair) -> Result<()> {
    for id in 0..STUCK {
        let done = pair.wait("flushed work", |pair| pair.host.take_any())?;
        ensure!(
            done.id == id && !done.status.is_success(),
            "{done:?} came for {id}"
        );
    }
    Ok(())
}

const STUCK: u64 = 20;

fn patient() -> QpOptions {
    QpOptions {
        rnr_retry_count: 7,
        ..QpOptions::default()
    }
}

fn extra_region(pair: &Pair, access: Access) -> Result<Region> {
    let mapping = Arc::new(Mapping::anonymous(4096)?);
    Ok(pair.target.endpoint.device().register(mapping, access)?)
}

fn whole(region: &Region) -> RemoteBuffer {
    RemoteBuffer {
        addr: region.mapping().addr(),
        rkey: region.rkey().unwrap_or(region.lkey()),
    }
}
