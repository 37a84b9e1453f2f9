//! Connection messages (IBTA 12.6), and the RDMA IP CM header of a REQ (annex A11).

pub mod bare;
pub mod dreq;
pub mod ip_cm;
pub mod lap;
pub mod long_send;
pub mod mra;
pub mod rej;
pub mod rep;
pub mod req;
pub mod sidr;

pub use bare::{Drep, Rtu};
pub use dreq::Dreq;
pub use ip_cm::IpCm;
pub use lap::{Apr, Lap};
pub use long_send::LongSend;
pub use mra::Mra;
pub use rej::{Rej, RejReason};
pub use rep::Rep;
pub use req::Req;
pub use sidr::{SidrRep, SidrReq};

use super::mad::{MAD_BODY_LEN, MAD_LEN, MadHeader};
use super::{Header, field};

/// Body of a message: 232 bytes after the MAD header.
pub type Body = [u8; MAD_BODY_LEN];

/// Communication ids of sender and receiver. A REQ has only the sender's, SIDR messages have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommIds {
    /// Local Communication ID: the sender's, or 0.
    pub local: u32,
    /// Remote Communication ID: the receiver's.
    pub remote: u32,
}

impl CommIds {
    fn read(b: &Body) -> Self {
        Self {
            local: field::u32(b, 0),
            remote: field::u32(b, 4),
        }
    }

    fn write(self, b: &mut Body) {
        field::put(b, 0, &self.local.to_be_bytes());
        field::put(b, 4, &self.remote.to_be_bytes());
    }
}

/// Message that an MRA or REJ answers (IBTA 12.6.6.2, 12.6.7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Answered {
    /// REQ.
    Req = 0,
    /// REP.
    Rep = 1,
    /// Another message; in an MRA, a LAP.
    Other = 2,
}

impl Answered {
    const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Req,
            1 => Self::Rep,
            _ => Self::Other,
        }
    }
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Connection message.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(clippy::large_enum_variant)] // never stored
        pub enum Message { $($(#[$doc])* $name($name),)* }

        impl Message {
            /// Parses a datagram; `None` if too short or unsupported.
            #[must_use]
            pub fn parse(mad: &[u8]) -> Option<(MadHeader, Self)> {
                let (header, rest) = MadHeader::parse(mad)?;
                let body: &Body = rest.first_chunk()?;
                let message = match header.attribute {
                    _ if !header.is_cm() => return None,
                    $($name::ATTRIBUTE => Self::$name($name::read(body)),)*
                    _ => return None,
                };
                Some((header, message))
            }

            /// Writes the message to a datagram.
            #[must_use]
            pub fn emit(&self, transaction_id: u64) -> [u8; MAD_LEN] {
                let mut mad = [0; MAD_LEN];
                let attribute = match self { $(Self::$name(_) => $name::ATTRIBUTE,)* };
                let body = MadHeader::cm(attribute, transaction_id).emit(&mut mad);
                let body: &mut Body = body.try_into().expect("a MAD is a header and a body");
                match self { $(Self::$name(message) => message.write(body),)* }
                mad
            }
        }
    };
}

messages! {
    /// Request for communication.
    Req,
    /// Message receipt acknowledgement.
    Mra,
    /// Reject.
    Rej,
    /// Reply to request.
    Rep,
    /// Ready to use.
    Rtu,
    /// Request for communication release.
    Dreq,
    /// Reply to a DREQ.
    Drep,
    /// Load alternate path.
    Lap,
    /// Alternate path response.
    Apr,
    /// Service ID resolution request.
    SidrReq,
    /// Service ID resolution response.
    SidrRep,
}

/// Returns `bytes` truncated or padded with zeros to `N` bytes.
#[must_use]
pub fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut data = [0; N];
    let length = bytes.len().min(N);
    data[..length].copy_from_slice(&bytes[..length]);
    data
}
