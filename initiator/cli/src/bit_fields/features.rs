//! Bit fields of feature values.

use super::{Field, code, either, field, number, report};

/// Capabilities returned by Get Features with SEL 3 (Base 2.0, figure 195).
pub(crate) const CAPABILITIES: Field = field(
    "capabilities",
    32,
    &[
        either(2, "cannot be changed", "can be changed"),
        either(1, "of the controller", "of a namespace"),
        either(0, "cannot be saved", "can be saved"),
    ],
);

/// Features by identifier whose value is in DW0 of the completion (Base 2.0, 5.27.1; NVM 1.0, 4.1.3).
pub(crate) const FEATURES: &[Field] = &[
    field(
        "0x01",
        32,
        &[
            number(31, 24, |more| {
                format!("weight of high priority: {}", more + 1)
            }),
            number(23, 16, |more| {
                format!("weight of medium priority: {}", more + 1)
            }),
            number(15, 8, |more| {
                format!("weight of low priority: {}", more + 1)
            }),
            number(2, 0, |power| match power {
                7 => "commands at a time of a queue: no limit".to_owned(),
                _ => format!("commands at a time of a queue: {}", 1u64 << power),
            }),
        ],
    ),
    field(
        "0x02",
        32,
        &[
            number(7, 5, |hint| format!("workload hint: {hint}")),
            number(4, 0, |state| format!("power state: {state}")),
        ],
    ),
    field(
        "0x04",
        32,
        &[
            code(
                21,
                20,
                "threshold",
                &["over temperature", "under temperature"],
            ),
            number(19, 16, |sensor| match sensor {
                0 => "of the composite temperature".to_owned(),
                15 => "of all sensors".to_owned(),
                _ => format!("of sensor {sensor}"),
            }),
            number(15, 0, |kelvin| {
                let celsius = i64::try_from(kelvin).unwrap_or(i64::MAX) - 273;
                format!("{celsius} °C ({kelvin} K)")
            }),
        ],
    ),
    field(
        "0x05",
        32,
        &[
            either(
                16,
                "reads of deallocated blocks succeed",
                "reads of deallocated blocks fail",
            ),
            number(15, 0, |tenths| match tenths {
                0 => "time to try again: no limit".to_owned(),
                _ => format!("time to try again: {} ms", tenths * 100),
            }),
        ],
    ),
    field(
        "0x06",
        32,
        &[either(0, "write cache: off", "write cache: on")],
    ),
    field(
        "0x07",
        32,
        &[
            number(31, 16, |more| {
                format!("I/O completion queues: {}", more + 1)
            }),
            number(15, 0, |more| format!("I/O submission queues: {}", more + 1)),
        ],
    ),
    field(
        "0x08",
        32,
        &[
            number(15, 8, |units| format!("longest wait: {} us", units * 100)),
            number(7, 0, |more| {
                format!("completions of an interrupt: {}", more + 1)
            }),
        ],
    ),
    field(
        "0x0a",
        32,
        &[either(
            0,
            "writes within AWUN and NAWUN are atomic",
            "writes within AWUPF and NAWUPF are atomic, larger ones need not be",
        )],
    ),
    field(
        "0x0b",
        32,
        &[
            report(31, "events of a changed discovery log"),
            report(15, "events of a shutdown of the NVM subsystem"),
            report(14, "events of endurance groups"),
            report(13, "events of LBA status"),
            report(12, "events of predictable latency"),
            report(11, "events of ANA"),
            report(10, "events of the telemetry log"),
            report(9, "events of firmware activation"),
            report(8, "events of namespaces"),
            report(5, "events of a persistent memory region in trouble"),
            report(4, "events of failed backup of volatile memory"),
            report(3, "events of a medium that is read only"),
            report(2, "events of reliability"),
            report(1, "events of temperature"),
            report(0, "events of spare below its threshold"),
        ],
    ),
    field(
        "0x0f",
        32,
        &[number(31, 0, |ms| match ms {
            0 => "Keep Alive: off".to_owned(),
            _ => format!("Keep Alive: within {ms} ms"),
        })],
    ),
    field(
        "0x10",
        32,
        &[
            number(31, 16, |kelvin| {
                format!("lighter throttling from: {kelvin} K")
            }),
            number(15, 0, |kelvin| format!("heavy throttling from: {kelvin} K")),
        ],
    ),
    field(
        "0x82",
        32,
        &[
            either(
                3,
                "reports reservations that are preempted",
                "does not report reservations that are preempted",
            ),
            either(
                2,
                "reports reservations that are released",
                "does not report reservations that are released",
            ),
            either(
                1,
                "reports registrations that are preempted",
                "does not report registrations that are preempted",
            ),
        ],
    ),
    field(
        "0x83",
        32,
        &[either(
            0,
            "reservations end with power",
            "reservations persist through power loss",
        )],
    ),
    field(
        "0x84",
        32,
        &[code(
            2,
            0,
            "write protection",
            &[
                "none",
                "until it is lifted",
                "until power cycle",
                "permanent",
            ],
        )],
    ),
];
