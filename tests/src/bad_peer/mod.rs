//! What any target must do when a host misbehaves.
//!
//! Each case opens its own connections and speaks in raw capsules. While it
//! does, a well-behaved bystander has an association with the same subsystem:
//! its I/O must work before and after, and so must that of a host that connects later. The cases
//! write to the namespace: point them at an unused one.

mod capsules;
mod connecting;
mod flooding;
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
use cairn_initiator::{Data, Host, HostOptions, Recovery, command};
use cairn_rdma::Provider;
use nvme_proto::wire::Nqn;

use crate::case::{Case, Outcome};
use cairn_sim::Random;

/// The logical block size of the namespace that the suite writes to.
const BLOCK_BYTES: u32 = 512;

/// The target to be bothered.
#[derive(Debug, Clone)]
pub struct Setting {
    /// How to reach it.
    pub provider: Arc<dyn Provider>,
    /// Where it listens.
    pub remote: SocketAddr,
    /// Its subsystem.
    pub subnqn: Nqn,
    /// A namespace there that is writable, has blocks of 512 bytes, 64 MiB of
    /// them, and holds nothing that anybody needs.
    pub nsid: u32,
    /// How long the target may take for anything, its own deadlines included.
    pub patience: Duration,
    /// What random capsules are made from.
    pub seed: u64,
    /// How many random capsules there are.
    pub random_capsules: u32,
    /// Connections that bad peers have asked for: a target may say a line about
    /// each of them, and no more.
    pub dials: Arc<AtomicU64>,
}

/// The whole suite.
#[must_use]
pub fn cases() -> Vec<Case<Setting>> {
    let mut all = connecting::cases();
    all.extend(capsules::cases());
    all.extend(sgls::cases());
    all.extend(flooding::cases());
    all.extend(vanishing::cases());
    all
}

/// Runs a case with a bystander who must not notice.
///
/// # Errors
/// The case fails, or the bystander notices.
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

/// A host that does everything right.
struct Bystander {
    host: Host,
    nsid: u32,
}

impl Bystander {
    fn connect(setting: &Setting, name: &str) -> Result<Self> {
        let options = HostOptions {
            timeout: setting.patience,
            // One that comes back by itself would hide that it was lost.
            recovery: Recovery::NONE,
            ..HostOptions::new(setting.remote, setting.subnqn, host_nqn(name))
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

    /// Writes some blocks, reads them back, and compares.
    fn check_io(&mut self, seed: u64) -> Result<()> {
        const BLOCKS: u32 = 8;
        const SLBA: u64 = 64;
        let length = BLOCKS * BLOCK_BYTES;
        let bytes = Random::new(seed).bytes(length as usize);
        let buffer = self.host.buffer(length as usize)?;
        let data = Data::start_of(&buffer, length);
        buffer.write(0, &bytes);
        self.host
            .run(1, command::write(self.nsid, SLBA, BLOCKS), data)?;
        buffer.write(0, &vec![0; length as usize]);
        self.host
            .run(1, command::read(self.nsid, SLBA, BLOCKS), data)?;
        ensure!(
            buffer.bytes(0, length as usize) == bytes,
            "what was read is not what was written"
        );
        Ok(())
    }

    /// Has its commands fail that take longer than this.
    fn limit_patience(&mut self, patience: Duration) {
        self.host.set_timeout(patience);
    }

    fn leave(self) -> Result<()> {
        Ok(self.host.shutdown()?)
    }
}

/// A host's name in this suite.
fn host_nqn(name: &str) -> Nqn {
    Nqn::parse(&format!("nqn.2026-01.org.example:{name}")).expect("a valid NQN")
}
