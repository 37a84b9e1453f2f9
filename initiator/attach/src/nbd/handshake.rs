//! Handshake of NBD: fixed newstyle, with structured replies. TLS is not supported.

use super::wire::{
    CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, HANDSHAKE_FLAGS, IHAVEOPT, NBDMAGIC,
    OPTION_REPLY_MAGIC, be16, be32, be64, info, option, reply, transmission_flags,
};
use crate::request::Limits;

/// Maximum data of an option, enough for a name of 4096 bytes and a list of information types.
const OPTION_BYTES_MAX: usize = 8 << 10;
/// Size of an option without its data.
const OPTION_HEAD: usize = 16;

/// State of a handshake. The client's bytes go in, the server's come out.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    client_flags: Option<u32>,
    is_structured: bool,
    /// Remaining bytes of an option that is too long.
    skipped: usize,
}

/// Progress of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// More bytes are needed.
    Incomplete,
    /// The transmission phase begins.
    Ready {
        /// True for structured replies.
        is_structured: bool,
    },
    /// The client has ended the session or violated the protocol.
    End,
}

impl Handshake {
    /// Greeting of the server.
    pub(super) fn greeting() -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[..8].copy_from_slice(&NBDMAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&IHAVEOPT.to_be_bytes());
        bytes[16..].copy_from_slice(&HANDSHAKE_FLAGS.to_be_bytes());
        bytes
    }

    /// Consumes bytes of `input`, and appends answers to `out`. Returns the number of consumed
    /// bytes.
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        limits: &Limits,
        out: &mut Vec<u8>,
    ) -> (usize, Progress) {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            if self.skipped > 0 {
                let skipped = self.skipped.min(rest.len());
                (self.skipped, used) = (self.skipped - skipped, used + skipped);
                if self.skipped > 0 {
                    return (used, Progress::Incomplete);
                }
                continue;
            }
            if self.client_flags.is_none() {
                if rest.len() < 4 {
                    return (used, Progress::Incomplete);
                }
                let flags = be32(rest, 0);
                let known = CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES;
                if flags & !known != 0 || flags & CLIENT_FIXED_NEWSTYLE == 0 {
                    return (used, Progress::End);
                }
                self.client_flags = Some(flags);
                used += 4;
                continue;
            }
            if rest.len() < OPTION_HEAD {
                return (used, Progress::Incomplete);
            }
            let (kind, length) = (be32(rest, 8), be32(rest, 12) as usize);
            if be64(rest, 0) != IHAVEOPT {
                return (used, Progress::End);
            }
            if length > OPTION_BYTES_MAX {
                // EXPORT_NAME has no error reply.
                if kind == option::EXPORT_NAME {
                    return (used, Progress::End);
                }
                answer(out, kind, reply::ERR_TOO_BIG, &[]);
                (self.skipped, used) = (length, used + OPTION_HEAD);
                continue;
            }
            let Some(data) = rest[OPTION_HEAD..].get(..length) else {
                return (used, Progress::Incomplete);
            };
            used += OPTION_HEAD + length;
            match self.option(kind, data, limits, out) {
                Progress::Incomplete => {}
                end => return (used, end),
            }
        }
    }

    fn option(&mut self, kind: u32, data: &[u8], limits: &Limits, out: &mut Vec<u8>) -> Progress {
        match kind {
            option::EXPORT_NAME if data.is_empty() => {
                out.extend(limits.bytes.to_be_bytes());
                out.extend(transmission_flags(limits, self.is_structured).to_be_bytes());
                if self.client_flags.unwrap_or(0) & CLIENT_NO_ZEROES == 0 {
                    out.extend([0; 124]);
                }
                return self.ready();
            }
            option::EXPORT_NAME => return Progress::End,
            option::ABORT => {
                answer(out, kind, reply::ACK, &[]);
                return Progress::End;
            }
            option::LIST if data.is_empty() => {
                // The only export has the empty name.
                answer(out, kind, reply::SERVER, &[0; 4]);
                answer(out, kind, reply::ACK, &[]);
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.is_structured = true;
                answer(out, kind, reply::ACK, &[]);
            }
            option::LIST | option::STRUCTURED_REPLY => answer(out, kind, reply::ERR_INVALID, &[]),
            option::INFO | option::GO => match wanted_name(data) {
                None => answer(out, kind, reply::ERR_INVALID, &[]),
                Some(name) if !name.is_empty() => answer(out, kind, reply::ERR_UNKNOWN, &[]),
                Some(_) => {
                    self.describe(kind, limits, out);
                    answer(out, kind, reply::ACK, &[]);
                    if kind == option::GO {
                        return self.ready();
                    }
                }
            },
            _ => answer(out, kind, reply::ERR_UNSUP, &[]),
        }
        Progress::Incomplete
    }

    fn ready(&self) -> Progress {
        Progress::Ready {
            is_structured: self.is_structured,
        }
    }

    fn describe(&self, kind: u32, limits: &Limits, out: &mut Vec<u8>) {
        let mut export = Vec::from(info::EXPORT.to_be_bytes());
        export.extend(limits.bytes.to_be_bytes());
        export.extend(transmission_flags(limits, self.is_structured).to_be_bytes());
        answer(out, kind, reply::INFO, &export);
        let mut sizes = Vec::from(info::BLOCK_SIZE.to_be_bytes());
        let preferred = limits.block_bytes.max(4096);
        for bytes in [limits.block_bytes, preferred, super::PAYLOAD_BYTES_MAX] {
            sizes.extend(bytes.to_be_bytes());
        }
        answer(out, kind, reply::INFO, &sizes);
    }
}

/// Returns the export name of INFO or GO, or `None` for malformed data. The list of wanted
/// information types is ignored, because all are sent.
fn wanted_name(data: &[u8]) -> Option<&[u8]> {
    let length = be32(data.get(..4)?, 0) as usize;
    let name = data[4..].get(..length)?;
    let rest = &data[4 + length..];
    let count = usize::from(be16(rest.get(..2)?, 0));
    (rest.len() == 2 + 2 * count).then_some(name)
}

fn answer(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}
