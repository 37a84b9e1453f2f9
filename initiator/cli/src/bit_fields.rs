//! Option `-H`, which prints the meaning of bits below each bit field, in nvme-cli's format:
//! ` [high:low] : value`, a tab, and the meaning.

use std::cmp::Reverse;

use clap::Args;
use nvme_proto::wire::bits::BitField;

use cairn_bench::object::Object;

use super::fields::line;

/// Option `-H`.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Detail {
    /// Explain the bits of each field; of no effect on JSON
    #[arg(short = 'H', long)]
    pub(super) human_readable: bool,
}

impl Detail {
    pub(super) fn lines(self, object: &Object, width: usize, fields: &[BitField]) -> String {
        let mut out = String::new();
        for (key, value) in object.values() {
            out += &line(key, value, " : ", width);
            let field = fields.iter().find(|field| field.name == key);
            if let (true, Some(field), Some(value)) = (self.human_readable, field, value.as_u64()) {
                out += &explain(field, value);
            }
        }
        out
    }
}

/// Formats in hexadecimal like nvme-cli: 0 without prefix, other values with 0x.
pub(super) fn hex(value: u64) -> String {
    match value {
        0 => "0".to_owned(),
        _ => format!("{value:#x}"),
    }
}

/// Returns a line for each part of a field, highest bits first, and a line for reserved bits if any
/// is set.
pub(super) fn explain(field: &BitField, value: u64) -> String {
    let mut parts: Vec<_> = field.parts.iter().collect();
    parts.sort_by_key(|part| Reverse(part.high));
    let mut out = String::new();
    let mut reserved = value;
    for part in parts {
        let (high, low) = (part.high, part.low);
        let bits = hex(part.value(value));
        out += &format!("  [{high}:{low}] : {bits}\t{}\n", part.meaning(value));
        reserved &= !part.mask();
    }
    if reserved != 0 {
        let high = field.width - 1;
        out += &format!("  [{high}:0] : {reserved:#x}\treserved bits that are set\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_proto::wire::feature::{CAPABILITY_BITS, FEATURE_BITS};
    use nvme_proto::wire::identify::{CONTROLLER_BITS, NAMESPACE_BITS};
    use nvme_proto::wire::log::{EFFECT_BITS, LOG_BITS};
    use nvme_proto::wire::property::PROPERTY_BITS;

    fn explained(fields: &[BitField], name: &str, value: u64) -> String {
        let field = fields.iter().find(|field| field.name == name);
        explain(field.expect("a field of this list"), value)
    }

    #[test]
    fn each_bit_has_its_meaning() {
        assert_eq!(
            explained(CONTROLLER_BITS, "cmic", 0b1010),
            "  [3:3] : 0x1\tAsymmetric Namespace Access Reporting: supported\n  \
             [2:2] : 0\tnot of an SR-IOV virtual function\n  \
             [1:1] : 0x1\ttwo or more controllers\n  \
             [0:0] : 0\tone port\n"
        );
        assert_eq!(
            explained(NAMESPACE_BITS, "dlfeat", 0b1001),
            "  [4:4] : 0\tguard of deallocated blocks: FFFFh\n  \
             [3:3] : 0x1\tthe Deallocate bit of Write Zeroes: supported\n  \
             [2:0] : 0x1\tdeallocated blocks read as: 00h\n"
        );
    }

    fn check(fields: &[BitField], cases: &[(&str, u64, &str)]) {
        for (key, value, expected) in cases {
            let lines = explained(fields, key, *value);
            assert!(lines.contains(expected), "{key}: {lines}");
        }
    }

    #[test]
    fn numbers_of_a_controller_are_those_of_their_bits() {
        check(
            CONTROLLER_BITS,
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
            NAMESPACE_BITS,
            &[
                ("flbas", 0x23, "[6:5] : 0x1\tLBA format, upper bits: 1\n"),
                ("fpi", 0x99, "[6:0] : 0x19\tleft to format: 25 %\n"),
            ],
        );
    }

    #[test]
    fn numbers_of_properties_are_those_of_their_bits() {
        check(
            PROPERTY_BITS,
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
            FEATURE_BITS,
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
        let all = explained(CAPABILITY_BITS, "capabilities", 0b101);
        assert!(
            all.contains("can be changed") && all.contains("of the controller"),
            "{all}"
        );
    }

    #[test]
    fn numbers_of_logs_are_those_of_their_bits() {
        check(
            LOG_BITS,
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
            EFFECT_BITS,
            &[(
                "effects",
                0x0002_0003,
                "[18:16] : 0x2\tcommands at a time: one of all namespaces\n",
            )],
        );
    }

    #[test]
    fn reserved_codes_and_bits_are_called_so() {
        let vwc = explained(CONTROLLER_BITS, "vwc", 0b1010);
        assert!(
            vwc.contains("[2:1] : 0x1\tFlush of all namespaces: reserved\n"),
            "{vwc}"
        );
        assert!(
            vwc.ends_with("  [7:0] : 0x8\treserved bits that are set\n"),
            "{vwc}"
        );
        let cntrltype = explained(CONTROLLER_BITS, "cntrltype", 9);
        assert_eq!(cntrltype, "  [7:0] : 0x9\tcontroller type: reserved\n");
        assert!(!explained(CONTROLLER_BITS, "oncs", 0x1ff).contains("reserved bits"));
    }
}
