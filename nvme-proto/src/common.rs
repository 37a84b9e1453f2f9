//! What the controllers of a subsystem have in common: what it was made with, its namespaces,
//! its health, what its discovery log shows.

use alloc::string::String;
use core::ops::RangeInclusive;

use crate::access::HostAccess;
use crate::discovery::DiscoveryLog;
use crate::limits::Limits;
use crate::namespace::Namespaces;
use crate::wire::Nqn;
use crate::wire::fabrics::CNTLID_MAX;

/// What an administrator says of a subsystem.
#[derive(Clone, Debug)]
pub struct Settings {
    /// SUBNQN.
    pub nqn: Nqn,
    /// SN: serial number; 20 ASCII characters are shown.
    pub serial: String,
    /// MN: model number; 40 ASCII characters are shown.
    pub model: String,
    /// FR: firmware revision; 8 ASCII characters are shown.
    pub firmware: String,
    /// Which hosts may connect.
    pub hosts: HostAccess,
    /// VWC: a namespace's backend may hold acknowledged writes in a volatile cache.
    pub volatile_write_cache: bool,
    /// CNTLIDs of its controllers. Targets that export one subsystem together
    /// have a range each: a CNTLID is unique in the subsystem (Base, 3.1.2).
    pub cntlids: RangeInclusive<u16>,
    /// Limits.
    pub limits: Limits,
}

/// Every CNTLID that a controller may have.
pub const CNTLIDS_ALL: RangeInclusive<u16> = 1..=CNTLID_MAX;

/// What kind of subsystem it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One with namespaces.
    Nvm,
    /// A discovery subsystem.
    Discovery,
}

/// The state of the media, as log page 02h and its events show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// CRITICAL WARNING bits 0 (spare), 2 (reliability), 3 (read only) and 5
    /// (persistent memory); the temperature bit is made of the thresholds.
    pub critical_warning: u8,
    /// Composite temperature in kelvins, 0 if unknown.
    pub temperature_k: u16,
    /// AVSP: available spare, in percent.
    pub available_spare: u8,
    /// AVSPT: its threshold, in percent.
    pub available_spare_threshold: u8,
    /// PUSED: percentage used.
    pub percentage_used: u8,
}

impl Health {
    /// CRITICAL WARNING: errors of the media have degraded the reliability.
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

/// What the controllers of a subsystem have in common.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) kind: Kind,
    pub(crate) settings: Settings,
    pub(crate) namespaces: Namespaces,
    pub(crate) health: Health,
    pub(crate) discovery: DiscoveryLog,
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
