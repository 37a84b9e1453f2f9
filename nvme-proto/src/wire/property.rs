//! Controller properties (Base, 3.1.3).

use core::fmt::{self, Formatter};

use super::bits::bit_fields;

/// Byte offsets of properties.
pub mod offset {
    /// Controller Capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version, 4 bytes.
    pub const VS: u32 = 0x08;
    /// Controller Configuration, 4 bytes.
    pub const CC: u32 = 0x14;
    /// Controller Status, 4 bytes.
    pub const CSTS: u32 = 0x1c;
    /// NVM Subsystem Reset, 4 bytes.
    pub const NSSR: u32 = 0x20;
    /// Controller Ready Timeouts, 4 bytes.
    pub const CRTO: u32 = 0x68;
}

/// Value of NSSR that resets the NVM subsystem.
pub const NSSR_RESET: u32 = 0x4e56_4d65;

bitfields! {
    /// CAP: Controller Capabilities (Base, 3.1.3.1).
    pub struct Cap(u64);
    fields {
        /// Maximum entries of an I/O queue, 0-based.
        mqes with_mqes: u16 = 0..=15 (|entries, f| write!(f, "entries of a queue: up to {}", entries + 1));
        /// Arbitration mechanisms in addition to round robin.
        ams with_ams: u8 = 17..=18;
        /// Maximum time from CC.EN to CSTS.RDY (unit: 500 ms).
        to with_to: u8 = 24..=31 (|halves, f| write!(f, "longest time to get ready: {} ms", halves * 500));
        /// Supported I/O command sets: bit 0 for NVM, bit 6 for those listed by Identify CNS 1Ch.
        css with_css: u8 = 37..=44;
        /// Minimum host page, 2^(12 + MPSMIN) bytes.
        mpsmin with_mpsmin: u8 = 48..=51 (|power, f| page(power, f, "smallest "));
        /// Maximum host page, 2^(12 + MPSMAX) bytes.
        mpsmax with_mpsmax: u8 = 52..=55 (|power, f| page(power, f, "largest "));
    }
    flags {
        /// I/O queues are physically contiguous; 1 over Fabrics.
        cqr with_cqr = 16 ("queues may be in pieces of memory" | "queues are in one piece of memory");
        nssrs with_nssrs = 36 (supports "NVM subsystem reset");
        /// CRMS.CRWMS: Controller Ready With Media is supported, and CRTO is valid.
        crwms with_crwms = 59 (supports "ready with media");
        crims with_crims = 60 (supports "ready independent of media");
    }
    bits {
        58 (supports "NVM subsystem shutdown");
        57 (supports "controller memory buffer");
        56 (supports "persistent memory region");
        46..=47 ("scope of power states" ["not reported", "controller", "domain", "NVM subsystem"]);
        45 (supports "boot partitions");
        44 ("I/O command sets: some" | "I/O command sets: none");
        43 (supports "the list of I/O command sets");
        37 (supports "NVM command set");
        32..=35 (|stride, f| write!(f, "doorbell stride: {} bytes", 4u64 << stride));
        18 (supports "vendor specific arbitration");
        17 (supports "weighted round robin with urgent priority class");
    }
}

impl Cap {
    /// CAP.CSS bit 0: NVM command set.
    pub const CSS_NVM: u8 = 1 << 0;
    /// CAP.CSS bit 6: I/O command sets listed by Identify CNS 1Ch.
    pub const CSS_IOCS: u8 = 1 << 6;
    /// CAP.CSS bit 7: no I/O command set.
    pub const CSS_ADMIN_ONLY: u8 = 1 << 7;
}

bitfields! {
    /// VS: specification version (Base, 3.1.3.2).
    pub struct Vs(u32);
    fields {
        /// Tertiary version.
        ter with_ter: u8 = 0..=7;
        /// Minor version.
        mnr with_mnr: u8 = 8..=15;
        /// Major version.
        mjr with_mjr: u16 = 16..=31;
    }
}

impl Vs {
    /// NVMe 1.3.0.
    pub const V1_3: Self = Self(0x0001_0300);
    /// NVMe 1.4.0.
    pub const V1_4: Self = Self(0x0001_0400);
    /// NVMe 2.0.0.
    pub const V2_0: Self = Self(0x0002_0000);
}

bitfields! {
    /// CC: Controller Configuration (Base, 3.1.3.5).
    pub struct Cc(u32);
    fields {
        /// I/O command sets: 000b for NVM, 110b for those listed by Identify CNS 1Ch, 111b for
        /// none.
        css with_css: u8 = 4..=6 ("I/O command sets" ["NVM", "", "", "", "", "", "all that are supported", "none"]);
        /// Host page, 2^(12 + MPS) bytes.
        mps with_mps: u8 = 7..=10 (|power, f| page(power, f, ""));
        /// Arbitration mechanism.
        ams with_ams: u8 = 11..=13 ("arbitration" [
            "round robin", "weighted round robin with urgent priority class", "", "", "", "", "", "vendor specific"
        ]);
        /// Shutdown notification (an `SHN_` constant).
        shn with_shn: u8 = 14..=15 ("shutdown" ["not asked for", "normal", "abrupt"]);
        /// I/O submission queue entry, 2^IOSQES bytes.
        iosqes with_iosqes: u8 = 16..=19 (|power, f|
            write!(f, "entry of a submission queue: {} bytes", 1u64 << power));
        /// I/O completion queue entry, 2^IOCQES bytes.
        iocqes with_iocqes: u8 = 20..=23 (|power, f|
            write!(f, "entry of a completion queue: {} bytes", 1u64 << power));
    }
    flags {
        /// Enables the controller. Clearing the bit resets the controller.
        en with_en = 0 ("disabled" | "enabled");
        crime with_crime = 24 ("ready with media" | "ready independent of media");
    }
}

impl Cc {
    /// CC.CSS: NVM command set.
    pub const CSS_NVM: u8 = 0b000;
    /// CC.CSS: all supported I/O command sets.
    pub const CSS_IOCS: u8 = 0b110;
    /// CC.CSS: no I/O command set.
    pub const CSS_ADMIN_ONLY: u8 = 0b111;
    /// CC.SHN: no notification.
    pub const SHN_NONE: u8 = 0b00;
    /// CC.SHN: normal shutdown.
    pub const SHN_NORMAL: u8 = 0b01;
    /// CC.SHN: abrupt shutdown.
    pub const SHN_ABRUPT: u8 = 0b10;
}

bitfields! {
    /// CSTS: Controller Status (Base, 3.1.3.6).
    pub struct Csts(u32);
    fields {
        /// Shutdown status (an `SHST_` constant).
        shst with_shst: u8 = 2..=3 ("shutdown" ["none", "under way", "complete"]);
    }
    flags {
        rdy with_rdy = 0 ("not ready" | "ready");
        cfs with_cfs = 1 ("no fatal error" | "fatal error: reset it");
        nssro with_nssro = 4 ("no reset of the NVM subsystem" | "the NVM subsystem was reset");
        pp with_pp = 5 ("takes commands" | "processing paused");
    }
    bits {
        6 ("shutdown of the controller" | "shutdown of the NVM subsystem");
    }
}

impl Csts {
    /// CSTS.SHST: no shutdown requested.
    pub const SHST_NORMAL: u8 = 0b00;
    /// CSTS.SHST: shutdown in progress.
    pub const SHST_OCCURRING: u8 = 0b01;
    /// CSTS.SHST: shutdown complete.
    pub const SHST_COMPLETE: u8 = 0b10;
}

bitfields! {
    /// CRTO: Controller Ready Timeouts (Base, 3.1.3.21).
    pub struct Crto(u32);
    fields {
        /// Maximum time until ready with media (unit: 500 ms).
        crwmt with_crwmt: u16 = 0..=15;
        /// Maximum time until ready independent of media (unit: 500 ms).
        crimt with_crimt: u16 = 16..=31;
    }
}

bit_fields! {
    /// Bit fields of CAP, VS, CC and CSTS (Base 2.0, figures 36, 37, 46 and 47).
    PROPERTY_BITS;
    "cap" Cap;
    "version" 32 { 0..=31 (version); };
    "cc" Cc;
    "csts" Csts;
}

pub(super) fn version(value: u64, f: &mut Formatter<'_>) -> fmt::Result {
    let version = Vs(value as u32);
    write!(
        f,
        "NVMe {}.{}.{}",
        version.mjr(),
        version.mnr(),
        version.ter()
    )
}

fn page(power: u64, f: &mut Formatter<'_>, which: &str) -> fmt::Result {
    write!(f, "{which}page of the host: {} bytes", 4096u64 << power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_captures() {
        let cap = Cap(0x0000_0820_0f00_007f);
        assert_eq!(
            (cap.mqes(), cap.to(), cap.css()),
            (127, 15, Cap::CSS_NVM | Cap::CSS_IOCS)
        );
        assert!(!cap.cqr() && !cap.crwms());
        let cc = Cc(0x0046_4061);
        assert!(cc.en());
        assert_eq!(
            (cc.css(), cc.shn(), cc.iosqes(), cc.iocqes()),
            (Cc::CSS_IOCS, 1, 6, 4)
        );
        assert_eq!(Csts(8).shst(), Csts::SHST_COMPLETE);
        assert_eq!(Vs(0x0001_0300), Vs::V1_3);
    }

    #[test]
    fn setters_touch_their_bits_alone() {
        assert_eq!(Cap(u64::MAX).with_css(0).0, !(0xff << 37));
        assert_eq!(Cap(0).with_mpsmax(0xff).0, 0xf << 52);
        assert_eq!(Cc(u32::MAX).with_en(false).0, !1);
        assert_eq!(Crto(0).with_crimt(0x1234).0, 0x1234_0000);
    }
}
