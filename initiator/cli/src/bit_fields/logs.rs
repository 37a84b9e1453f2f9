//! Bit fields of log pages.

use nvme_proto::wire::Status;

use super::{Field, code, either, field, number, support};

/// Fields of the SMART log (Base 2.0, figure 207), firmware log (figure 208) and error log (figure 206).
pub(crate) const LOGS: &[Field] = &[
    field(
        "critical_warning",
        8,
        &[
            either(
                5,
                "persistent memory region: writable",
                "persistent memory region: read-only or unreliable",
            ),
            either(
                4,
                "backup of volatile memory: works",
                "backup of volatile memory: failed",
            ),
            either(3, "media: writable", "media: read-only"),
            either(2, "reliability: as it was", "reliability: degraded"),
            either(
                1,
                "temperature: within its thresholds",
                "temperature: past a threshold",
            ),
            either(
                0,
                "spare: above its threshold",
                "spare: below its threshold",
            ),
        ],
    ),
    field(
        "endurance_grp_critical_warning_summary",
        8,
        &[
            either(
                3,
                "namespaces of endurance groups: writable",
                "namespaces of an endurance group: read-only",
            ),
            either(
                2,
                "reliability of endurance groups: as it was",
                "reliability of an endurance group: degraded",
            ),
            either(
                0,
                "spare of endurance groups: above its threshold",
                "spare of an endurance group: below its threshold",
            ),
        ],
    ),
    field(
        "Active Firmware Slot (afi)",
        8,
        &[
            number(6, 4, |slot| match slot {
                0 => "slot after the next reset: the same".to_owned(),
                slot => format!("slot after the next reset: {slot}"),
            }),
            number(2, 0, |slot| format!("active slot: {slot}")),
        ],
    ),
    field(
        "status_field",
        15,
        &[
            either(14, "the command may be retried", "do not retry"),
            either(13, "nothing more in the log", "more in the log"),
            code(
                12,
                11,
                "wait before a retry",
                &["none", "CRDT1", "CRDT2", "CRDT3"],
            ),
            number(10, 0, |bits| {
                Status::from_bits(bits as u16).code().to_string()
            }),
        ],
    ),
    field("parm_error_location", 16, &[number(15, 0, location)]),
    field(
        "trtype",
        8,
        &[code(
            7,
            0,
            "transport",
            &["none", "RDMA", "Fibre Channel", "TCP"],
        )],
    ),
];

/// Fields of an entry of the effects log (Base 2.0, figure 211).
pub(crate) const EFFECTS: &[Field] = &[field(
    "effects",
    32,
    &[
        support(25, "scope: NVM subsystem"),
        support(24, "scope: domain"),
        support(23, "scope: endurance group"),
        support(22, "scope: NVM set"),
        support(21, "scope: controller"),
        support(20, "scope: namespace"),
        support(19, "UUID selection"),
        code(
            18,
            16,
            "commands at a time",
            &["any number", "one of a namespace", "one of all namespaces"],
        ),
        either(
            4,
            "controller capabilities: stay",
            "controller capabilities: may change",
        ),
        either(
            3,
            "namespace inventory: stays",
            "namespace inventory: may change",
        ),
        either(
            2,
            "namespace capabilities: stay",
            "namespace capabilities: may change",
        ),
        either(1, "logical blocks: stay", "logical blocks: may change"),
        support(0, "the command"),
    ],
)];

fn location(value: u64) -> String {
    match value {
        0xffff => "not in the command".to_owned(),
        _ => format!(
            "byte {} and bit {} of the command",
            value & 0xff,
            value >> 8 & 7
        ),
    }
}
