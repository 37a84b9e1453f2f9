//! Test suite of misbehaving hosts.
//!
//! Each case sends raw capsules and overwrites the namespace. Before and after each case, a second
//! host, the bystander, performs I/O in the same subsystem.

mod capsules;
mod connecting;
mod flooding;
mod lists;
mod peer;
mod renewing;
mod sgls;
mod unauthenticated;
mod vanishing;

pub use renewing::{Disorder, Renewing};
pub use unauthenticated::{HalfDone, Impostors, knock, replay};

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cairn_initiator::{Data, Host, HostOptions, Identity, Recovery, command};
use cairn_rdma::Provider;
use nvme_proto::wire::Nqn;

use crate::case::{Case, Outcome};
use cairn_sim::Random;

const BLOCK_BYTES: u32 = 512;

#[derive(Debug, Clone)]
pub struct Setting {
    pub provider: Arc<dyn Provider>,
    pub remote: SocketAddr,
    pub subnqn: Nqn,
    /// NSID of an unused, writable namespace: 64 MiB in 512-byte blocks.
    pub nsid: u32,
    /// Longer than the target's timeouts.
    pub patience: Duration,
    pub seed: u64,
    pub random_capsules: u32,
    pub dials: Arc<AtomicU64>,
}

#[must_use]
pub fn cases() -> Vec<Case<Setting>> {
    let mut all = connecting::cases();
    all.extend(capsules::cases());
    all.extend(sgls::cases());
    all.extend(lists::cases());
    all.extend(flooding::cases());
    all.extend(vanishing::cases());
    all
}

pub fn run(case: &Case<Setting>, setting: &Setting) -> Result<Outcome> {
    let mut bystander = Bystander::connect(setting, "bystander").context("before the case")?;
    bystander.check_io(1).context("before the case")?;
    let outcome = (case.run)(setting)?;
    bystander
        .check_io(2)
        .context("a bystander, after the case")?;
    bystander.leave().context("a bystander, after the case")?;
    let mut newcomer = Bystander::connect(setting, "newcomer").context("after the case")?;
    newcomer.check_io(3).context("a newcomer, after the case")?;
    newcomer.leave().context("a newcomer, after the case")?;
    Ok(outcome)
}

struct Bystander {
    host: Host,
    nsid: u32,
}

impl Bystander {
    fn connect(setting: &Setting, name: &str) -> Result<Self> {
        let options = HostOptions {
            timeout: setting.patience,
            recovery: Recovery::NONE,
            kato_ms: 0,
            ..HostOptions::new(
                setting.remote,
                setting.subnqn,
                Identity::named(host_nqn(name)),
            )
        };
        let mut host = Host::connect(&*setting.provider, options)?;
        let format = host.namespace(setting.nsid)?.lba_format();
        ensure!(
            format.is_some_and(|format| 1 << format.lbads == BLOCK_BYTES),
            "namespace {} has no blocks of {BLOCK_BYTES} bytes",
            setting.nsid
        );
        Ok(Self {
            host,
            nsid: setting.nsid,
        })
    }

    fn check_io(&mut self, seed: u64) -> Result<()> {
        const BLOCKS: u32 = 8;
        const SLBA: u64 = 64;
        let length = BLOCKS * BLOCK_BYTES;
        let bytes = Random::new(seed).bytes(length as usize);
        let mut buffer = self.host.buffer(length as usize)?;
        buffer.write(0, &bytes);
        let data = Data::whole(&mut buffer);
        self.host
            .run(command::write(self.nsid, SLBA, BLOCKS), data)?;
        buffer.write(0, &vec![0; length as usize]);
        let data = Data::whole(&mut buffer);
        self.host
            .run(command::read(self.nsid, SLBA, BLOCKS), data)?;
        ensure!(
            buffer.bytes(0, length as usize) == bytes,
            "what was read is not what was written"
        );
        Ok(())
    }

    fn limit_patience(&mut self, patience: Duration) {
        self.host.set_timeout(patience);
    }

    fn leave(self) -> Result<()> {
        Ok(self.host.shutdown()?)
    }
}

fn host_nqn(name: &str) -> Nqn {
    Nqn::parse(&format!("nqn.2026-01.org.example:{name}")).expect("a valid NQN")
}
