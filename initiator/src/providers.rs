//! Selection of the RDMA provider for a target.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use cairn_rdma::{Device, FabricError, Listener, Provider};
use cairn_roce::phy::Network;
use cairn_roce::{Soft, SoftOptions};
use cairn_verbs::VerbsProvider;
#[cfg(feature = "clap")]
use clap::{Args, ValueEnum};

/// RDMA provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "clap", derive(ValueEnum))]
pub enum Choice {
    /// RDMA adapter if one leads to the target, otherwise user space
    #[default]
    Auto,
    /// RDMA adapter, with libibverbs and librdmacm
    Verbs,
    /// RoCE in user space, over sockets
    Soft,
}

/// RoCE version in user space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "clap", derive(ValueEnum))]
pub enum Version {
    /// On Ethernet: within one network only, and with CAP_NET_RAW
    V1,
    /// On UDP and IP
    #[default]
    V2,
}

/// RDMA provider and RoCE version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "clap", derive(Args))]
pub struct RdmaOptions {
    /// RDMA provider
    #[cfg_attr(feature = "clap", arg(long, value_enum, default_value_t = Choice::Auto))]
    pub provider: Choice,
    /// RoCE version in user space
    #[cfg_attr(feature = "clap", arg(long, value_enum, value_name = "VERSION", default_value_t = Version::V2))]
    pub roce: Version,
    /// 802.1Q VLAN ID of frames, with --roce v1 on an interface that is not a VLAN interface
    #[cfg_attr(feature = "clap", arg(long, value_name = "VID", value_parser = clap::value_parser!(u16).range(0..=4094)))]
    pub vlan: Option<u16>,
}

impl RdmaOptions {
    fn network(self) -> Result<Network, String> {
        match (self.roce, self.vlan) {
            (Version::V1, vlan) => Ok(Network::Ethernet { vlan }),
            (Version::V2, None) => Ok(Network::System),
            (Version::V2, Some(_)) => Err(
                "RoCE v2 writes no VLAN tags: use an address of a VLAN interface, or RoCE v1"
                    .to_owned(),
            ),
        }
    }
}

/// Device with a route to a target.
#[derive(Debug, Clone)]
pub struct Provided {
    /// Name of the provider.
    pub name: &'static str,
    /// Device.
    pub device: Arc<dyn Device>,
    /// Provider, which must outlive `device`.
    provider: Arc<dyn Provider>,
}

/// Listens with the first usable provider; `auto` tries RDMA devices first.
///
/// # Errors
/// If all providers fail: the reason of each.
pub fn listen(
    rdma: RdmaOptions,
    listen: impl Fn(&dyn Provider) -> Result<Box<dyn Listener>, FabricError>,
) -> Result<Box<dyn Listener>, String> {
    let network = rdma.network()?;
    let verbs = || {
        let provider = VerbsProvider::new().map_err(|error| error.to_string())?;
        listen(&provider).map_err(|error| error.to_string())
    };
    let soft = || {
        let soft = Soft::new(SoftOptions {
            network: network.clone(),
            ..SoftOptions::default()
        });
        listen(&soft).map_err(|error| error.to_string())
    };
    match rdma.provider {
        Choice::Verbs => verbs(),
        Choice::Soft => soft(),
        Choice::Auto => verbs().or_else(|verbs| {
            soft().map_err(|soft| {
                format!("cannot listen:\n  by an RDMA adapter: {verbs}\n  in user space: {soft}")
            })
        }),
    }
}

impl Provided {
    /// Chooses a device with a route to `remote`; `auto` tries RDMA devices first.
    ///
    /// # Errors
    /// If all providers fail: the reason of each.
    pub fn choose(
        rdma: RdmaOptions,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Self, String> {
        let network = rdma.network()?;
        match rdma.provider {
            Choice::Verbs => Self::verbs(remote, local),
            Choice::Soft => Self::soft(network, remote, local),
            Choice::Auto => Self::verbs(remote, local).or_else(|verbs| {
                Self::soft(network, remote, local).map_err(|soft| {
                    format!(
                        "no provider reaches {remote}:\n  by an RDMA adapter: {verbs}\n  in user space: {soft}"
                    )
                })
            }),
        }
    }

    /// Provider of the device.
    #[must_use]
    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    fn verbs(remote: SocketAddr, local: Option<IpAddr>) -> Result<Self, String> {
        let provider = VerbsProvider::new().map_err(|error| error.to_string())?;
        Self::by(Arc::new(provider), remote, local)
    }

    fn soft(network: Network, remote: SocketAddr, local: Option<IpAddr>) -> Result<Self, String> {
        let soft = Soft::new(SoftOptions {
            network,
            ..SoftOptions::default()
        });
        Self::by(Arc::new(soft), remote, local)
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
            provider,
        })
    }
}
