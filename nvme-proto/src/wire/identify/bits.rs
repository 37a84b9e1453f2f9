use core::fmt::{Formatter, Result};

use super::{Anacap, Cmic, Ctratt, Dlfeat, Lpa, Nsfeat, Oncs, Sgls, Vwc};
use crate::wire::bits::bit_fields;
use crate::wire::property::version;

bit_fields! {
    /// Bit fields of [`IdentifyController`](super::IdentifyController) (Base 2.0, figure 275;
    /// CTRATT bits 16 to 19 from Base 2.1).
    CONTROLLER_BITS;
    "cmic" Cmic;
    "ver" 32 { 0..=31 (version); };
    "oaes" 32 {
        31 (supports "Discovery Log Page Change Notices");
        27 (supports "Zone Descriptor Changed Notices");
        15 (supports "Normal NVM Subsystem Shutdown events");
        14 (supports "Endurance Group Event Aggregate Log Page Change Notices");
        13 (supports "LBA Status Information Notices");
        12 (supports "Predictable Latency Event Aggregate Log Change Notices");
        11 (supports "Asymmetric Namespace Access Change Notices");
        9 (supports "Firmware Activation Notices");
        8 (supports "Namespace Attribute Notices");
    };
    "ctratt" Ctratt;
    "rrls" 16 { 0..=15 (recovery_levels); };
    "cntrltype" 8 {
        0..=7 ("controller type" ["not reported", "I/O", "discovery", "administrative"]);
    };
    "nvmsr" 8 {
        1 ("not of an NVMe enclosure" | "of an NVMe enclosure");
        0 ("not of an NVMe storage device" | "of an NVMe storage device");
    };
    "vwci" 8 {
        7 ("VPD writes remaining: not valid" | "VPD writes remaining: valid");
        0..=6 (|writes, f| write!(f, "VPD writes remaining: {writes}"));
    };
    "mec" 8 {
        1 (supports "management endpoint on a PCIe port");
        0 (supports "management endpoint on a 2-wire port");
    };
    "oacs" 16 {
        10 (supports "Lockdown");
        9 (supports "Get LBA Status");
        8 (supports "Doorbell Buffer Config");
        7 (supports "Virtualization Management");
        6 (supports "NVMe-MI Send and Receive");
        5 (supports "directives");
        4 (supports "Device Self-test");
        3 (supports "Namespace Management and Attachment");
        2 (supports "Firmware Commit and Image Download");
        1 (supports "Format NVM");
        0 (supports "Security Send and Receive");
    };
    "frmw" 8 {
        5 (supports "detection of overlapping firmware updates");
        4 (supports "firmware activation without a reset");
        1..=3 (|slots, f| write!(f, "firmware slots: {slots}"));
        0 ("slot 1 can be written" | "slot 1 is read-only");
    };
    "lpa" Lpa;
    "avscc" 8 {
        0 ("vendor specific commands have formats of the vendor"
            | "vendor specific commands have the format of the specification");
    };
    "apsta" 8 { 0 (supports "autonomous power state transitions"); };
    "wctemp" 16 { 0..=15 (temperature); };
    "cctemp" 16 { 0..=15 (temperature); };
    "rpmbs" 32 {
        24..=31 (|size, f| write!(f, "access size: {} bytes", (size + 1) * 512));
        16..=23 (|size, f| write!(f, "size of a unit: {} KiB", (size + 1) * 128));
        3..=5 ("authentication" ["HMAC SHA-256"]);
        0..=2 (|units, f| write!(f, "replay protected memory blocks: {units}"));
    };
    "dsto" 8 {
        0 ("a device self-test of each controller at a time" | "one device self-test of the subsystem at a time");
    };
    "hctma" 16 { 0 (supports "Host Controlled Thermal Management"); };
    "mntmt" 16 { 0..=15 (temperature); };
    "mxtmt" 16 { 0..=15 (temperature); };
    "sanicap" 32 {
        30..=31 ("media after a sanitize without deallocation" [
            "not defined", "not modified further", "modified further"
        ]);
        29 ("No-Deallocate is carried out" | "No-Deallocate is inhibited");
        2 (supports "sanitize by Overwrite");
        1 (supports "sanitize by Block Erase");
        0 (supports "sanitize by Crypto Erase");
    };
    "anacap" Anacap;
    "sqes" 8 {
        4..=7 (|power, f| write!(f, "largest entry: {} bytes", 1u64 << power));
        0..=3 (|power, f| write!(f, "required entry: {} bytes", 1u64 << power));
    };
    "cqes" 8 {
        4..=7 (|power, f| write!(f, "largest entry: {} bytes", 1u64 << power));
        0..=3 (|power, f| write!(f, "required entry: {} bytes", 1u64 << power));
    };
    "oncs" Oncs;
    "fuses" 16 { 0 (supports "fused Compare and Write"); };
    "fna" 8 {
        3 ("Format NVM may name all namespaces" | "Format NVM names one namespace");
        2 (supports "cryptographic erase by Format NVM");
        1 ("secure erase of one namespace" | "secure erase of all namespaces");
        0 ("Format NVM changes one namespace" | "Format NVM changes all namespaces");
    };
    "vwc" Vwc;
    "icsvscc" 8 {
        0 ("vendor specific commands have formats of the vendor"
            | "vendor specific commands have the format of the specification");
    };
    "nwpc" 8 {
        2 (supports "Permanent Write Protect");
        1 (supports "Write Protect Until Power Cycle");
        0 (supports "No Write Protect and Write Protect");
    };
    "ocfs" 16 {
        4 (supports "Copy descriptor format 4");
        3 (supports "Copy descriptor format 3");
        2 (supports "Copy descriptor format 2");
        1 (supports "Copy descriptor format 1");
        0 (supports "Copy descriptor format 0");
    };
    "sgls" Sgls;
    "fcatt" 8 { 0 ("dynamic controller model" | "static controller model"); };
    "ofcs" 16 { 0 (supports "Disconnect"); };
}

bit_fields! {
    /// Bit fields of [`IdentifyNamespace`](super::IdentifyNamespace) (NVM 1.0, figure 97; NMIC bit
    /// 1 from Base 2.1).
    NAMESPACE_BITS;
    "nsfeat" Nsfeat;
    "flbas" 8 {
        5..=6 (|index, f| write!(f, "LBA format, upper bits: {index}"));
        4 ("metadata in a buffer of its own" | "metadata after the data of each block");
        0..=3 (|index, f| write!(f, "LBA format, lower bits: {index}"));
    };
    "mc" 8 {
        1 (supports "metadata in a buffer of its own");
        0 (supports "metadata after the data of each block");
    };
    "dpc" 8 {
        4 (supports "protection information as the last bytes of metadata");
        3 (supports "protection information as the first bytes of metadata");
        2 (supports "protection information type 3");
        1 (supports "protection information type 2");
        0 (supports "protection information type 1");
    };
    "dps" 8 {
        3 ("protection information is last in metadata" | "protection information is first in metadata");
        0..=2 ("protection information" ["disabled", "type 1", "type 2", "type 3"]);
    };
    "nmic" 8 {
        1 ("not a dispersed namespace" | "a dispersed namespace");
        0 ("of one controller" | "may be attached to several controllers");
    };
    "rescap" 8 {
        7 ("Ignore Existing Key as before NVMe 1.3" | "Ignore Existing Key as since NVMe 1.3");
        6 (supports "Exclusive Access - All Registrants");
        5 (supports "Write Exclusive - All Registrants");
        4 (supports "Exclusive Access - Registrants Only");
        3 (supports "Write Exclusive - Registrants Only");
        2 (supports "Exclusive Access");
        1 (supports "Write Exclusive");
        0 (supports "reservations that persist through power loss");
    };
    "fpi" 8 {
        7 (supports "progress of Format NVM");
        0..=6 (|percent, f| write!(f, "left to format: {percent} %"));
    };
    "dlfeat" Dlfeat;
    "nsattr" 8 { 0 ("not write protected" | "write protected"); };
}

fn recovery_levels(value: u64, f: &mut Formatter<'_>) -> Result {
    f.write_str("read recovery levels: ")?;
    if value == 0 {
        return f.write_str("none");
    }
    let mut separator = "";
    for level in (0..16).filter(|level| value >> level & 1 == 1) {
        write!(f, "{separator}{level}")?;
        separator = ", ";
    }
    Ok(())
}

fn temperature(kelvin: u64, f: &mut Formatter<'_>) -> Result {
    match kelvin {
        0 => f.write_str("not reported"),
        _ => write!(f, "{} °C ({kelvin} K)", kelvin as i64 - 273),
    }
}
