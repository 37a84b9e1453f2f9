//! GIDs: addresses of RDMA ports. RoCE has one GID per address and RoCE version.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use serde::Serialize;

use super::numbers;
use crate::source::{Known, Source, Unknown, unless_absent};

/// Encapsulation of RoCE packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum RoceVersion {
    /// RoCE v1: Ethernet frames of type 0x8915, within one broadcast domain.
    #[serde(rename = "v1")]
    V1,
    /// RoCE v2: UDP port 4791, which routers forward.
    #[serde(rename = "v2")]
    V2,
}

impl RoceVersion {
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "RoCE v2" => Some(Self::V2),
            "IB/RoCE v1" | "RoCE v1" => Some(Self::V1),
            _ => None,
        }
    }

    #[must_use]
    pub fn configfs(self) -> &'static str {
        match self {
            Self::V1 => "IB/RoCE v1",
            Self::V2 => "RoCE v2",
        }
    }
}

impl fmt::Display for RoceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        })
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Gid {
    pub index: u32,
    pub gid: Ipv6Addr,
    /// IP address; `None` for a link-local GID.
    pub address: Option<IpAddr>,
    /// RoCE version from `gid_attrs/types`.
    pub version: Known<RoceVersion>,
    /// Netdev from `gid_attrs/ndevs`.
    pub netdev: Known<String>,
    /// True if connections from the address use this entry, which has the default RoCE version.
    pub in_use: bool,
}

impl Gid {
    pub(super) fn read_all(source: &dyn Source, port: &str) -> Result<(Vec<Self>, usize), Unknown> {
        let indices = numbers(source, &format!("{port}/gids"))?;
        let size = indices.len();
        let entries = indices.into_iter().filter_map(|index| {
            let text = unless_absent(source.text(&format!("{port}/gids/{index}")));
            let gid: Ipv6Addr = text.ok()??.parse().ok()?;
            (!gid.is_unspecified()).then(|| Self {
                index,
                gid,
                address: address(gid),
                version: version(source, &format!("{port}/gid_attrs/types/{index}")),
                netdev: source
                    .text(&format!("{port}/gid_attrs/ndevs/{index}"))
                    .into(),
                in_use: false,
            })
        });
        Ok((entries.collect(), size))
    }

    /// True if the entry has this version; false if unknown.
    #[must_use]
    pub fn is(&self, version: RoceVersion) -> bool {
        self.version.get() == Some(&version)
    }

    #[must_use]
    pub fn is_link_local(&self) -> bool {
        self.gid.is_unicast_link_local()
    }
}

fn version(source: &dyn Source, path: &str) -> Known<RoceVersion> {
    source
        .text(path)
        .and_then(|text| {
            RoceVersion::parse(&text)
                .ok_or_else(|| Unknown::other(path, format!("{text:?} is no RoCE version")))
        })
        .into()
}

fn address(gid: Ipv6Addr) -> Option<IpAddr> {
    match gid.to_ipv4_mapped() {
        Some(v4) => Some(v4.into()),
        None if gid.is_unicast_link_local() => None,
        None => Some(gid.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Recording;

    #[test]
    fn versions_are_read_as_the_kernel_writes_them() {
        for version in [RoceVersion::V1, RoceVersion::V2] {
            assert_eq!(RoceVersion::parse(version.configfs()), Some(version));
        }
        assert_eq!(RoceVersion::parse("RoCE v3"), None);
    }

    #[test]
    fn an_entry_says_address_version_and_netdev() {
        let recording = Recording::parse(
            "[/p]\ngids/0 = fe80:0000:0000:0000:0202:c9ff:fe00:0001\ngids/1 = 0000:0000:0000:0000:0000:ffff:c000:0201\n\
             gids/2 = 0000:0000:0000:0000:0000:0000:0000:0000\ngids/3 ! Invalid argument\n\
             gid_attrs/types/1 = RoCE v2\ngid_attrs/ndevs/1 = eth2\n",
        )
        .unwrap();
        let (gids, size) = Gid::read_all(&recording, "/p").unwrap();
        assert_eq!((gids.len(), size), (2, 4));
        assert!(gids[0].is_link_local() && gids[0].version.get().is_none());
        assert_eq!(gids[1].address, Some("192.0.2.1".parse().unwrap()));
        assert!(gids[1].is(RoceVersion::V2));
        assert_eq!(gids[1].netdev.get().unwrap(), "eth2");
    }
}
