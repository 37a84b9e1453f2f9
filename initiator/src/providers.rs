//! What speaks RDMA to a target.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use cairn_rdma::{Device, Provider};
use cairn_roce::Soft;
use cairn_verbs::VerbsProvider;
use clap::ValueEnum;

/// Which provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// The adapter if one leads to the target, else user space
    Auto,
    /// libibverbs and librdmacm
    Verbs,
    /// RoCE over UDP sockets, by this program
    Soft,
}

/// A provider's device that leads to a target.
#[derive(Debug, Clone)]
pub struct Provided {
    /// Which provider.
    pub name: &'static str,
    /// Its device.
    pub device: Arc<dyn Device>,
    /// Keeps the provider for as long as its device.
    _provider: Arc<dyn Provider>,
}

impl Provided {
    /// The device to use. On `auto`, an adapter that leads to the target comes
    /// first.
    ///
    /// # Errors
    /// Why none leads there.
    pub fn choose(
        choice: Choice,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Self, String> {
        match choice {
            Choice::Verbs => Self::verbs(remote, local),
            Choice::Soft => Self::soft(remote, local),
            Choice::Auto => Self::verbs(remote, local).or_else(|verbs| {
                Self::soft(remote, local).map_err(|soft| {
                    format!("no way to {remote}:\n  by an RDMA adapter: {verbs}\n  in user space: {soft}")
                })
            }),
        }
    }

    fn verbs(remote: SocketAddr, local: Option<IpAddr>) -> Result<Self, String> {
        let provider = VerbsProvider::new().map_err(|error| error.to_string())?;
        Self::by(Arc::new(provider), remote, local)
    }

    fn soft(remote: SocketAddr, local: Option<IpAddr>) -> Result<Self, String> {
        Self::by(Arc::new(Soft::default()), remote, local)
    }

    fn by(
        provider: Arc<dyn Provider>,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Self, String> {
        let device = provider.device_for(remote, local);
        let device = device.map_err(|error| error.to_string())?;
        Ok(Self {
            name: provider.name(),
            device,
            _provider: provider,
        })
    }
}
