//! Features and their values (Base, 5.27).

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bits::bit_fields;

codes! {
    /// FID (Base, figure 317; NVM, figure 83).
    pub struct Feature(u8);
    0x01 ARBITRATION "Arbitration";
    0x02 POWER_MANAGEMENT "Power Management";
    0x04 TEMPERATURE_THRESHOLD "Temperature Threshold";
    0x05 ERROR_RECOVERY "Error Recovery";
    0x06 VOLATILE_WRITE_CACHE "Volatile Write Cache";
    0x07 NUMBER_OF_QUEUES "Number of Queues";
    0x08 INTERRUPT_COALESCING "Interrupt Coalescing";
    0x09 INTERRUPT_VECTOR_CONFIGURATION "Interrupt Vector Configuration";
    0x0a WRITE_ATOMICITY "Write Atomicity Normal";
    0x0b ASYNC_EVENT_CONFIGURATION "Asynchronous Event Configuration";
    0x0e TIMESTAMP "Timestamp";
    0x0f KEEP_ALIVE_TIMER "Keep Alive Timer";
    0x10 HOST_THERMAL_MANAGEMENT "Host Controlled Thermal Management";
    0x16 HOST_BEHAVIOR_SUPPORT "Host Behavior Support";
    0x80 SOFTWARE_PROGRESS_MARKER "Software Progress Marker";
    0x81 HOST_IDENTIFIER "Host Identifier";
    0x82 RESERVATION_NOTIFICATION_MASK "Reservation Notification Mask";
    0x83 RESERVATION_PERSISTENCE "Reservation Persistence";
    0x84 NAMESPACE_WRITE_PROTECTION "Namespace Write Protection Config";
}

bitfields! {
    /// CDW10 of Get Features.
    pub struct GetFeaturesCdw10(u32);
    fields {
        /// A [`Feature`].
        fid with_fid: u8 = 0..=7;
        /// A [`Select`].
        sel with_sel: u8 = 8..=10;
    }
}

bitfields! {
    /// CDW10 of Set Features: the feature, and whether its value is saved.
    pub struct SetFeaturesCdw10(u32);
    fields {
        /// A [`Feature`].
        fid with_fid: u8 = 0..=7;
    }
    flags {
        /// Keeps the value across resets.
        sv with_sv = 31;
    }
}

codes! {
    /// SEL: requested value of a feature.
    pub struct Select(u8);
    0x0 CURRENT "Current";
    0x1 DEFAULT "Default";
    0x2 SAVED "Saved";
    0x3 SUPPORTED_CAPABILITIES "Supported Capabilities";
}

bitfields! {
    /// Capabilities of a feature (DW0 of Get Features; Base, figure 195).
    pub struct SupportedCapabilities(u32);
    flags {
        saveable with_saveable = 0 ("cannot be saved" | "can be saved");
        namespace_specific with_namespace_specific = 1 ("of the controller" | "of a namespace");
        changeable with_changeable = 2 ("cannot be changed" | "can be changed");
    }
}

bitfields! {
    /// Arbitration (FID 01h).
    pub struct Arbitration(u32);
    fields {
        /// Arbitration burst, 2^AB commands; 111b: no limit.
        ab with_ab: u8 = 0..=2 (|power, f| match power {
            7 => f.write_str("commands at a time of a queue: no limit"),
            _ => write!(f, "commands at a time of a queue: {}", 1u64 << power),
        });
        /// Weight of low priority, 0-based.
        lpw with_lpw: u8 = 8..=15 (|more, f| write!(f, "weight of low priority: {}", more + 1));
        /// Weight of medium priority, 0-based.
        mpw with_mpw: u8 = 16..=23 (|more, f| write!(f, "weight of medium priority: {}", more + 1));
        /// Weight of high priority, 0-based.
        hpw with_hpw: u8 = 24..=31 (|more, f| write!(f, "weight of high priority: {}", more + 1));
    }
}

bitfields! {
    /// Power Management (FID 02h).
    pub struct PowerManagement(u32);
    fields {
        /// Power state to enter.
        ps with_ps: u8 = 0..=4 (|state, f| write!(f, "power state: {state}"));
        /// Workload hint.
        wh with_wh: u8 = 5..=7 (|hint, f| write!(f, "workload hint: {hint}"));
    }
}

bitfields! {
    /// Temperature Threshold (FID 04h).
    pub struct TemperatureThreshold(u32);
    fields {
        /// Threshold (kelvin).
        tmpth with_tmpth: u16 = 0..=15 (|kelvin, f| write!(f, "{} °C ({kelvin} K)", kelvin as i64 - 273));
        /// TMPSEL: 0 composite, 1 to 8 a sensor, Fh all.
        tmpsel with_tmpsel: u8 = 16..=19 (|sensor, f| match sensor {
            0 => f.write_str("of the composite temperature"),
            15 => f.write_str("of all sensors"),
            _ => write!(f, "of sensor {sensor}"),
        });
        /// THSEL: 00b over, 01b under temperature.
        thsel with_thsel: u8 = 20..=21 ("threshold" ["over temperature", "under temperature"]);
    }
}

bitfields! {
    /// Error Recovery (FID 05h).
    pub struct ErrorRecovery(u32);
    fields {
        /// Time limit of error recovery (unit: 100 ms); 0: no limit.
        tler with_tler: u16 = 0..=15 (|tenths, f| match tenths {
            0 => f.write_str("time to try again: no limit"),
            _ => write!(f, "time to try again: {} ms", tenths * 100),
        });
    }
    flags {
        dulbe with_dulbe = 16 ("reads of deallocated blocks succeed" | "reads of deallocated blocks fail");
    }
}

bitfields! {
    /// Volatile Write Cache (FID 06h).
    pub struct VolatileWriteCache(u32);
    flags {
        wce with_wce = 0 ("write cache: off" | "write cache: on");
    }
}

bitfields! {
    /// Number of Queues (FID 07h), requested in CDW11, granted in DW0.
    pub struct NumberOfQueues(u32);
    fields {
        /// I/O submission queues (NSQR or NSQA), 0-based.
        nsq with_nsq: u16 = 0..=15 (|more, f| write!(f, "I/O submission queues: {}", more + 1));
        /// I/O completion queues (NCQR or NCQA), 0-based.
        ncq with_ncq: u16 = 16..=31 (|more, f| write!(f, "I/O completion queues: {}", more + 1));
    }
}

bitfields! {
    /// Interrupt Coalescing (FID 08h).
    pub struct InterruptCoalescing(u32);
    fields {
        /// Aggregation threshold in completions, 0-based.
        thr with_thr: u8 = 0..=7 (|more, f| write!(f, "completions of an interrupt: {}", more + 1));
        /// Aggregation time (unit: 100 us).
        time with_time: u8 = 8..=15 (|units, f| write!(f, "longest wait: {} us", units * 100));
    }
}

bitfields! {
    /// Interrupt Vector Configuration (FID 09h).
    pub struct InterruptVector(u32);
    fields {
        /// Interrupt vector.
        iv with_iv: u16 = 0..=15;
    }
    flags {
        /// Coalescing is disabled.
        cd with_cd = 16;
    }
}

bitfields! {
    /// Write Atomicity Normal (FID 0Ah).
    pub struct WriteAtomicity(u32);
    flags {
        dn with_dn = 0 ("writes within AWUN and NAWUN are atomic"
            | "writes within AWUPF and NAWUPF are atomic, larger ones need not be");
    }
}

bitfields! {
    /// Asynchronous Event Configuration (FID 0Bh); bits 8 to 31 as in OAES.
    pub struct AsyncEventConfig(u32);
    fields {
        /// Critical warnings to report, as in the SMART log.
        smart with_smart: u8 = 0..=7;
    }
    flags {
        namespace_attribute with_namespace_attribute = 8 (reports "events of namespaces");
        firmware_activation with_firmware_activation = 9 (reports "events of firmware activation");
        telemetry with_telemetry = 10 (reports "events of the telemetry log");
        ana_change with_ana_change = 11 (reports "events of ANA");
        /// PLEAN.
        predictable_latency with_predictable_latency = 12 (reports "events of predictable latency");
        /// LBASIN.
        lba_status with_lba_status = 13 (reports "events of LBA status");
        /// EGEAN.
        endurance_group with_endurance_group = 14 (reports "events of endurance groups");
        subsystem_shutdown with_subsystem_shutdown = 15 (reports "events of a shutdown of the NVM subsystem");
        /// CCRCN (Base 2.3).
        cross_controller_reset with_cross_controller_reset = 20 (reports "events of Cross-Controller Resets");
        discovery_change with_discovery_change = 31 (reports "events of a changed discovery log");
    }
    bits {
        5 (reports "events of a persistent memory region in trouble");
        4 (reports "events of failed backup of volatile memory");
        3 (reports "events of a medium that is read only");
        2 (reports "events of reliability");
        1 (reports "events of temperature");
        0 (reports "events of spare below its threshold");
    }
}

bitfields! {
    /// Host Controlled Thermal Management (FID 10h).
    pub struct HostThermalManagement(u32);
    fields {
        /// Heavy throttling temperature (kelvin).
        tmt2 with_tmt2: u16 = 0..=15 (|kelvin, f| write!(f, "heavy throttling from: {kelvin} K"));
        /// Light throttling temperature (kelvin).
        tmt1 with_tmt1: u16 = 16..=31 (|kelvin, f| write!(f, "lighter throttling from: {kelvin} K"));
    }
}

bitfields! {
    /// Host Identifier (FID 81h).
    pub struct HostIdentifier(u32);
    flags {
        /// EXHID: 128-bit identifier, required over Fabrics.
        exhid with_exhid = 0;
    }
}

codes! {
    /// WPS: write protection of a namespace (Base, 8.12).
    pub struct WriteProtectionState(u8);
    0x0 NONE "No Write Protect";
    0x1 PROTECTED "Write Protect";
    0x2 UNTIL_POWER_CYCLE "Write Protect Until Power Cycle";
    0x3 PERMANENT "Permanent Write Protect";
}

bitfields! {
    /// Namespace Write Protection Config (FID 84h).
    pub struct WriteProtection(u32);
    fields {
        /// A [`WriteProtectionState`].
        wps with_wps: u8 = 0..=2 ("write protection" [
            "none", "until it is lifted", "until power cycle", "permanent"
        ]);
    }
}

bit_fields! {
    /// Bit fields of feature values (DW0 of the completion), by FID (Base 2.0, 5.27.1; NVM 1.0,
    /// 4.1.3).
    FEATURE_BITS;
    "0x01" Arbitration;
    "0x02" PowerManagement;
    "0x04" TemperatureThreshold;
    "0x05" ErrorRecovery;
    "0x06" VolatileWriteCache;
    "0x07" NumberOfQueues;
    "0x08" InterruptCoalescing;
    "0x0a" WriteAtomicity;
    "0x0b" AsyncEventConfig;
    "0x0f" 32 {
        0..=31 (|ms, f| match ms {
            0 => f.write_str("Keep Alive: off"),
            _ => write!(f, "Keep Alive: within {ms} ms"),
        });
    };
    "0x10" HostThermalManagement;
    "0x82" 32 {
        3 ("reports reservations that are preempted" | "does not report reservations that are preempted");
        2 ("reports reservations that are released" | "does not report reservations that are released");
        1 ("reports registrations that are preempted" | "does not report registrations that are preempted");
    };
    "0x83" 32 {
        0 ("reservations end with power" | "reservations persist through power loss");
    };
    "0x84" WriteProtection;
}

bit_fields! {
    /// Bit fields of feature capabilities.
    CAPABILITY_BITS;
    "capabilities" SupportedCapabilities;
}

/// Timestamp (FID 0Eh; Base, figure 335).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Timestamp {
    /// Milliseconds since 1970-01-01 00:00 UTC, or since the last reset (48 bits, little-endian).
    pub milliseconds: [u8; 6],
    /// Bit 0 is set if the count may have stopped. Bits 3:1: origin.
    pub attributes: u8,
    /// Reserved.
    pub reserved7: u8,
}
assert_size!(Timestamp = 8);

impl Timestamp {
    /// Origin: the last reset set the count to 0.
    pub const ORIGIN_RESET: u8 = 0b000;
    /// Origin: the host set the count.
    pub const ORIGIN_HOST: u8 = 0b001;

    /// Creates a timestamp from the lower 48 bits of `milliseconds`.
    #[must_use]
    pub fn new(milliseconds: u64, origin: u8) -> Self {
        let mut bytes = [0; 6];
        bytes.copy_from_slice(&milliseconds.to_le_bytes()[..6]);
        Self {
            milliseconds: bytes,
            attributes: (origin & 0b111) << 1,
            reserved7: 0,
        }
    }

    /// Returns the count in milliseconds.
    #[must_use]
    pub fn get(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&self.milliseconds);
        u64::from_le_bytes(bytes)
    }

    /// Returns the origin (an `ORIGIN_` constant).
    #[must_use]
    pub const fn origin(&self) -> u8 {
        self.attributes >> 1 & 0b111
    }
}

/// Host Behavior Support (FID 16h; Base, figure 353).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct HostBehavior {
    /// ACRE: 1 if command retry delays (CRD) are respected.
    pub acre: u8,
    /// ETDAS: 1 if telemetry data area 4 is supported.
    pub etdas: u8,
    /// LBAFEE: 1 if extended LBA formats are supported.
    pub lbafee: u8,
    /// Reserved.
    pub reserved3: u8,
    /// Enabled copy descriptor formats.
    pub cdfe: U16,
    /// Reserved.
    pub reserved6: [u8; 506],
}
assert_size!(HostBehavior = 512);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_captures() {
        let asked = NumberOfQueues(0x0001_0001);
        assert_eq!((asked.nsq(), asked.ncq()), (1, 1));
        let events = AsyncEventConfig(0x900);
        assert!(events.namespace_attribute() && events.ana_change());
        assert!(AsyncEventConfig(0x8000_0000).discovery_change());
        assert_eq!(
            GetFeaturesCdw10(0x30b).sel(),
            Select::SUPPORTED_CAPABILITIES.0
        );
    }

    #[test]
    fn timestamps_have_48_bits() {
        let stamp = Timestamp::new(0x1234_5678_9abc_def0, Timestamp::ORIGIN_HOST);
        assert_eq!(stamp.get(), 0x5678_9abc_def0);
        assert_eq!(stamp.origin(), Timestamp::ORIGIN_HOST);
        assert_eq!(stamp.as_bytes()[6], 0b0010);
    }
}
