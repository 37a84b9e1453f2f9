use std::collections::BTreeMap;

use serde::Serialize;

use super::{Bond, CnpState, Counters, NET, Vlan, numbers};
use crate::source::{
    Address, Dcb, Driver, Known, Pause, Question, Rings, Source, Unknown, unless_absent,
};
use crate::tos::Tos;

#[derive(Clone, Debug, Serialize)]
pub struct Netdev {
    pub name: String,
    /// MTU in bytes, including the IP header.
    pub mtu: Known<u32>,
    /// Operational state, such as up or down.
    pub state: Known<String>,
    /// Speed in Mbit/s; `None` without a link.
    pub speed: Known<Option<i64>>,
    pub driver: Known<Driver>,
    /// PCI function; `None` for a virtual interface.
    pub pci: Known<Option<String>>,
    /// Bond or bridge that the interface belongs to.
    pub master: Known<Option<String>>,
    pub vlan: Known<Option<Vlan>>,
    pub bond: Known<Option<Bond>>,
    /// Driver setting that enables RoCE over a bond; `None` if the driver lacks it.
    pub roce_lag_enable: Known<Option<String>>,
    /// Driver setting that names the partner port in RoCE LAG's ECMP mode, without a bond; `None`
    /// if the driver lacks it.
    pub roce_lag_ecmp_dev: Known<Option<String>>,
    pub addresses: Vec<Address>,
    pub pause: Known<Pause>,
    /// Priority flow control, and the map from DSCP to priority.
    pub dcb: Known<Dcb>,
    pub rings: Known<Rings>,
    /// ethtool's counters by priority, such as rx_prio3_pause.
    pub priority_counters: Known<Counters>,
    /// ECN settings; `None` if the driver shows none.
    pub ecn: Known<Option<CnpState>>,
}

impl Netdev {
    pub(super) fn read_all(source: &dyn Source) -> Known<Vec<Self>> {
        let names = source.list(NET).map(|mut names| {
            names.retain(|name| name != "lo" && name != "bonding_masters");
            names
        });
        let read = |name: String| Self::read(source, name);
        names
            .map(|names| names.into_iter().map(read).collect())
            .into()
    }

    fn read(source: &dyn Source, name: String) -> Self {
        let path = |file: &str| format!("{NET}/{name}/{file}");
        let speed = source.number(&path("speed")).ok();
        let counters: Result<Counters, Unknown> =
            source.answer(&Question::Statistics(name.clone()));
        Self {
            mtu: source.number(&path("mtu")).into(),
            state: source.text(&path("operstate")).into(),
            speed: Known::Is(speed.filter(|speed| *speed > 0)),
            driver: source.answer(&Question::Driver(name.clone())).into(),
            pci: unless_absent(source.link_name(&path("device"))).into(),
            master: unless_absent(source.link_name(&path("master"))).into(),
            vlan: Vlan::read(source, &name).into(),
            bond: Bond::read(source, &name).into(),
            roce_lag_enable: source.optional(&path("device/roce_lag_enable")).into(),
            roce_lag_ecmp_dev: source.optional(&path("device/roce_lag_ecmp_dev")).into(),
            addresses: Vec::new(),
            pause: source.answer(&Question::Pause(name.clone())).into(),
            dcb: source.answer(&Question::Dcb(name.clone())).into(),
            rings: source.answer(&Question::Rings(name.clone())).into(),
            priority_counters: counters.map(of_priorities).into(),
            ecn: ecn(source, &path("ecn")).into(),
            name,
        }
    }

    /// Returns the PCI address of the card: without the function number.
    #[must_use]
    pub fn card(&self) -> Option<String> {
        let pci = self.pci.get()?.as_deref()?;
        Some(
            pci.rsplit_once('.')
                .map_or(pci, |(card, _)| card)
                .to_owned(),
        )
    }

    /// Returns the priority of packets with `tos`, and the origin of this priority as text.
    #[must_use]
    pub fn priority_of(&self, tos: Tos, vlan: Option<&Vlan>) -> (u8, String) {
        let map = self.dcb.get().map(|dcb| &dcb.dscp);
        match map.filter(|map| !map.is_empty()) {
            Some(map) => match map.get(&tos.dscp()) {
                Some(priority) => (
                    *priority,
                    format!("the adapter trusts DSCP: {} is mapped to it", tos.dscp()),
                ),
                None => (
                    tos.dscp() >> 3,
                    format!(
                        "the adapter trusts DSCP: {} has no entry, and goes by its upper three bits",
                        tos.dscp()
                    ),
                ),
            },
            None => match vlan {
                Some(vlan) => (
                    tos.pcp(),
                    format!(
                        "the adapter trusts PCP: the tag of VLAN {} carries the SL",
                        vlan.id
                    ),
                ),
                None => (
                    0,
                    "the adapter trusts PCP, and packets without a VLAN tag have none".to_owned(),
                ),
            },
        }
    }
}

fn of_priorities(mut counters: Counters) -> Counters {
    counters.retain(|name, _| {
        name.contains("prio") && (name.ends_with("pause") || name.ends_with("discards"))
            || name.ends_with("_pause_ctrl_phy")
            || name == "rx_out_of_buffer"
            || name == "rx_discards_phy"
    });
    counters
}

fn ecn(source: &dyn Source, directory: &str) -> Result<Option<CnpState>, Unknown> {
    let enabled = |role: &str| -> Result<BTreeMap<u32, bool>, Unknown> {
        let directory = format!("{directory}/{role}/enable");
        let priorities = unless_absent(numbers(source, &directory))?.unwrap_or_default();
        let read = |priority| {
            let text = source.text(&format!("{directory}/{priority}"))?;
            Ok((priority, text == "1"))
        };
        priorities.into_iter().map(read).collect()
    };
    let state = CnpState {
        notifies: enabled("roce_np")?,
        reacts: enabled("roce_rp")?,
    };
    Ok((!state.notifies.is_empty() || !state.reacts.is_empty()).then_some(state))
}
