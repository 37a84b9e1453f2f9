//! Private data of RDMA connection requests, replies and rejects (RDMA, 7).
//!
//! Parsers accept the zero padding of the connection manager. The caller removes the 36-byte header
//! of the RDMA IP CM service.

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// RECFMT of every structure.
pub const RECFMT: u16 = 0;
/// CNTLID of a request for an admin queue.
pub const CNTLID_NONE: u16 = 0;

codes! {
    /// STS: reject reason (RDMA, figure 8).
    pub struct RejectStatus(u16);
    0x01 INVALID_LENGTH "Invalid Private Data Length";
    0x02 INVALID_RECFMT "Invalid RECFMT";
    0x03 INVALID_QID "Invalid QID";
    0x04 INVALID_HSQSIZE "Invalid HSQSIZE";
    0x05 INVALID_HRQSIZE "Invalid HRQSIZE";
    0x06 NO_RESOURCES "No Resources";
    0x07 INVALID_IRD "Invalid IRD";
    0x08 INVALID_ORD "Invalid ORD";
    0x09 INVALID_CNTLID "Invalid CNTLID";
}

impl core::error::Error for RejectStatus {}

/// Private data of a connection request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RequestData {
    /// RECFMT: 0.
    pub recfmt: U16,
    /// QID; 0 for the admin queue.
    pub qid: U16,
    /// Receives posted by the host, 1-based.
    pub hrqsize: U16,
    /// Maximum sends in flight from the host, 0-based.
    pub hsqsize: U16,
    /// CNTLID, for an I/O queue.
    pub cntlid: U16,
    /// Reserved.
    pub reserved: [u8; 22],
}
assert_size!(RequestData = 32);

impl RequestData {
    /// Creates private data with RECFMT 0.
    #[must_use]
    pub fn new(qid: u16, hrqsize: u16, hsqsize: u16, cntlid: u16) -> Self {
        Self {
            recfmt: U16::new(RECFMT),
            qid: U16::new(qid),
            hrqsize: U16::new(hrqsize),
            hsqsize: U16::new(hsqsize),
            cntlid: U16::new(cntlid),
            reserved: [0; 22],
        }
    }

    /// Parses the start of `private_data`.
    pub fn parse(private_data: &[u8]) -> Result<Self, RejectStatus> {
        let (request, _) =
            Self::read_from_prefix(private_data).map_err(|_| RejectStatus::INVALID_LENGTH)?;
        if request.recfmt.get() != RECFMT {
            return Err(RejectStatus::INVALID_RECFMT);
        }
        Ok(request)
    }
}

/// Private data of a reply.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReplyData {
    /// RECFMT: 0.
    pub recfmt: U16,
    /// Receives posted by the controller, 1-based.
    pub crqsize: U16,
    /// Reserved.
    pub reserved: [u8; 28],
}
assert_size!(ReplyData = 32);

impl ReplyData {
    /// Creates a reply for `crqsize` receives.
    #[must_use]
    pub fn new(crqsize: u16) -> Self {
        Self {
            recfmt: U16::new(RECFMT),
            crqsize: U16::new(crqsize),
            reserved: [0; 28],
        }
    }

    /// Parses the start of `private_data`.
    pub fn parse(private_data: &[u8]) -> Result<Self, RejectStatus> {
        let (reply, _) =
            Self::read_from_prefix(private_data).map_err(|_| RejectStatus::INVALID_LENGTH)?;
        if reply.recfmt.get() != RECFMT {
            return Err(RejectStatus::INVALID_RECFMT);
        }
        Ok(reply)
    }
}

/// Private data of a reject.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RejectData {
    /// RECFMT: 0.
    pub recfmt: U16,
    /// STS: [`RejectStatus`].
    pub sts: U16,
}
assert_size!(RejectData = 4);

impl RejectData {
    /// Creates a reject with this reason.
    #[must_use]
    pub fn new(status: RejectStatus) -> Self {
        Self {
            recfmt: U16::new(RECFMT),
            sts: U16::new(status.0),
        }
    }

    /// Parses the start of `private_data`.
    pub fn parse(private_data: &[u8]) -> Result<Self, RejectStatus> {
        let (reject, _) =
            Self::read_from_prefix(private_data).map_err(|_| RejectStatus::INVALID_LENGTH)?;
        if reject.recfmt.get() != RECFMT {
            return Err(RejectStatus::INVALID_RECFMT);
        }
        Ok(reject)
    }

    /// Reason of the reject.
    #[must_use]
    pub fn status(&self) -> RejectStatus {
        RejectStatus(self.sts.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_short_or_foreign_request_names_the_reject() {
        let request = RequestData::new(1, 128, 127, 1);
        let mut padded = [0u8; 56];
        padded[..32].copy_from_slice(request.as_bytes());
        assert_eq!(RequestData::parse(&padded), Ok(request));
        assert_eq!(RequestData::parse(&padded[..32]), Ok(request));
        assert_eq!(
            RequestData::parse(&padded[..31]),
            Err(RejectStatus::INVALID_LENGTH)
        );
        padded[1] = 1;
        assert_eq!(
            RequestData::parse(&padded),
            Err(RejectStatus::INVALID_RECFMT)
        );
    }

    #[test]
    fn a_reject_says_why() {
        let reject = RejectData::new(RejectStatus::NO_RESOURCES);
        assert_eq!(reject.as_bytes(), [0, 0, 6, 0]);
        let parsed = RejectData::parse(&[0, 0, 6, 0, 0, 0]).unwrap();
        assert_eq!(parsed.status().to_string(), "No Resources (06h)");
        assert_eq!(
            RejectData::parse(&[0, 0, 6]),
            Err(RejectStatus::INVALID_LENGTH)
        );
        assert_eq!(
            ReplyData::parse(&[0; 31]),
            Err(RejectStatus::INVALID_LENGTH)
        );
    }
}
