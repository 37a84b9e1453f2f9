//! Hosts in this process, each with a separate endpoint.

use cairn_initiator::{Host, HostOptions, Identity, Recovery};
use cairn_roce::Soft;
use nvme_proto::wire::Nqn;

use anyhow::{Context, Result};

use crate::served::{NQN, Served};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) io_queues: u16,
    pub(crate) depth: u16,
    pub(crate) kato_ms: u32,
}

pub(crate) fn connect(soft: &Soft, count: u16, wish: Wish) -> Result<Vec<Host>> {
    (0..count).map(|number| one(soft, number, wish)).collect()
}

fn one(soft: &Soft, number: u16, wish: Wish) -> Result<Host> {
    let name = |text: &str| Nqn::parse(text).map_err(|error| anyhow::anyhow!("{error:?}"));
    let mut hostid = *b"cairn-scale.....";
    hostid[14..].copy_from_slice(&number.to_le_bytes());
    let options = HostOptions {
        hostid,
        io_queues: wish.io_queues,
        queue_entries: wish.depth + 1,
        kato_ms: wish.kato_ms,
        recovery: Recovery::NONE,
        ..HostOptions::new(
            Served::remote(),
            name(NQN)?,
            Identity::named(name(&format!("nqn.2026-01.org.example:host-{number}"))?),
        )
    };
    Host::connect(soft, options).with_context(|| format!("host {number}"))
}

pub(crate) fn disconnect(hosts: Vec<Host>) -> Result<()> {
    for host in hosts {
        host.disconnect()?;
    }
    Ok(())
}
