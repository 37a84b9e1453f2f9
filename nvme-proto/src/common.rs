use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::access::HostAccess;
use crate::discovery::DiscoveryLog;
use crate::limits::Limits;
use crate::namespace::Namespaces;
use crate::wire::Nqn;
use crate::wire::cross_reset::Instance;
use crate::wire::fabrics::CNTLID_MAX;

/// Configuration of a subsystem.
#[derive(Clone, Debug)]
pub struct Settings {
    /// NQN of the subsystem.
    pub nqn: Nqn,
    /// Serial number (SN), up to 20 ASCII characters.
    pub serial: String,
    /// Model number (MN), up to 40 ASCII characters.
    pub model: String,
    /// Firmware revision (FR), up to 8 ASCII characters.
    pub firmware: String,
    /// Hosts with permission to connect.
    pub hosts: HostAccess,
    /// True if disks may hold acknowledged writes in volatile memory (VWC).
    pub volatile_write_cache: bool,
    /// CNTLIDs that the subsystem may assign. Targets that export the same subsystem need disjoint
    /// ranges (Base, 3.1.2).
    pub cntlids: RangeInclusive<u16>,
    /// Limits of controllers and commands.
    pub limits: Limits,
}

impl Settings {
    /// Creates settings that allow every host.
    ///
    /// The model is "nvme-proto", and the firmware revision is this crate's version. A volatile
    /// write cache is reported: hosts must flush to make writes durable.
    #[must_use]
    pub fn new(nqn: Nqn, serial: &str) -> Self {
        Self {
            nqn,
            serial: serial.into(),
            model: env!("CARGO_PKG_NAME").into(),
            firmware: env!("CARGO_PKG_VERSION").into(),
            hosts: HostAccess::Any,
            volatile_write_cache: true,
            cntlids: CNTLIDS_ALL,
            limits: Limits::default(),
        }
    }
}

/// Valid CNTLIDs.
pub const CNTLIDS_ALL: RangeInclusive<u16> = 1..=CNTLID_MAX;

/// Type of a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Subsystem with namespaces.
    Nvm,
    /// Subsystem with the discovery log.
    Discovery,
}

/// Health of the media, for log page 02h and SMART events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// CRITICAL WARNING. Bit 1 is ignored: it is computed from the temperature thresholds.
    pub critical_warning: u8,
    /// Composite temperature in kelvin; 0 if unknown.
    pub temperature_k: u16,
    /// AVSP: available spare, in percent.
    pub available_spare: u8,
    /// AVSPT: available spare threshold, in percent.
    pub available_spare_threshold: u8,
    /// PUSED: endurance used, in percent.
    pub percentage_used: u8,
}

impl Health {
    /// CRITICAL WARNING bit 2: degraded reliability.
    pub const RELIABILITY_DEGRADED: u8 = 1 << 2;
}

impl Default for Health {
    fn default() -> Self {
        Self {
            critical_warning: 0,
            temperature_k: 0,
            available_spare: 100,
            available_spare_threshold: 10,
            percentage_used: 0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) kind: Kind,
    pub(crate) settings: Settings,
    pub(crate) namespaces: Namespaces,
    pub(crate) health: Health,
    pub(crate) discovery: DiscoveryLog,
    pub(crate) departed: Departed,
}

impl Common {
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    pub(crate) fn has_write_cache(&self) -> bool {
        self.settings.volatile_write_cache
    }
}

#[derive(Debug, Default)]
pub(crate) struct Departed {
    last: VecDeque<Instance>,
    unreported: Vec<Instance>,
}

impl Departed {
    const MAX: usize = 1024;

    pub(crate) fn add(&mut self, instance: Instance) {
        self.last.truncate(Self::MAX - 1);
        self.last.push_front(instance);
        self.unreported.push(instance);
    }

    pub(crate) fn has(&self, instance: &Instance) -> bool {
        self.last.contains(instance)
    }

    pub(crate) fn take_unreported(&mut self) -> Vec<Instance> {
        core::mem::take(&mut self.unreported)
    }
}
