//! Selection of the RDMA provider for a target.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use cairn_rdma::{Device, FabricError, Listener, Provider};
#[cfg(feature = "soft")]
use cairn_roce::Network;
#[cfg(feature = "soft")]
use cairn_roce::{Soft, SoftOptions};
#[cfg(feature = "verbs")]
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
    fn first<T>(
        self,
        failure: &str,
        work: impl Fn(Arc<dyn Provider>) -> Result<T, FabricError>,
    ) -> Result<T, String> {
        if self.roce == Version::V2 && self.vlan.is_some() {
            return Err(
                "RoCE v2 writes no VLAN tags: use an address of a VLAN interface, or RoCE v1"
                    .to_owned(),
            );
        }
        let with = |provider: Result<Arc<dyn Provider>, String>| {
            work(provider?).map_err(|error| error.to_string())
        };
        let (verbs, soft) = (|| with(Self::verbs()), || with(self.soft()));
        match self.provider {
            Choice::Verbs => verbs(),
            Choice::Soft => soft(),
            Choice::Auto => verbs().or_else(|verbs| {
                soft().map_err(|soft| {
                    format!("{failure}:\n  by an RDMA adapter: {verbs}\n  in user space: {soft}")
                })
            }),
        }
    }

    #[cfg(feature = "verbs")]
    fn verbs() -> Result<Arc<dyn Provider>, String> {
        let provider = VerbsProvider::new().map_err(|error| error.to_string())?;
        Ok(Arc::new(provider))
    }

    #[cfg(not(feature = "verbs"))]
    fn verbs() -> Result<Arc<dyn Provider>, String> {
        Err("this program was built without the feature `verbs` of cairn-initiator".to_owned())
    }

    #[cfg(feature = "soft")]
    fn soft(self) -> Result<Arc<dyn Provider>, String> {
        let network = match self.roce {
            Version::V1 => Network::Ethernet { vlan: self.vlan },
            Version::V2 => Network::System,
        };
        Ok(Arc::new(Soft::new(SoftOptions {
            network,
            ..SoftOptions::default()
        })))
    }

    #[cfg(not(feature = "soft"))]
    fn soft(self) -> Result<Arc<dyn Provider>, String> {
        Err("this program was built without the feature `soft` of cairn-initiator".to_owned())
    }
}

/// Device with a route to a target.
#[derive(Debug, Clone)]
pub struct Provided {
    /// Name of the provider, such as `soft`.
    pub name: &'static str,
    /// Device from [`Provider::device_for`].
    pub device: Arc<dyn Device>,
    /// Provider, which must outlive `device`.
    provider: Arc<dyn Provider>,
}

/// Listens with the first usable provider that `rdma` permits.
pub fn listen(
    rdma: RdmaOptions,
    listen: impl Fn(&dyn Provider) -> Result<Box<dyn Listener>, FabricError>,
) -> Result<Box<dyn Listener>, String> {
    rdma.first("cannot listen", |provider| listen(&*provider))
}

impl Provided {
    /// Chooses a device with a route to `remote`.
    pub fn choose(
        rdma: RdmaOptions,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Self, String> {
        rdma.first(&format!("no provider reaches {remote}"), |provider| {
            Ok(Self {
                name: provider.name(),
                device: provider.device_for(remote, local)?,
                provider,
            })
        })
    }

    /// Provider with a route to the target.
    #[must_use]
    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }
}
