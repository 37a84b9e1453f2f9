//! Discovery log page (70h): subsystems and listeners available to a host (Base, 5.16.1.23).
//!
//! Hosts that read the log in several commands detect changes by GENCTR.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use zerocopy::{FromZeros, IntoBytes};

use crate::access::{Host, HostAccess};
use crate::limits::ADMIN_QUEUE_ENTRIES;
use crate::window::Window;
use crate::wire::Nqn;
use crate::wire::fabrics::CNTLID_DYNAMIC;
use crate::wire::log::{
    AddressFamily, DiscoveryEntry, DiscoveryLogHeader, Eflags, RdmaProvider, RdmaTsas,
    SubsystemType, TransportType,
};

use core::net::{IpAddr, SocketAddr};

/// Local side of a host's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalEnd {
    /// Local IP address of the connection.
    pub address: IpAddr,
    /// P_Key of the accepting listener.
    pub pkey: u16,
}

/// Listener of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// PORTID, for [`Exported::ports`].
    pub portid: u16,
    /// Listening address; a wildcard stands for every address of its family.
    pub address: SocketAddr,
    /// RDMA provider of the entries.
    pub provider: RdmaProvider,
    /// P_Key; other partitions do not see the listener.
    pub pkey: u16,
}

/// Subsystem listed in the discovery log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// SUBNQN of the entries.
    pub nqn: Nqn,
    /// Hosts whose discovery log lists the subsystem.
    pub hosts: HostAccess,
    /// PORTIDs of the exporting listeners; `None` for all listeners.
    pub ports: Option<BTreeSet<u16>>,
}

/// Referral to another discovery service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Address of the service.
    pub address: SocketAddr,
    /// NQN of the service: [`Nqn::discovery`] or a unique NQN.
    pub nqn: Nqn,
}

/// TREQ: a secure channel is not required (10b), and SQ flow control can be disabled (bit 2).
const TREQ: u8 = 0b10 | 1 << 2;
const ASQSZ: u16 = ADMIN_QUEUE_ENTRIES;
/// Default P_Key (IBTA 10.9.1). `PARTITION` excludes the membership bit.
const PKEY_DEFAULT: u16 = 0xffff;
const PARTITION: u16 = 0x7fff;
const ENTRY_BYTES: u64 = 1024;

#[derive(Debug)]
pub(crate) struct DiscoveryLog {
    nqn: Nqn,
    genctr: u64,
    listeners: Vec<Listener>,
    exported: Vec<Exported>,
    referrals: Vec<Referral>,
}

struct View<'a> {
    listeners: Vec<(&'a Listener, IpAddr)>,
    /// Subsystems visible to the host, the discovery subsystem first.
    subsystems: Vec<Shown<'a>>,
    referrals: &'a [Referral],
}

struct Shown<'a> {
    kind: SubsystemType,
    nqn: &'a Nqn,
    ports: Option<&'a BTreeSet<u16>>,
}

impl Shown<'_> {
    fn is_behind(&self, listener: &Listener) -> bool {
        self.ports
            .is_none_or(|ports| ports.contains(&listener.portid))
    }
}

struct Route<'a> {
    listener: &'a Listener,
    traddr: IpAddr,
    kind: SubsystemType,
    nqn: &'a Nqn,
}

impl DiscoveryLog {
    pub(crate) fn of(nqn: Nqn) -> Self {
        Self {
            nqn,
            genctr: 0,
            listeners: Vec::new(),
            exported: Vec::new(),
            referrals: Vec::new(),
        }
    }

    pub(crate) fn set(&mut self, listeners: Vec<Listener>, exported: Vec<Exported>) -> bool {
        if self.listeners == listeners && self.exported == exported {
            return false;
        }
        (self.listeners, self.exported) = (listeners, exported);
        self.genctr += 1;
        true
    }

    pub(crate) fn refer(&mut self, referrals: Vec<Referral>) -> bool {
        let is_news = self.referrals != referrals;
        if is_news {
            self.referrals = referrals;
            self.genctr += 1;
        }
        is_news
    }

    pub(crate) fn length(&self, host: &Host, local: Option<LocalEnd>) -> u64 {
        ENTRY_BYTES * (1 + self.view(host, local).entries())
    }

    pub(crate) fn render(&self, host: &Host, local: Option<LocalEnd>, page: &mut Window<'_>) {
        let view = self.view(host, local);
        let mut header = DiscoveryLogHeader::new_zeroed();
        header.genctr.set(self.genctr);
        header.numrec.set(view.entries());
        page.put(0, header.as_bytes());
        let mut at = ENTRY_BYTES;
        for route in view.routes() {
            if page.shows(at, ENTRY_BYTES) {
                page.put(at, route.entry().as_bytes());
            }
            at += ENTRY_BYTES;
        }
        for referral in view.referrals {
            if page.shows(at, ENTRY_BYTES) {
                page.put(at, referral.entry().as_bytes());
            }
            at += ENTRY_BYTES;
        }
    }

    fn view(&self, host: &Host, local: Option<LocalEnd>) -> View<'_> {
        let pkey = local.map_or(PKEY_DEFAULT, |local| local.pkey);
        let of_partition = |listener: &&Listener| (listener.pkey ^ pkey) & PARTITION == 0;
        let local = local.map(|local| local.address);
        let listeners = self.listeners.iter().filter(of_partition);
        let listeners = listeners.filter_map(|listener| {
            reachable(listener.address.ip(), local).map(|traddr| (listener, traddr))
        });
        let visible = self.exported.iter().filter(|e| e.hosts.allows(&host.nqn));
        let subsystems = visible.map(|exported| Shown {
            kind: SubsystemType::NVM,
            nqn: &exported.nqn,
            ports: exported.ports.as_ref(),
        });
        let own = Shown {
            kind: SubsystemType::CURRENT_DISCOVERY,
            nqn: &self.nqn,
            ports: None,
        };
        View {
            listeners: listeners.collect(),
            subsystems: core::iter::once(own).chain(subsystems).collect(),
            referrals: &self.referrals,
        }
    }
}

impl<'a> View<'a> {
    fn entries(&self) -> u64 {
        let routes = self.subsystems.iter().map(|shown| match shown.ports {
            None => self.listeners.len(),
            Some(_) => {
                let listeners = self.listeners.iter();
                listeners.filter(|(one, _)| shown.is_behind(one)).count()
            }
        });
        (routes.sum::<usize>() + self.referrals.len()) as u64
    }

    fn routes(&self) -> impl Iterator<Item = Route<'a>> {
        self.listeners.iter().flat_map(|&(listener, traddr)| {
            let behind = self.subsystems.iter();
            let behind = behind.filter(move |shown| shown.is_behind(listener));
            behind.map(move |shown| Route {
                listener,
                traddr,
                kind: shown.kind,
                nqn: shown.nqn,
            })
        })
    }
}

fn reachable(listening: IpAddr, local: Option<IpAddr>) -> Option<IpAddr> {
    if !listening.is_unspecified() {
        return Some(listening);
    }
    local.filter(|local| local.is_ipv4() == listening.is_ipv4())
}

impl Route<'_> {
    fn entry(&self) -> DiscoveryEntry {
        let mut entry = entry_at(self.traddr, self.listener.address.port());
        entry.portid.set(self.listener.portid);
        entry.subtype = self.kind.0;
        entry.subnqn = self.nqn.encode();
        if self.kind == SubsystemType::CURRENT_DISCOVERY {
            entry.eflags.set(Eflags(0).with_epcsd(true).0);
        }
        let mut tsas = tsas_of(self.listener.provider);
        if self.listener.pkey != PKEY_DEFAULT {
            tsas.pkey.set(self.listener.pkey);
        }
        entry.tsas.copy_from_slice(tsas.as_bytes());
        entry
    }
}

impl Referral {
    fn entry(&self) -> DiscoveryEntry {
        let mut entry = entry_at(self.address.ip(), self.address.port());
        entry.subtype = SubsystemType::DISCOVERY_REFERRAL.0;
        entry.subnqn = self.nqn.encode();
        entry
            .tsas
            .copy_from_slice(tsas_of(RdmaProvider::NONE).as_bytes());
        entry
    }
}

fn entry_at(traddr: IpAddr, port: u16) -> DiscoveryEntry {
    let mut entry = DiscoveryEntry::new_zeroed();
    entry.trtype = TransportType::RDMA.0;
    entry.adrfam = match traddr {
        IpAddr::V4(_) => AddressFamily::IPV4.0,
        IpAddr::V6(_) => AddressFamily::IPV6.0,
    };
    entry.treq = TREQ;
    entry.cntlid.set(CNTLID_DYNAMIC);
    entry.asqsz.set(ASQSZ);
    write_text(&mut entry.trsvcid, b' ', format_args!("{port}"));
    write_text(&mut entry.traddr, b' ', format_args!("{traddr}"));
    entry
}

fn tsas_of(provider: RdmaProvider) -> RdmaTsas {
    let mut tsas = RdmaTsas::new_zeroed();
    tsas.qptype = RdmaTsas::QPTYPE_CONNECTED;
    tsas.prtype = provider.0;
    tsas.cms = RdmaTsas::CMS_RDMA_IP_CM;
    tsas
}

fn write_text(field: &mut [u8], fill: u8, text: core::fmt::Arguments<'_>) {
    struct Cursor<'a>(&'a mut [u8]);
    impl core::fmt::Write for Cursor<'_> {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            let rest = core::mem::take(&mut self.0);
            let (head, tail) = rest
                .split_at_mut_checked(text.len())
                .ok_or(core::fmt::Error)?;
            head.copy_from_slice(text.as_bytes());
            self.0 = tail;
            Ok(())
        }
    }
    field.fill(fill);
    core::fmt::write(&mut Cursor(field), text).expect("an address or a port fits its field");
}
