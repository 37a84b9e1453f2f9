use std::collections::BTreeMap;

use serde::Serialize;

use super::counters;
use super::{Counters, Device, ForcedClass, Gid, RDMA_CM, RoceVersion, numbers};
use crate::source::{Defaults, Known, PortMtu, Question, Reason, Source, Unknown, unless_absent};

#[derive(Clone, Debug, Serialize)]
pub struct Port {
    /// Number, from 1.
    pub number: u32,
    pub path: String,
    /// State, such as ACTIVE or DOWN.
    pub state: Known<String>,
    /// Physical state, such as LinkUp or Disabled.
    pub physical_state: Known<String>,
    pub link_layer: Known<String>,
    /// Rate, such as "100 Gb/sec (4X EDR)".
    pub rate: Known<String>,
    /// LID, the local address on InfiniBand; 0 on Ethernet.
    pub lid: Known<String>,
    pub pkeys: Known<Vec<String>>,
    pub mtu: Known<PortMtu>,
    /// Non-empty entries of the GID table.
    pub gids: Known<Vec<Gid>>,
    /// Entries of the GID table, including empty ones.
    pub gid_table_size: usize,
    pub defaults: Known<Defaults>,
    /// Traffic classes forced on queue pairs by the driver; `None` if the driver lacks the setting.
    pub forced_class: Known<Option<ForcedClass>>,
    /// Hop limit forced on queue pairs by the driver; -1 for none, `None` if the driver lacks the
    /// setting.
    pub forced_ttl: Known<Option<String>>,
    pub counters: Known<Counters>,
    /// RoCE counters, such as retransmissions and congestion.
    pub hw_counters: Known<Counters>,
}

/// Reaction of an adapter to congestion, by priority.
#[derive(Clone, Debug, Serialize)]
pub struct CnpState {
    /// True for each priority whose congestion-marked packets cause CNPs.
    pub notifies: BTreeMap<u32, bool>,
    /// True for each priority that CNPs slow down.
    pub reacts: BTreeMap<u32, bool>,
}

impl Port {
    pub(super) fn read_all(source: &dyn Source, device: &str) -> Known<Vec<Self>> {
        let directory = format!("{device}/ports");
        let numbers = numbers(source, &directory);
        let read = |number| Self::read(source, device, number);
        numbers
            .map(|numbers| numbers.into_iter().map(read).collect())
            .into()
    }

    fn read(source: &dyn Source, device: &str, number: u32) -> Self {
        let path = format!("{device}/ports/{number}");
        let name = device.rsplit('/').next().unwrap_or_default();
        let text = |file: &str| source.text(&format!("{path}/{file}"));
        let state = |file: &str| -> Known<String> {
            text(file)
                .map(|text| match text.split_once(": ") {
                    Some((_, name)) => name.to_owned(),
                    None => text,
                })
                .into()
        };
        let (gids, gid_table_size) = match Gid::read_all(source, &path) {
            Ok((gids, size)) => (Known::Is(gids), size),
            Err(unknown) => (Known::Unknown(unknown), 0),
        };
        let forced = |file: &str| source.optional(&format!("{device}/tc/{number}/{file}"));
        Self {
            number,
            state: state("state"),
            physical_state: state("phys_state"),
            link_layer: text("link_layer").into(),
            rate: text("rate").into(),
            lid: text("lid").into(),
            pkeys: pkeys(source, &path).into(),
            mtu: source
                .answer(&Question::PortMtu(name.to_owned(), number))
                .into(),
            gids,
            gid_table_size,
            defaults: defaults(source, name, number).into(),
            forced_class: forced("traffic_class")
                .map(|text| text.map(|text| ForcedClass::parse(&text)))
                .into(),
            forced_ttl: forced("ttl").into(),
            counters: counters::read(source, &format!("{path}/counters")).into(),
            hw_counters: counters::read(source, &format!("{path}/hw_counters")).into(),
            path,
        }
    }

    /// True if the link layer is Ethernet or unknown.
    #[must_use]
    pub fn is_ethernet(&self) -> bool {
        self.link_layer
            .get()
            .is_none_or(|layer| layer == "Ethernet")
    }

    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state.get().is_some_and(|state| state == "ACTIVE")
    }

    /// Returns the default RoCE version of connections. Without a setting in configfs, the kernel
    /// prefers v2.
    #[must_use]
    pub fn default_version(&self) -> Option<RoceVersion> {
        let said = self.defaults.get();
        said.and_then(|defaults| RoceVersion::parse(&defaults.mode))
            .or_else(|| self.versions().into_iter().max())
    }

    #[must_use]
    pub fn versions(&self) -> Vec<RoceVersion> {
        let mut versions: Vec<RoceVersion> = self
            .gids
            .each()
            .filter_map(|gid| gid.version.get().copied())
            .collect();
        versions.sort_unstable();
        versions.dedup();
        versions
    }

    /// Returns the netdevs of the port's GIDs, and the port's entry in [`Device::port_netdevs`]. If
    /// the device has one port, also returns all netdevs of the device.
    pub fn netdevs<'a>(&'a self, device: &'a Device) -> impl Iterator<Item = &'a String> {
        let own = self.gids.each().filter_map(|gid| gid.netdev.get());
        let is_alone = device.ports.get().is_some_and(|ports| ports.len() == 1);
        let by_number = device.port_netdevs.get(&self.number);
        let of_device = device.netdevs.each().filter(move |_| is_alone);
        let mut all: Vec<&String> = own.chain(by_number).chain(of_device).collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter()
    }

    /// Returns `counters` and `hw_counters`, each value with its path in sysfs.
    pub fn all_counters(&self) -> impl Iterator<Item = (String, u64)> {
        let of = |directory: &'static str, counters: &Known<Counters>| {
            let path = &self.path;
            let counters: Vec<(String, u64)> = counters
                .each()
                .map(|(name, value)| (format!("{path}/{directory}/{name}"), *value))
                .collect();
            counters
        };
        let hw = of("hw_counters", &self.hw_counters);
        of("counters", &self.counters).into_iter().chain(hw)
    }
}

fn pkeys(source: &dyn Source, port: &str) -> Result<Vec<String>, Unknown> {
    let directory = format!("{port}/pkeys");
    let keys = numbers(source, &directory)?
        .into_iter()
        .filter_map(|index| source.text(&format!("{directory}/{index}")).ok());
    Ok(keys.filter(|key| key != "0x0000").collect())
}

fn defaults(source: &dyn Source, device: &str, port: u32) -> Result<Defaults, Unknown> {
    let directory = format!("{RDMA_CM}/{device}/ports/{port}");
    let Some(mode) = unless_absent(source.text(&format!("{directory}/default_roce_mode")))? else {
        let question = Question::Defaults(device.to_owned(), port);
        return source
            .answer(&question)
            .map_err(|unknown| match unknown.reason {
                Reason::Absent => Unknown::other(
                    RDMA_CM,
                    "the module rdma_cm is not loaded, or configfs is not mounted".to_owned(),
                ),
                _ => unknown,
            });
    };
    let tos = source.number(&format!("{directory}/default_roce_tos"))?;
    Ok(Defaults { mode, tos })
}
