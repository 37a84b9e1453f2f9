//! Explanations of bit fields, printed with `-H`.
//!
//! A field consists of parts. Each part is printed as a line in nvme-cli's format: ` [high:low] : value`, a tab, and
//! the meaning.

mod controller;
mod features;
mod logs;
mod namespace;
mod registers;

use clap::Args;

use cairn_bench::object::Object;

use super::fields::line;

pub(super) use controller::CONTROLLER;
pub(super) use features::{CAPABILITIES, FEATURES};
pub(super) use logs::{EFFECTS, LOGS};
pub(super) use namespace::NAMESPACE;
pub(super) use registers::REGISTERS;

/// Option `-H`.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Detail {
    /// Explain the bits of each field; of no effect on JSON
    #[arg(short = 'H', long)]
    pub(super) human_readable: bool,
}

impl Detail {
    /// Formats members as lines. With `-H`, each line is followed by the explained bits of its field.
    pub(super) fn lines(self, object: &Object, width: usize, fields: &[Field]) -> String {
        let mut out = String::new();
        for (key, value) in object.values() {
            out += &line(key, value, " : ", width);
            let field = fields.iter().find(|field| field.key == key);
            if let (true, Some(field), Some(value)) = (self.human_readable, field, value.as_u64()) {
                out += &field.explain(value);
            }
        }
        out
    }
}

/// Bit field; `key` is its name in nvme-cli's JSON.
pub(super) struct Field {
    pub(super) key: &'static str,
    bits: u32,
    /// Parts, in descending order of bits.
    parts: &'static [Part],
}

/// Bits `high` to `low` with their meaning.
struct Part {
    high: u32,
    low: u32,
    meaning: Meaning,
}

enum Meaning {
    /// Name of the feature reported by the bit, and the word printed if it is set, such as "supported".
    If(&'static str, &'static str),
    Either(&'static str, &'static str),
    /// Name of the part, and meanings of its values from 0; larger values are reserved.
    Code(&'static str, &'static [&'static str]),
    Number(fn(u64) -> String),
}

/// Formats in hexadecimal like nvme-cli: 0 without prefix, other values with 0x.
pub(super) fn hex(value: u64) -> String {
    match value {
        0 => "0".to_owned(),
        _ => format!("{value:#x}"),
    }
}

const fn field(key: &'static str, bits: u32, parts: &'static [Part]) -> Field {
    Field { key, bits, parts }
}

const fn support(bit: u32, what: &'static str) -> Part {
    part(bit, bit, Meaning::If(what, "supported"))
}

const fn report(bit: u32, what: &'static str) -> Part {
    part(bit, bit, Meaning::If(what, "reported"))
}

const fn either(bit: u32, clear: &'static str, set: &'static str) -> Part {
    part(bit, bit, Meaning::Either(clear, set))
}

const fn code(high: u32, low: u32, what: &'static str, values: &'static [&'static str]) -> Part {
    part(high, low, Meaning::Code(what, values))
}

const fn number(high: u32, low: u32, shown: fn(u64) -> String) -> Part {
    part(high, low, Meaning::Number(shown))
}

const fn part(high: u32, low: u32, meaning: Meaning) -> Part {
    Part { high, low, meaning }
}

impl Field {
    /// Returns a line for each part, and a line for reserved bits if any is set.
    pub(super) fn explain(&self, value: u64) -> String {
        let mut reserved = value;
        let mut out = String::new();
        for part in self.parts {
            reserved &= !(part.mask() << part.low);
            out += &part.explain(value);
        }
        if reserved != 0 {
            let high = self.bits - 1;
            out += &format!("  [{high}:0] : {reserved:#x}\treserved bits that are set\n");
        }
        out
    }
}

impl Part {
    const fn mask(&self) -> u64 {
        u64::MAX >> (63 - (self.high - self.low))
    }

    fn explain(&self, field: u64) -> String {
        let Self { high, low, .. } = self;
        let value = field >> low & self.mask();
        let meaning = match (&self.meaning, value) {
            (Meaning::If(what, so), 0) => format!("{what}: not {so}"),
            (Meaning::If(what, so), _) => format!("{what}: {so}"),
            (Meaning::Either(clear, _), 0) => (*clear).to_owned(),
            (Meaning::Either(_, set), _) => (*set).to_owned(),
            (Meaning::Code(what, values), _) => {
                let known = values.get(value as usize).filter(|text| !text.is_empty());
                format!("{what}: {}", known.unwrap_or(&"reserved"))
            }
            (Meaning::Number(shown), _) => shown(value),
        };
        format!("  [{high}:{low}] : {}\t{meaning}\n", hex(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(fields: &[Field], key: &str, value: u64) -> String {
        let field = fields.iter().find(|field| field.key == key);
        field.expect("a field of this table").explain(value)
    }

    #[test]
    fn parts_are_within_their_field_and_do_not_overlap() {
        let logs = LOGS.iter().chain(EFFECTS);
        let all = CONTROLLER.iter().chain(NAMESPACE).chain(logs);
        let features = FEATURES.iter().chain([&CAPABILITIES]);
        for field in all.chain(REGISTERS).chain(features) {
            let mut above = field.bits;
            for Part { high, low, meaning } in field.parts {
                assert!(low <= high && *high < above, "{} [{high}:{low}]", field.key);
                above = *low;
                if let Meaning::Code(_, values) = meaning {
                    assert!(values.len() <= 1 << (high - low + 1), "{}", field.key);
                }
            }
        }
    }

    #[test]
    fn each_bit_has_its_meaning() {
        assert_eq!(
            explain(CONTROLLER, "cmic", 0b1010),
            "  [3:3] : 0x1\tAsymmetric Namespace Access Reporting: supported\n  \
             [2:2] : 0\tnot of an SR-IOV virtual function\n  \
             [1:1] : 0x1\ttwo or more controllers\n  \
             [0:0] : 0\tone port\n"
        );
        assert_eq!(
            explain(NAMESPACE, "dlfeat", 0b1001),
            "  [4:4] : 0\tguard of deallocated blocks: FFFFh\n  \
             [3:3] : 0x1\tthe Deallocate bit of Write Zeroes: supported\n  \
             [2:0] : 0x1\tdeallocated blocks read as: 00h\n"
        );
    }

    fn check(fields: &[Field], cases: &[(&str, u64, &str)]) {
        for (key, value, expected) in cases {
            let lines = explain(fields, key, *value);
            assert!(lines.contains(expected), "{key}: {lines}");
        }
    }

    #[test]
    fn numbers_of_a_controller_are_those_of_their_bits() {
        check(
            CONTROLLER,
            &[
                ("ver", 0x0002_0100, "[31:0] : 0x20100\tNVMe 2.1.0\n"),
                ("frmw", 0x17, "[3:1] : 0x3\tfirmware slots: 3\n"),
                ("sqes", 0x76, "[7:4] : 0x7\tlargest entry: 128 bytes\n"),
                ("cqes", 0x44, "[3:0] : 0x4\trequired entry: 16 bytes\n"),
                ("wctemp", 343, "[15:0] : 0x157\t70 °C (343 K)\n"),
                (
                    "rrls",
                    0x8010,
                    "[15:0] : 0x8010\tread recovery levels: 4, 15\n",
                ),
                (
                    "rpmbs",
                    0x0102_0001,
                    "[31:24] : 0x1\taccess size: 1024 bytes\n",
                ),
                (
                    "vwc",
                    0x7,
                    "[2:1] : 0x3\tFlush of all namespaces: supported\n",
                ),
                ("sgls", 0x10_0005, "[1:0] : 0x1\tSGLs: supported\n"),
            ],
        );
    }

    #[test]
    fn numbers_of_a_namespace_are_those_of_their_bits() {
        check(
            NAMESPACE,
            &[
                ("flbas", 0x23, "[6:5] : 0x1\tLBA format, upper bits: 1\n"),
                ("fpi", 0x99, "[6:0] : 0x19\tleft to format: 25 %\n"),
            ],
        );
    }

    #[test]
    fn numbers_of_properties_are_those_of_their_bits() {
        check(
            REGISTERS,
            &[
                (
                    "cap",
                    0x0000_0820_0f00_007f,
                    "[31:24] : 0xf\tlongest time to get ready: 7500 ms\n",
                ),
                (
                    "cap",
                    0x0000_0820_0f00_007f,
                    "[15:0] : 0x7f\tentries of a queue: up to 128\n",
                ),
                (
                    "cc",
                    0x0046_4061,
                    "[6:4] : 0x6\tI/O command sets: all that are supported\n",
                ),
                ("csts", 9, "[3:2] : 0x2\tshutdown: complete\n"),
            ],
        );
    }

    #[test]
    fn numbers_of_features_are_those_of_their_bits() {
        check(
            FEATURES,
            &[
                ("0x01", 3, "[2:0] : 0x3\tcommands at a time of a queue: 8\n"),
                (
                    "0x04",
                    0x0010_0157,
                    "[21:20] : 0x1\tthreshold: under temperature\n",
                ),
                ("0x04", 0x0010_0157, "[15:0] : 0x157\t70 °C (343 K)\n"),
                (
                    "0x07",
                    0x0003_0007,
                    "[31:16] : 0x3\tI/O completion queues: 4\n",
                ),
                (
                    "0x07",
                    0x0003_0007,
                    "[15:0] : 0x7\tI/O submission queues: 8\n",
                ),
                ("0x0b", 1 << 11, "[11:11] : 0x1\tevents of ANA: reported\n"),
                (
                    "0x0f",
                    5000,
                    "[31:0] : 0x1388\tKeep Alive: within 5000 ms\n",
                ),
                (
                    "0x84",
                    2,
                    "[2:0] : 0x2\twrite protection: until power cycle\n",
                ),
            ],
        );
        let all = CAPABILITIES.explain(0b101);
        assert!(
            all.contains("can be changed") && all.contains("of the controller"),
            "{all}"
        );
    }

    #[test]
    fn numbers_of_logs_are_those_of_their_bits() {
        check(
            LOGS,
            &[
                (
                    "status_field",
                    0x4002,
                    "[10:0] : 0x2\tInvalid Field in Command (0/02h)\n",
                ),
                (
                    "parm_error_location",
                    0x0328,
                    "byte 40 and bit 3 of the command\n",
                ),
                (
                    "Active Firmware Slot (afi)",
                    0x21,
                    "[6:4] : 0x2\tslot after the next reset: 2\n",
                ),
            ],
        );
        check(
            EFFECTS,
            &[(
                "effects",
                0x0002_0003,
                "[18:16] : 0x2\tcommands at a time: one of all namespaces\n",
            )],
        );
    }

    #[test]
    fn reserved_codes_and_bits_are_called_so() {
        let vwc = explain(CONTROLLER, "vwc", 0b1010);
        assert!(
            vwc.contains("[2:1] : 0x1\tFlush of all namespaces: reserved\n"),
            "{vwc}"
        );
        assert!(
            vwc.ends_with("  [7:0] : 0x8\treserved bits that are set\n"),
            "{vwc}"
        );
        let cntrltype = explain(CONTROLLER, "cntrltype", 9);
        assert_eq!(cntrltype, "  [7:0] : 0x9\tcontroller type: reserved\n");
        assert!(!explain(CONTROLLER, "oncs", 0x1ff).contains("reserved bits"));
    }
}
