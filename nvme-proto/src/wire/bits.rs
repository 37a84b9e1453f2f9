//! Names and meanings of bits, for tools that display them.

use core::fmt::{self, Display, Formatter};

/// Named bit field of a structure, a property or a feature.
#[derive(Debug)]
pub struct BitField {
    /// Name in nvme-cli; for a feature its FID.
    pub name: &'static str,
    /// Width in bits.
    pub width: u32,
    /// Parts of the field; all other bits are reserved.
    pub parts: &'static [Part],
}

/// Bits `high` to `low` of a field.
#[derive(Debug)]
pub struct Part {
    /// Highest bit.
    pub high: u32,
    /// Lowest bit.
    pub low: u32,
    meaning: Meaning,
}

#[derive(Debug)]
pub(crate) enum Meaning {
    /// Name of the bit's feature, and the word for a set bit, such as "supported".
    If(&'static str, &'static str),
    /// Meaning of a clear bit, and of a set bit.
    Either(&'static str, &'static str),
    /// Name of the part, and meanings of its values from 0; other values are reserved.
    Code(&'static str, &'static [&'static str]),
    Number(fn(u64, &mut Formatter<'_>) -> fmt::Result),
}

impl Part {
    pub(crate) const fn new(low: u32, high: u32, meaning: Meaning) -> Self {
        Self { high, low, meaning }
    }

    /// Mask of this part within its field.
    #[must_use]
    pub const fn mask(&self) -> u64 {
        u64::MAX >> (63 - (self.high - self.low)) << self.low
    }

    /// Value of this part in the field value `field`.
    #[must_use]
    pub const fn value(&self, field: u64) -> u64 {
        (field & self.mask()) >> self.low
    }

    /// Meaning of this part in the field value `field`, as text.
    #[must_use]
    pub const fn meaning(&self, field: u64) -> impl Display {
        Shown(&self.meaning, self.value(field))
    }
}

struct Shown<'a>(&'a Meaning, u64);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let value = self.1;
        match self.0 {
            Meaning::If(what, so) if value == 0 => write!(f, "{what}: not {so}"),
            Meaning::If(what, so) => write!(f, "{what}: {so}"),
            Meaning::Either(clear, set) => f.write_str(if value == 0 { clear } else { set }),
            Meaning::Code(what, values) => {
                let known = values.get(value as usize).filter(|text| !text.is_empty());
                write!(f, "{what}: {}", known.unwrap_or(&"reserved"))
            }
            Meaning::Number(show) => show(value, f),
        }
    }
}

macro_rules! part {
    ($bit:literal, $($meaning:tt)+) => { $crate::wire::bits::part!($bit..=$bit, $($meaning)+) };
    ($low:literal..=$high:literal, $($meaning:tt)+) => {
        $crate::wire::bits::Part::new($low, $high, $crate::wire::bits::meaning!($($meaning)+))
    };
}

macro_rules! meaning {
    (supports $what:literal) => { $crate::wire::bits::Meaning::If($what, "supported") };
    (reports $what:literal) => { $crate::wire::bits::Meaning::If($what, "reported") };
    ($clear:literal | $set:literal) => { $crate::wire::bits::Meaning::Either($clear, $set) };
    ($what:literal [$($value:literal),+]) => {
        $crate::wire::bits::Meaning::Code($what, &[$($value),+])
    };
    ($number:expr) => { $crate::wire::bits::Meaning::Number($number) };
}

macro_rules! about {
    (supports $what:literal) => {
        concat!("Support of ", $what, ".")
    };
    (reports $what:literal) => {
        concat!("Report of ", $what, ".")
    };
    ($clear:literal | $set:literal) => {
        concat!("0: ", $clear, "; 1: ", $set, ".")
    };
}

macro_rules! bit_fields {
    (
        $(#[$meta:meta])*
        $list:ident;
        $(
            $name:literal $($type:ident)?
            $($width:literal { $($low:literal $(..=$high:literal)? ($($meaning:tt)+);)+ })?;
        )+
    ) => {
        $(#[$meta])*
        pub const $list: &[$crate::wire::bits::BitField] = &[$($crate::wire::bits::BitField {
            name: $name,
            $(
                width: 8 * core::mem::size_of::<$type>() as u32,
                parts: $type::PARTS,
            )?
            $(
                width: $width,
                parts: &[$($crate::wire::bits::part!($low $(..=$high)?, $($meaning)+)),+],
            )?
        }),+];
    };
}

pub(crate) use {about, bit_fields, meaning, part};

#[cfg(test)]
mod tests {
    use super::super::{feature, identify, log, property};
    use super::*;

    #[test]
    fn parts_are_within_their_field_and_do_not_overlap() {
        let lists = [
            identify::CONTROLLER_BITS,
            identify::NAMESPACE_BITS,
            property::PROPERTY_BITS,
            feature::FEATURE_BITS,
            feature::CAPABILITY_BITS,
            log::LOG_BITS,
            log::EFFECT_BITS,
        ];
        for BitField { name, width, parts } in lists.into_iter().flatten() {
            let mut seen = 0;
            assert!(!parts.is_empty(), "{name}");
            for part in *parts {
                let (high, low) = (part.high, part.low);
                assert!(low <= high && high < *width, "{name} [{high}:{low}]");
                assert_eq!(part.mask() & seen, 0, "{name} [{high}:{low}]");
                seen |= part.mask();
                if let Meaning::Code(_, values) = part.meaning {
                    assert!(values.len() <= 1 << (high - low + 1), "{name}");
                }
            }
        }
    }
}
