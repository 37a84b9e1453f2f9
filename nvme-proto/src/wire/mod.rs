//! Wire structures of NVMe and NVMe over Fabrics.
//!
//! Fields have the specification's mnemonics. Every byte sequence of the right length is a valid
//! structure ([`FromBytes`]). Reserved bits are sent unchanged ([`IntoBytes`]).
//!
//! ```
//! use nvme_proto::wire::{Cqe, IntoBytes, NvmOpcode, Sgl, SglDescriptor, Sqe, Status};
//!
//! // A host writes a command capsule with 512 bytes of in-capsule data.
//! let mut sqe = Sqe::new(7, NvmOpcode::WRITE.0, 1);
//! sqe.dptr = SglDescriptor::in_capsule(0, 512);
//! let capsule = [sqe.as_bytes(), &[0; 512]].concat();
//!
//! // A target splits it.
//! let (sqe, data) = Sqe::split_capsule(&capsule).unwrap();
//! assert_eq!((sqe.cid.get(), data.len()), (7, 512));
//! assert_eq!(sqe.dptr.parse(), Ok(Sgl::InCapsule { offset: 0, length: 512 }));
//! assert!(Sqe::split_capsule(&capsule[..63]).is_none());
//!
//! let cqe = Cqe::new(7, 0, Status::LBA_OUT_OF_RANGE.with_dnr(), 0);
//! assert_eq!(cqe.status().to_string(), "LBA Out of Range (0/80h, do not retry)");
//! ```

macro_rules! assert_size {
    ($($name:ty = $bytes:expr),+ $(,)?) => {
        $(const _: () = assert!(core::mem::size_of::<$name>() == $bytes);)+
    };
}

/// Declares an integer type with named bit fields, each with a getter and a `with_` method that
/// returns a changed copy. A meaning in parentheses explains a field; `bits` explains unnamed bits.
macro_rules! bitfields {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($repr:ident);
        $(fields {
            $(
                $(#[$fmeta:meta])* $field:ident $with_field:ident: $ftype:ident
                    = $low:literal..=$high:literal $(($($fmeaning:tt)+))?;
            )+
        })?
        $(flags {
            $($(#[$bmeta:meta])* $flag:ident $with_flag:ident = $bit:literal $(($($bmeaning:tt)+))?;)+
        })?
        $(bits { $($first:literal $(..=$last:literal)? ($($meaning:tt)+);)+ })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub $repr);

        impl $name {
            #[allow(dead_code, reason = "bits of some types are in no list")]
            pub(crate) const PARTS: &'static [$crate::wire::bits::Part] = &[
                $($($($crate::wire::bits::part!($low..=$high, $($fmeaning)+),)?)+)?
                $($($($crate::wire::bits::part!($bit, $($bmeaning)+),)?)+)?
                $($($crate::wire::bits::part!($first $(..=$last)?, $($meaning)+),)+)?
            ];

            $($(
                $(#[$fmeta])*
                #[must_use]
                pub const fn $field(self) -> $ftype {
                    ((self.0 >> $low) & ($repr::MAX >> ($repr::BITS - 1 - ($high - $low)))) as $ftype
                }
                /// Returns a copy with this field, truncated to its width.
                #[must_use]
                pub const fn $with_field(self, value: $ftype) -> Self {
                    let mask = $repr::MAX >> ($repr::BITS - 1 - ($high - $low));
                    Self((self.0 & !(mask << $low)) | ((value as $repr & mask) << $low))
                }
            )+)?
            $($(
                $(#[$bmeta])*
                $(#[doc = $crate::wire::bits::about!($($bmeaning)+)])?
                #[must_use]
                pub const fn $flag(self) -> bool {
                    self.0 & (1 << $bit) != 0
                }
                /// Returns a copy with this bit set or cleared.
                #[must_use]
                pub const fn $with_flag(self, value: bool) -> Self {
                    Self((self.0 & !(1 << $bit)) | ((value as $repr) << $bit))
                }
            )+)?
        }
    };
}

/// Declares an integer type with named values.
macro_rules! codes {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($repr:ident);
        $($value:literal $code:ident $text:literal;)+
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $repr);

        impl $name {
            $(
                #[doc = $text]
                pub const $code: Self = Self($value);
            )+

            /// Name in the specification, `None` if undefined.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)+
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name} ({:02X}h)", self.0),
                    None => write!(f, "{:02X}h", self.0),
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

pub mod aen;
pub mod bits;
pub mod cm;
pub mod cqe;
pub mod cross_reset;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod nqn;
pub mod property;
pub mod reservation;
pub mod sgl;
pub mod sqe;
pub mod status;

pub use cqe::Cqe;
pub use nqn::{Escaped, Nqn, Quoted};
pub use sgl::{Sgl, SglDescriptor};
pub use sqe::{AdminOpcode, FabricsType, NvmOpcode, Sqe};
pub use status::Status;
pub use zerocopy::little_endian::{U16, U32, U64, U128};
pub use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// NSID for all namespaces (Base, 3.2.1.2).
pub const NSID_ALL: u32 = 0xffff_ffff;
