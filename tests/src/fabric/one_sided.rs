use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use cairn_base::Mapping;
use cairn_rdma::{Access, CompletionKind, Operation, QpOptions, SgeList, WorkStatus};

use super::Setting;
use super::pair::Pair;
use crate::case::{Case, Outcome, suite};
use crate::node::{DATA, Node, signaled, unsignaled};
use cairn_sim::Random;

suite! {
    write_sizes: "WRITEs of 1 byte to 1 MiB land where they should and nowhere else",
    read_sizes: "READs of 1 byte to 1 MiB fetch what is there",
    two_stretches_one_sided: "WRITE gathers from two stretches, READ scatters to two",
    data_is_there_when_the_send_lands: "what chained WRITEs brought is readable when the SEND behind them lands",
    more_reads_than_depth: "64 READs at a depth of 4 all complete, in order",
    both_ways_at_once: "READs, WRITEs and SENDs of both ends at once stay apart",
}

pub(super) fn all_cases() -> Vec<Case<Setting>> {
    let mut all = cases();
    all.push(Case {
        name: "send_with_invalidate",
        about: "SEND with invalidate names the key and takes it out of use",
        run: send_with_invalidate,
    });
    all.push(Case {
        name: "invalidate_needs_a_right",
        about: "SEND with invalidate does nothing to memory to which peers have no right",
        run: invalidate_needs_a_right,
    });
    all.push(Case {
        name: "keys_are_of_one_domain",
        about: "a key of another protection domain is refused, for READ, WRITE and invalidation",
        run: keys_are_of_one_domain,
    });
    all
}

fn write_sizes(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    let mut random = Random::new(3);
    for length in [1, 511, 512, 4096, 4097, 131_072, 1 << 20] {
        let bytes = random.bytes(length);
        pair.target.fill(DATA, &vec![0; length + 128]);
        pair.host.fill(DATA, &bytes);
        let there = pair.target.remote(DATA + 64);
        pair.host
            .post_one(link.host, 1, Operation::Write(there), DATA, length)?;
        let done = pair.host_completion(1)?;
        ensure!(
            done.kind == CompletionKind::Write && done.status.is_success(),
            "{done:?}"
        );
        ensure!(
            pair.target.bytes(DATA + 64, length) == bytes,
            "{length} bytes are mangled"
        );
        ensure!(
            pair.target.bytes(DATA, 64) == [0; 64]
                && pair.target.bytes(DATA + 64 + length, 64) == [0; 64],
            "a WRITE of {length} bytes touched its neighbours"
        );
    }
    ensure!(
        pair.target.waiting_completions() == 0,
        "a WRITE was seen by the peer"
    );
    pair.close(link)
}

fn read_sizes(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    let mut random = Random::new(4);
    for length in [1, 511, 512, 1024, 4096, 4097, 131_072, 1 << 20] {
        let bytes = random.bytes(length);
        pair.target.fill(DATA + 8, &bytes);
        pair.host.fill(DATA, &vec![0; length + 8]);
        let there = pair.target.remote(DATA + 8);
        pair.host
            .post_one(link.host, 1, Operation::Read(there), DATA, length)?;
        let done = pair.host_completion(1)?;
        ensure!(
            done.kind == CompletionKind::Read && done.status.is_success(),
            "{done:?}"
        );
        ensure!(
            done.byte_len as usize == length,
            "it says {} bytes",
            done.byte_len
        );
        ensure!(
            pair.host.bytes(DATA, length) == bytes,
            "{length} bytes are mangled"
        );
        ensure!(
            pair.host.bytes(DATA + length, 8) == [0; 8],
            "a READ of {length} bytes touched its neighbours"
        );
    }
    pair.close(link)
}

fn two_stretches_one_sided(setting: &Setting) -> Result<()> {
    let (mut pair, link) = Pair::connected(setting)?;
    let bytes = Random::new(5).bytes(5000);
    pair.host.fill(DATA, &bytes[..1900]);
    pair.host.fill(DATA + 8192, &bytes[1900..]);
    let there = pair.target.remote(DATA + 3);
    let sges = SgeList::two(
        pair.host.sge(DATA, 1900),
        pair.host.sge(DATA + 8192, bytes.len() - 1900),
    );
    let write = signaled(1, Operation::Write(there), sges);
    pair.host.endpoint.post(link.host, &[write])?;
    let done = pair.host_completion(1)?;
    ensure!(done.status.is_success(), "{done:?}");
    ensure!(
        pair.target.bytes(DATA + 3, 5000) == bytes,
        "the WRITE arrived mangled"
    );

    let sges = SgeList::two(
        pair.host.sge(DATA + 65_536, 4096),
        pair.host.sge(DATA + 32_768, bytes.len() - 4096),
    );
    let read = signaled(2, Operation::Read(there), sges);
    pair.host.endpoint.post(link.host, &[read])?;
    let done = pair.host_completion(2)?;
    ensure!(done.status.is_success(), "{done:?}");
    let mut back = pair.host.bytes(DATA + 65_536, 4096);
    back.extend(pair.host.bytes(DATA + 32_768, bytes.len() - 4096));
    ensure!(back == bytes, "the READ arrived mangled");
    pair.close(link)
}

fn data_is_there_when_the_send_lands(setting: &Setting) -> Result<()> {
    const PIECE: usize = 32 * 1024;
    const PIECES: usize = 4;
    let (mut pair, link) = Pair::connected(setting)?;
    let mut random = Random::new(6);
    for round in 0..30 {
        let bytes = random.bytes(PIECE * PIECES);
        pair.host.post_receives(0..1)?;
        pair.target.fill(DATA, &bytes);
        let mut chain = Vec::new();
        for piece in 0..PIECES {
            let offset = DATA + piece * PIECE;
            let op = Operation::Write(pair.host.remote(offset));
            chain.push(unsignaled(1, op, pair.target.sge(offset, PIECE).into()));
        }
        let answer = pair.target.sge(DATA + 1_000_000, 16).into();
        chain.push(signaled(2, Operation::Send, answer));
        pair.target.endpoint.post(link.target, &chain)?;

        let landed = pair.host_completion(receive_id_0())?;
        ensure!(
            landed.status.is_success() && landed.byte_len == 16,
            "{landed:?}"
        );
        ensure!(
            pair.host.bytes(DATA, bytes.len()) == bytes,
            "round {round}: the SEND overtook a WRITE"
        );
        let sent = pair.target_completion(2)?;
        ensure!(sent.status.is_success(), "{sent:?}");
    }
    pair.close(link)
}

fn more_reads_than_depth(setting: &Setting) -> Result<()> {
    const LENGTH: usize = 8192;
    let options = QpOptions {
        send_work: 64,
        initiator_depth: 4,
        responder_resources: 4,
        ..QpOptions::default()
    };
    let (mut pair, link) = Pair::connected_with(setting, &options)?;
    let bytes = Random::new(7).bytes(64 * LENGTH);
    pair.target.fill(DATA, &bytes);
    pair.host.fill(DATA, &vec![0; bytes.len()]);
    let reads: Vec<_> = (0..64)
        .map(|index| {
            let offset = DATA + index * LENGTH;
            let op = Operation::Read(pair.target.remote(offset));
            signaled(index as u64, op, pair.host.sge(offset, LENGTH).into())
        })
        .collect();
    pair.host.endpoint.post(link.host, &reads)?;
    for index in 0..64 {
        let done = pair.wait("a READ", |pair| pair.host.take_any())?;
        ensure!(
            done.id == index && done.status.is_success(),
            "{done:?} came for {index}"
        );
    }
    ensure!(
        pair.host.bytes(DATA, bytes.len()) == bytes,
        "the bytes are mangled"
    );
    pair.close(link)
}

fn both_ways_at_once(setting: &Setting) -> Result<()> {
    const LENGTH: usize = 8192;
    const SOURCE: usize = DATA;
    const FETCHED: usize = DATA + 0x1_0000;
    const WRITTEN: usize = DATA + 0x2_0000;
    let (mut pair, link) = Pair::connected(setting)?;
    let (ours, theirs) = (Random::new(8).bytes(LENGTH), Random::new(9).bytes(LENGTH));
    pair.host.fill(SOURCE, &ours);
    pair.target.fill(SOURCE, &theirs);
    for round in 0..50 {
        for node in [&pair.host, &pair.target] {
            node.fill(FETCHED, &[0; LENGTH]);
            node.fill(WRITTEN, &[0; LENGTH]);
        }
        pair.host.post_receives(0..1)?;
        pair.target.post_receives(0..1)?;
        let to_target = (pair.target.remote(SOURCE), pair.target.remote(WRITTEN));
        let to_host = (pair.host.remote(SOURCE), pair.host.remote(WRITTEN));
        for (node, qp, (source, written)) in [
            (&mut pair.host, link.host, to_target),
            (&mut pair.target, link.target, to_host),
        ] {
            let chain = [
                unsignaled(1, Operation::Read(source), node.sge(FETCHED, LENGTH).into()),
                unsignaled(
                    2,
                    Operation::Write(written),
                    node.sge(SOURCE, LENGTH).into(),
                ),
                signaled(3, Operation::Send, node.sge(SOURCE, 64).into()),
            ];
            node.endpoint.post(qp, &chain)?;
        }
        for done in [pair.host_completion(3)?, pair.target_completion(3)?] {
            ensure!(done.status.is_success(), "round {round}: {done:?}");
        }
        let (at_host, at_target) = (pair.host_receive()?, pair.target_receive()?);
        ensure!(
            pair.host.received(&at_host) == theirs[..64],
            "a message is mangled"
        );
        ensure!(
            pair.target.received(&at_target) == ours[..64],
            "a message is mangled"
        );
        for (node, bytes) in [(&pair.host, &theirs), (&pair.target, &ours)] {
            ensure!(
                &node.bytes(FETCHED, LENGTH) == bytes,
                "round {round}: READ is mangled"
            );
            ensure!(
                &node.bytes(WRITTEN, LENGTH) == bytes,
                "round {round}: WRITE is mangled"
            );
        }
    }
    pair.close(link)
}

fn send_with_invalidate(setting: &Setting) -> Result<Outcome> {
    if setting.provider.name() == "verbs" {
        return Ok(Outcome::Skipped(
            "libibverbs registers no key that a peer may invalidate; \
             a Linux host's keys show it, in the VM's scenarios"
                .into(),
        ));
    }
    let (mut pair, link) = Pair::connected(setting)?;
    let limits = pair.target.endpoint.limits();
    ensure!(limits.send_with_invalidate, "{limits:?}");
    let mapping = Arc::new(Mapping::anonymous(4096)?);
    let device = Arc::clone(pair.host.endpoint.device());
    let region = device.register(mapping, Access::REMOTE_WRITE | Access::REMOTE_READ)?;
    let there = region.remote(0).context("a remote key")?;
    pair.host.post_receives(0..1)?;
    let bytes = pair.target.sge(DATA, 512);
    let chain = [
        unsignaled(1, Operation::Write(there), bytes.into()),
        signaled(
            2,
            Operation::SendWithInvalidate { rkey: there.rkey },
            bytes.into(),
        ),
    ];
    pair.target.endpoint.post(link.target, &chain)?;
    let landed = pair.host_receive()?;
    ensure!(
        landed.invalidated_rkey == Some(there.rkey),
        "the completion says {:?}, not {:#x}",
        landed.invalidated_rkey,
        there.rkey
    );
    let sent = pair.target_completion(2)?;
    ensure!(sent.status.is_success(), "{sent:?}");

    let again = signaled(3, Operation::Write(there), bytes.into());
    pair.target.endpoint.post(link.target, &[again])?;
    let refused = pair.target_completion(3)?;
    ensure!(
        refused.status == WorkStatus::RemoteAccess,
        "the invalidated key still works: {refused:?}"
    );
    Ok(Outcome::Passed)
}

fn invalidate_needs_a_right(setting: &Setting) -> Result<Outcome> {
    if setting.provider.name() == "verbs" {
        return Ok(Outcome::Skipped(
            "libibverbs registers no key that a peer may invalidate".into(),
        ));
    }
    let (mut pair, link) = Pair::connected(setting)?;
    let device = Arc::clone(pair.host.endpoint.device());
    let region = device.register(Arc::new(Mapping::anonymous(4096)?), Access::LOCAL_WRITE)?;
    ensure!(region.rkey().is_none(), "peers have a key to {region:?}");
    pair.host.post_receives(0..1)?;
    let rkey = region.lkey();
    let bytes = pair.target.sge(DATA, 512).into();
    let work = signaled(1, Operation::SendWithInvalidate { rkey }, bytes);
    pair.target.endpoint.post(link.target, &[work])?;
    let refused = pair.target_completion(1)?;
    ensure!(
        refused.status == WorkStatus::RemoteAccess,
        "a local key was invalidated: {refused:?}"
    );

    let link = pair.link(&QpOptions::default())?;
    pair.target.post_receives(0..1)?;
    let local = region.sge(0, 512);
    let work = signaled(2, Operation::Send, local.into());
    pair.host.endpoint.post(link.host, &[work])?;
    let sent = pair.host_completion(2)?;
    ensure!(sent.status.is_success(), "the region is dead: {sent:?}");
    Ok(Outcome::Passed)
}

fn keys_are_of_one_domain(setting: &Setting) -> Result<Outcome> {
    let (mut pair, mut link) = Pair::connected(setting)?;
    let device = Arc::clone(pair.host.endpoint.device());
    let other = Arc::clone(&device).isolated()?;
    ensure!(other.id() == device.id(), "it is another device");
    let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let region = other.register(Arc::new(Mapping::anonymous(4096)?), rights)?;
    let there = region.remote(0).context("a remote key")?;
    let rkey = there.rkey;
    let mut ops = vec![Operation::Write(there), Operation::Read(there)];
    if setting.provider.name() != "verbs" {
        ops.push(Operation::SendWithInvalidate { rkey });
    }
    pair.host.post_receives(0..1)?;
    for op in ops {
        let bytes = pair.target.sge(DATA, 512).into();
        pair.target
            .endpoint
            .post(link.target, &[signaled(1, op, bytes)])?;
        let refused = pair.target_completion(1)?;
        ensure!(
            refused.status == WorkStatus::RemoteAccess,
            "{op:?} by a key of another domain: {refused:?}"
        );
        link = pair.link(&QpOptions::default())?;
    }

    let mut node = Node::open(&other)?;
    std::mem::swap(&mut pair.host, &mut node);
    let link = pair.link(&QpOptions::default())?;
    let bytes = pair.target.sge(DATA, 512).into();
    let work = signaled(2, Operation::Write(there), bytes);
    pair.target.endpoint.post(link.target, &[work])?;
    let written = pair.target_completion(2)?;
    ensure!(written.status.is_success(), "{written:?}");
    Ok(Outcome::Passed)
}

fn receive_id_0() -> u64 {
    crate::node::receive_id(0)
}
