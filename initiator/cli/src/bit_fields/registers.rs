//! Bit fields of controller properties.

use super::controller::version;
use super::{Field, code, either, field, number, support};

/// Fields of CAP, VS, CC and CSTS (Base 2.0, figures 36, 37, 46 and 47).
pub(crate) const REGISTERS: &[Field] = &[
    field(
        "cap",
        64,
        &[
            support(60, "ready independent of media"),
            support(59, "ready with media"),
            support(58, "NVM subsystem shutdown"),
            support(57, "controller memory buffer"),
            support(56, "persistent memory region"),
            number(55, 52, |power| {
                format!("largest page of the host: {}", page(power))
            }),
            number(51, 48, |power| {
                format!("smallest page of the host: {}", page(power))
            }),
            code(
                47,
                46,
                "scope of power states",
                &["not reported", "controller", "domain", "NVM subsystem"],
            ),
            support(45, "boot partitions"),
            either(44, "I/O command sets: some", "I/O command sets: none"),
            support(43, "the list of I/O command sets"),
            support(37, "NVM command set"),
            support(36, "NVM subsystem reset"),
            number(35, 32, |stride| {
                format!("doorbell stride: {} bytes", 4u64 << stride)
            }),
            number(31, 24, |halves| {
                format!("longest time to get ready: {} ms", halves * 500)
            }),
            support(18, "vendor specific arbitration"),
            support(17, "weighted round robin with urgent priority class"),
            either(
                16,
                "queues may be in pieces of memory",
                "queues are in one piece of memory",
            ),
            number(15, 0, |entries| {
                format!("entries of a queue: up to {}", entries + 1)
            }),
        ],
    ),
    field("version", 32, &[number(31, 0, version)]),
    field(
        "cc",
        32,
        &[
            either(24, "ready with media", "ready independent of media"),
            number(23, 20, |power| {
                format!("entry of a completion queue: {} bytes", 1u64 << power)
            }),
            number(19, 16, |power| {
                format!("entry of a submission queue: {} bytes", 1u64 << power)
            }),
            code(15, 14, "shutdown", &["not asked for", "normal", "abrupt"]),
            code(
                13,
                11,
                "arbitration",
                &[
                    "round robin",
                    "weighted round robin with urgent priority class",
                    "",
                    "",
                    "",
                    "",
                    "",
                    "vendor specific",
                ],
            ),
            number(10, 7, |power| format!("page of the host: {}", page(power))),
            code(
                6,
                4,
                "I/O command sets",
                &["NVM", "", "", "", "", "", "all that are supported", "none"],
            ),
            either(0, "disabled", "enabled"),
        ],
    ),
    field(
        "csts",
        32,
        &[
            either(
                6,
                "shutdown of the controller",
                "shutdown of the NVM subsystem",
            ),
            either(5, "takes commands", "processing paused"),
            either(
                4,
                "no reset of the NVM subsystem",
                "the NVM subsystem was reset",
            ),
            code(3, 2, "shutdown", &["none", "under way", "complete"]),
            either(1, "no fatal error", "fatal error: reset it"),
            either(0, "not ready", "ready"),
        ],
    ),
];

fn page(power: u64) -> String {
    format!("{} bytes", 4096u64 << power)
}
