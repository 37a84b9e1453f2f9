//! Bit fields of Identify Controller.

use nvme_proto::wire::property::Vs;

use super::{Field, Part, code, either, field, number, support};

/// Fields of Identify Controller (Base 2.0, figure 275; CTRATT bits 16 to 19 and NMIC bit 1 from Base 2.1).
pub(crate) const CONTROLLER: &[Field] = &[
    field(
        "cmic",
        8,
        &[
            support(3, "Asymmetric Namespace Access Reporting"),
            either(
                2,
                "not of an SR-IOV virtual function",
                "of an SR-IOV virtual function",
            ),
            either(1, "one controller", "two or more controllers"),
            either(0, "one port", "two or more ports"),
        ],
    ),
    field("ver", 32, &[number(31, 0, version)]),
    field(
        "oaes",
        32,
        &[
            support(31, "Discovery Log Page Change Notices"),
            support(27, "Zone Descriptor Changed Notices"),
            support(15, "Normal NVM Subsystem Shutdown events"),
            support(
                14,
                "Endurance Group Event Aggregate Log Page Change Notices",
            ),
            support(13, "LBA Status Information Notices"),
            support(12, "Predictable Latency Event Aggregate Log Change Notices"),
            support(11, "Asymmetric Namespace Access Change Notices"),
            support(9, "Firmware Activation Notices"),
            support(8, "Namespace Attribute Notices"),
        ],
    ),
    field(
        "ctratt",
        32,
        &[
            support(19, "Flexible Data Placement"),
            either(
                18,
                "reservations without the host identifier's enforcement",
                "reservations with the host identifier's enforcement",
            ),
            support(
                17,
                "restriction of the host memory buffer in non-operational power states",
            ),
            either(
                16,
                "size limits include metadata",
                "size limits exclude metadata",
            ),
            support(15, "extended LBA formats"),
            support(14, "Delete NVM Set"),
            support(13, "Delete Endurance Group"),
            support(12, "Variable Capacity Management"),
            support(11, "Fixed Capacity Management"),
            either(
                10,
                "one domain in the subsystem",
                "several domains in the subsystem",
            ),
            support(9, "UUID list"),
            support(8, "SQ associations"),
            support(7, "namespace granularity"),
            support(6, "Traffic Based Keep Alive"),
            support(5, "Predictable Latency Mode"),
            support(4, "endurance groups"),
            support(3, "read recovery levels"),
            support(2, "NVM sets"),
            support(1, "Non-Operational Power State Permissive Mode"),
            support(0, "128-bit host identifier"),
        ],
    ),
    field("rrls", 16, &[number(15, 0, recovery_levels)]),
    field(
        "cntrltype",
        8,
        &[code(
            7,
            0,
            "controller type",
            &["not reported", "I/O", "discovery", "administrative"],
        )],
    ),
    field(
        "nvmsr",
        8,
        &[
            either(1, "not of an NVMe enclosure", "of an NVMe enclosure"),
            either(
                0,
                "not of an NVMe storage device",
                "of an NVMe storage device",
            ),
        ],
    ),
    field(
        "vwci",
        8,
        &[
            either(
                7,
                "VPD writes remaining: not valid",
                "VPD writes remaining: valid",
            ),
            number(6, 0, |writes| format!("VPD writes remaining: {writes}")),
        ],
    ),
    field(
        "mec",
        8,
        &[
            support(1, "management endpoint on a PCIe port"),
            support(0, "management endpoint on a 2-wire port"),
        ],
    ),
    field(
        "oacs",
        16,
        &[
            support(10, "Lockdown"),
            support(9, "Get LBA Status"),
            support(8, "Doorbell Buffer Config"),
            support(7, "Virtualization Management"),
            support(6, "NVMe-MI Send and Receive"),
            support(5, "directives"),
            support(4, "Device Self-test"),
            support(3, "Namespace Management and Attachment"),
            support(2, "Firmware Commit and Image Download"),
            support(1, "Format NVM"),
            support(0, "Security Send and Receive"),
        ],
    ),
    field(
        "frmw",
        8,
        &[
            support(5, "detection of overlapping firmware updates"),
            support(4, "firmware activation without a reset"),
            number(3, 1, |slots| format!("firmware slots: {slots}")),
            either(0, "slot 1 can be written", "slot 1 is read-only"),
        ],
    ),
    field(
        "lpa",
        8,
        &[
            support(6, "telemetry data area 4"),
            support(
                5,
                "Supported Log Pages and the pages of the effects of features and of MI commands",
            ),
            support(4, "Persistent Event log"),
            support(3, "Telemetry logs"),
            support(2, "extended data of Get Log Page"),
            support(1, "Commands Supported and Effects log"),
            support(0, "SMART log of each namespace"),
        ],
    ),
    field("avscc", 8, &[VENDOR_FORMAT]),
    field(
        "apsta",
        8,
        &[support(0, "autonomous power state transitions")],
    ),
    field("wctemp", 16, &[number(15, 0, temperature)]),
    field("cctemp", 16, &[number(15, 0, temperature)]),
    field(
        "rpmbs",
        32,
        &[
            number(31, 24, |size| {
                format!("access size: {} bytes", (size + 1) * 512)
            }),
            number(23, 16, |size| {
                format!("size of a unit: {} KiB", (size + 1) * 128)
            }),
            code(5, 3, "authentication", &["HMAC SHA-256"]),
            number(2, 0, |units| {
                format!("replay protected memory blocks: {units}")
            }),
        ],
    ),
    field(
        "dsto",
        8,
        &[either(
            0,
            "a device self-test of each controller at a time",
            "one device self-test of the subsystem at a time",
        )],
    ),
    field(
        "hctma",
        16,
        &[support(0, "Host Controlled Thermal Management")],
    ),
    field("mntmt", 16, &[number(15, 0, temperature)]),
    field("mxtmt", 16, &[number(15, 0, temperature)]),
    field(
        "sanicap",
        32,
        &[
            code(
                31,
                30,
                "media after a sanitize without deallocation",
                &["not defined", "not modified further", "modified further"],
            ),
            either(
                29,
                "No-Deallocate is carried out",
                "No-Deallocate is inhibited",
            ),
            support(2, "sanitize by Overwrite"),
            support(1, "sanitize by Block Erase"),
            support(0, "sanitize by Crypto Erase"),
        ],
    ),
    field(
        "anacap",
        8,
        &[
            support(7, "ANAGRPID other than 0 in Namespace Management"),
            either(
                6,
                "ANAGRPID may change while the namespace is attached",
                "ANAGRPID does not change while the namespace is attached",
            ),
            support(4, "ANA Change state"),
            support(3, "ANA Persistent Loss state"),
            support(2, "ANA Inaccessible state"),
            support(1, "ANA Non-Optimized state"),
            support(0, "ANA Optimized state"),
        ],
    ),
    field("sqes", 8, &[LARGEST_ENTRY, REQUIRED_ENTRY]),
    field("cqes", 8, &[LARGEST_ENTRY, REQUIRED_ENTRY]),
    field(
        "oncs",
        16,
        &[
            support(8, "Copy"),
            support(7, "Verify"),
            support(6, "Timestamp"),
            support(5, "reservations"),
            support(4, "Save and Select of features"),
            support(3, "Write Zeroes"),
            support(2, "Dataset Management"),
            support(1, "Write Uncorrectable"),
            support(0, "Compare"),
        ],
    ),
    field("fuses", 16, &[support(0, "fused Compare and Write")]),
    field(
        "fna",
        8,
        &[
            either(
                3,
                "Format NVM may name all namespaces",
                "Format NVM names one namespace",
            ),
            support(2, "cryptographic erase by Format NVM"),
            either(
                1,
                "secure erase of one namespace",
                "secure erase of all namespaces",
            ),
            either(
                0,
                "Format NVM changes one namespace",
                "Format NVM changes all namespaces",
            ),
        ],
    ),
    field(
        "vwc",
        8,
        &[
            code(
                2,
                1,
                "Flush of all namespaces",
                &["not reported", "", "not supported", "supported"],
            ),
            either(0, "no volatile write cache", "a volatile write cache"),
        ],
    ),
    field("icsvscc", 8, &[VENDOR_FORMAT]),
    field(
        "nwpc",
        8,
        &[
            support(2, "Permanent Write Protect"),
            support(1, "Write Protect Until Power Cycle"),
            support(0, "No Write Protect and Write Protect"),
        ],
    ),
    field(
        "ocfs",
        16,
        &[
            support(4, "Copy descriptor format 4"),
            support(3, "Copy descriptor format 3"),
            support(2, "Copy descriptor format 2"),
            support(1, "Copy descriptor format 1"),
            support(0, "Copy descriptor format 0"),
        ],
    ),
    field(
        "sgls",
        32,
        &[
            support(21, "Transport SGL Data Block descriptor"),
            support(20, "addresses that are offsets (in-capsule data)"),
            support(19, "MPTR with an SGL descriptor"),
            support(18, "SGLs longer than the data"),
            support(17, "metadata at any byte address"),
            support(16, "SGL Bit Bucket descriptor"),
            number(15, 8, |descriptors| {
                format!("recommended descriptors: {descriptors} (0: not reported)")
            }),
            support(2, "Keyed SGL Data Block descriptor"),
            code(
                1,
                0,
                "SGLs",
                &[
                    "not supported",
                    "supported",
                    "supported, aligned to 4 bytes",
                ],
            ),
        ],
    ),
    field(
        "fcatt",
        8,
        &[either(
            0,
            "dynamic controller model",
            "static controller model",
        )],
    ),
    field("ofcs", 16, &[support(0, "Disconnect")]),
];

/// Bit 0 of AVSCC and ICSVSCC.
const VENDOR_FORMAT: Part = either(
    0,
    "vendor specific commands have formats of the vendor",
    "vendor specific commands have the format of the specification",
);
/// Bits 7:4 of SQES and CQES.
const LARGEST_ENTRY: Part = number(7, 4, |power| {
    format!("largest entry: {} bytes", 1u64 << power)
});
const REQUIRED_ENTRY: Part = number(3, 0, |power| {
    format!("required entry: {} bytes", 1u64 << power)
});

pub(super) fn version(value: u64) -> String {
    let version = Vs(value as u32);
    format!("NVMe {}.{}.{}", version.mjr(), version.mnr(), version.ter())
}

fn recovery_levels(value: u64) -> String {
    let levels = (0..16).filter(|level| value >> level & 1 == 1);
    let levels: Vec<_> = levels.map(|level: u32| level.to_string()).collect();
    match levels.is_empty() {
        true => "read recovery levels: none".to_owned(),
        false => format!("read recovery levels: {}", levels.join(", ")),
    }
}

fn temperature(kelvin: u64) -> String {
    match kelvin {
        0 => "not reported".to_owned(),
        _ => format!("{} °C ({kelvin} K)", kelvin as i64 - 273),
    }
}
