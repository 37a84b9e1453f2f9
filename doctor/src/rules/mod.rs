//! Rules for the RoCE set-up.
//!
//! A rule is a module whose `check` function adds findings about an [`Examination`] and reads
//! nothing from the machine. `docs/roce/rules.md` lists rules and tests.

mod attributes;
mod buffers;
mod classes;
mod counters;
mod ecn;
mod finding;
mod gid;
mod gsi;
mod lag;
mod memlock;
mod modules;
mod mtu;
mod numa;
mod partition;
mod peer;
mod permissions;
mod pfc;
mod port;
mod roce_port;
mod rxe;
mod tos;
mod unreadable;
mod versions;
mod vf;

use std::net::IpAddr;
use std::time::Duration;

use cairn_trouble::Caller;

pub use classes::Choice;
pub use finding::{Evidence, Finding, Fix, Severity};
pub use partition::Membership;

use crate::facts::{Device, Fabric, Netdev, Peer, Port, RoceVersion};
use crate::source::Source;
use crate::tos::Tos;

/// Planned use of RoCE by the calling program.
#[derive(Clone, Debug)]
pub struct Intent {
    pub caller: Caller,
    /// Local addresses of the program. If empty, rules use each address of an RDMA netdev.
    pub addresses: Vec<IpAddr>,
    /// ToS values set by the program; if empty, the connection manager's default applies.
    pub tos: Vec<Choice>,
    pub partitions: Vec<Membership>,
    /// Memory that the program locks: purposes and bytes.
    pub memory: Vec<(String, u64)>,
    /// True if the program uses user-space RoCE even with RDMA devices.
    pub is_soft: bool,
}

impl Intent {
    #[must_use]
    pub fn of(caller: Caller) -> Self {
        Self {
            caller,
            addresses: Vec::new(),
            tos: Vec::new(),
            partitions: Vec::new(),
            memory: Vec::new(),
            is_soft: false,
        }
    }

    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory.iter().map(|(_, bytes)| bytes).sum()
    }
}

#[derive(Clone, Debug)]
pub struct Examination {
    pub fabric: Fabric,
    /// Second reading of the machine, after `interval`, to compare counters.
    pub later: Option<Fabric>,
    pub interval: Duration,
    pub peer: Option<Peer>,
    pub intent: Intent,
}

pub struct Rule {
    pub name: &'static str,
    pub about: &'static str,
    check: fn(&Examination, &mut Vec<Finding>),
}

/// Rules in the order of checks and, at equal severity, of findings.
pub const RULES: [Rule; 22] = [
    Rule::new(
        modules::NAME,
        "devices, drivers and kernel modules",
        modules::check,
    ),
    Rule::new(
        permissions::NAME,
        "who may open the device nodes",
        permissions::check,
    ),
    Rule::new(
        memlock::NAME,
        "how much memory may be locked",
        memlock::check,
    ),
    Rule::new(
        buffers::NAME,
        "how much a socket may buffer",
        buffers::check,
    ),
    Rule::new(
        attributes::NAME,
        "limits and capabilities of the adapter",
        attributes::check,
    ),
    Rule::new(
        gsi::NAME,
        "the queue pair by which all connections begin",
        gsi::check,
    ),
    Rule::new(port::NAME, "state and link layer of the ports", port::check),
    Rule::new(vf::NAME, "virtual functions without RoCE", vf::check),
    Rule::new(
        gid::NAME,
        "a GID for each address, of the right type",
        gid::check,
    ),
    Rule::new(
        versions::NAME,
        "RoCE v1 and v2, and who can connect to whom",
        versions::check,
    ),
    Rule::new(
        partition::NAME,
        "whether the ports are in the partitions of the listeners",
        partition::check,
    ),
    Rule::new(roce_port::NAME, "who has UDP port 4791", roce_port::check),
    Rule::new(
        mtu::NAME,
        "whether packets are as large as they can be",
        mtu::check,
    ),
    Rule::new(
        tos::NAME,
        "ToS, DSCP, service level, VLAN priority",
        tos::check,
    ),
    Rule::new(
        pfc::NAME,
        "lossless Ethernet for the priority in use",
        pfc::check,
    ),
    Rule::new(ecn::NAME, "congestion marks and notifications", ecn::check),
    Rule::new(lag::NAME, "RoCE over bonds", lag::check),
    Rule::new(
        counters::NAME,
        "counters that should not grow",
        counters::check,
    ),
    Rule::new(rxe::NAME, "RoCE done by the kernel", rxe::check),
    Rule::new(
        numa::NAME,
        "adapter, interrupts and threads on one node",
        numa::check,
    ),
    Rule::new(peer::NAME, "the way to the peer", peer::check),
    Rule::new(
        unreadable::NAME,
        "checks that could not run",
        unreadable::check,
    ),
];

impl Rule {
    const fn new(
        name: &'static str,
        about: &'static str,
        check: fn(&Examination, &mut Vec<Finding>),
    ) -> Self {
        Self { name, about, check }
    }
}

impl Examination {
    /// With RDMA devices and a nonzero `interval`, reads the machine again after `interval`.
    #[must_use]
    pub fn of(
        source: &dyn Source,
        intent: Intent,
        peer: Option<IpAddr>,
        interval: Duration,
    ) -> Self {
        let fabric = Fabric::read(source);
        let peer = peer.map(|address| Peer::read(source, &fabric, address));
        let later = (!interval.is_zero() && fabric.has_devices()).then(|| {
            source.wait(interval);
            Fabric::read(source)
        });
        Self {
            fabric,
            later,
            interval,
            peer,
            intent,
        }
    }

    /// Applies all rules and returns the findings, most severe first.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for rule in &RULES {
            (rule.check)(self, &mut findings);
        }
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }

    fn is_soft(&self) -> bool {
        self.intent.is_soft || !self.fabric.has_devices()
    }

    fn addresses(&self) -> Vec<IpAddr> {
        if !self.intent.addresses.is_empty() {
            return self.intent.addresses.clone();
        }
        let all = self.fabric.addresses.each().filter(|address| {
            let is_local = match address.address {
                IpAddr::V4(v4) => v4.is_link_local(),
                IpAddr::V6(v6) => v6.is_unicast_link_local(),
            };
            !is_local && self.fabric.ports_of(&address.netdev).next().is_some()
        });
        all.map(|address| address.address).collect()
    }

    fn roce_netdevs(&self) -> impl Iterator<Item = (&Netdev, &Device, &Port)> {
        self.fabric.netdevs.each().filter_map(|netdev| {
            let (device, port) = self.fabric.ports_of(&netdev.name).next()?;
            Some((netdev, device, port))
        })
    }

    fn is_v1(port: &Port) -> bool {
        port.default_version() == Some(RoceVersion::V1)
    }
}

fn priority(examination: &Examination, netdev: &Netdev, tos: Tos) -> (u8, String) {
    // If a VLAN on this netdev has addresses, packets are tagged, and the tag determines their
    // priority.
    let mut above = examination.fabric.netdevs.each();
    let vlan = above.find_map(|other| {
        let vlan = other.vlan.get()?.as_ref()?;
        (vlan.parent == netdev.name && !other.addresses.is_empty()).then_some(vlan)
    });
    netdev.priority_of(tos, vlan)
}
