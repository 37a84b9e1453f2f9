use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use crate::source::{Address, Question, Source, Unknown, unless_absent};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vlan {
    /// Netdev below the VLAN, which carries the frames.
    pub parent: String,
    pub id: u16,
    /// Map from socket priority to PCP.
    pub egress: BTreeMap<u32, u8>,
}

impl Vlan {
    pub(crate) fn read(source: &dyn Source, netdev: &str) -> Result<Option<Self>, Unknown> {
        let path = format!("/proc/net/vlan/{netdev}");
        let Some(text) = unless_absent(source.text(&path))? else {
            return Ok(None);
        };
        let parsed = Self::parse(&text);
        let parsed = parsed.ok_or_else(|| Unknown::other(&path, "no VLAN in it".to_owned()))?;
        Ok(Some(parsed))
    }

    #[must_use]
    pub fn of_address(source: &dyn Source, address: IpAddr) -> Option<Self> {
        if !source.has_directory("/proc/net/vlan") {
            return None;
        }
        let addresses: Vec<Address> = source.answer(&Question::Addresses).ok()?;
        let own = addresses.iter().find(|own| own.address == address)?;
        Self::read(source, &own.netdev).ok()?
    }

    fn parse(text: &str) -> Option<Self> {
        let after = |label: &str| {
            let at = text.find(label)? + label.len();
            text[at..].lines().next().map(str::trim)
        };
        let id = after("VID:")?.split_whitespace().next()?;
        let egress = after("EGRESS priority mappings:").unwrap_or_default();
        let pairs = egress.split_whitespace().filter_map(|pair| {
            let (from, to) = pair.split_once(':')?;
            Some((from.parse().ok()?, to.parse().ok()?))
        });
        Some(Self {
            parent: after("Device:")?.to_owned(),
            id: id.parse().ok()?,
            egress: pairs.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Vlan;

    #[test]
    fn the_kernels_text_is_read() {
        let text = "eth2.100  VID: 100\t REORDER_HDR: 1  dev->priv_flags: 1021\n\
                    Device: eth2\nINGRESS priority mappings: 0:0  1:0\n EGRESS priority mappings: 0:3 4:5";
        let vlan = Vlan::parse(text).unwrap();
        assert_eq!((vlan.parent.as_str(), vlan.id), ("eth2", 100));
        assert_eq!(vlan.egress, [(0, 3), (4, 5)].into());
        assert!(Vlan::parse("nothing").is_none());
    }
}
