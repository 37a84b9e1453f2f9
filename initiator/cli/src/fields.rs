//! Conversion of wire structures to JSON members and text lines.

use nvme_proto::wire::{Escaped, U16, U32, U64, U128};
use serde_json::Value;

use cairn_bench::object::Object;

pub(super) trait Field {
    fn value(&self) -> Value;
}

impl Field for u8 {
    fn value(&self) -> Value {
        (*self).into()
    }
}

impl Field for U16 {
    fn value(&self) -> Value {
        self.get().into()
    }
}

impl Field for U32 {
    fn value(&self) -> Value {
        self.get().into()
    }
}

impl Field for U64 {
    fn value(&self) -> Value {
        self.get().into()
    }
}

impl Field for U128 {
    /// nvme-cli prints 128-bit numbers as strings.
    fn value(&self) -> Value {
        self.get().to_string().into()
    }
}

macro_rules! with_fields {
    ($object:expr, $from:expr; $($field:ident)+) => {
        $object$(.with(stringify!($field), $crate::fields::Field::value(&$from.$field)))+
    };
}
pub(super) use with_fields;

pub(super) const HEX: &[&str] = &[
    "vid",
    "ssvid",
    "ieee",
    "cmic",
    "ver",
    "oaes",
    "ctratt",
    "rrls",
    "oacs",
    "frmw",
    "lpa",
    "apsta",
    "sanicap",
    "anacap",
    "sqes",
    "cqes",
    "oncs",
    "fuses",
    "fna",
    "vwc",
    "nwpc",
    "ocfs",
    "sgls",
    "fcatt",
    "ofcs",
    "nsfeat",
    "flbas",
    "mc",
    "dpc",
    "dps",
    "nmic",
    "rescap",
    "fpi",
    "dlfeat",
    "nsattr",
    "critical_warning",
    "status_field",
    "cap",
    "version",
    "cc",
    "csts",
    "effects",
    "acs",
    "iocs",
];

pub(super) fn lines(object: &Object, separator: &str, width: usize) -> String {
    let lines = object.values();
    let lines = lines.map(|(key, value)| line(key, value, separator, width));
    lines.collect()
}

pub(super) fn line(key: &str, value: &Value, separator: &str, width: usize) -> String {
    let value = match value {
        Value::Number(number) if HEX.contains(&key) => match number.as_u64() {
            Some(number) => format!("{number:#x}"),
            None => number.to_string(),
        },
        Value::String(text) => Escaped(text).to_string(),
        other => other.to_string(),
    };
    format!("{key:<width$}{separator}{value}\n")
}
