//! The server's half of `rping`.
//!
//! A ping is four messages of 16 bytes and two transfers, all on one connection:
//! the client says where its data is, and the server READs it and says so; the
//! client says where the echo goes, and the server WRITEs it and says so.
//! What the client says is big endian: address (8 bytes), key (4), length (4).
//! What the server says back has the same size, and no content that matters.

use cairn_rdma::{CompletionKind, RemoteBuffer};

use crate::station::Step;

/// Of an advertisement, and of the answer to one.
const MESSAGE_BYTES: usize = 16;

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The client's, to say where its data is.
    Source,
    /// Ours: the data is on its way here.
    Fetching,
    /// The client's, to say where the echo goes.
    Sink,
}

/// One connection of a client.
#[derive(Debug)]
pub(crate) struct Rping {
    turn: Turn,
    length: u32,
    length_max: u32,
    pings: u64,
    bytes: u64,
}

impl Rping {
    /// Before the first ping. No ping may be longer than `length_max`.
    pub(crate) fn new(length_max: u32) -> Self {
        Self {
            turn: Turn::Source,
            length: 0,
            length_max,
            pings: 0,
            bytes: 0,
        }
    }

    /// The client said something.
    pub(crate) fn receive(&mut self, message: &[u8]) -> Result<Step, String> {
        let (buffer, length) = advertised(message)
            .ok_or_else(|| format!("an rping says {MESSAGE_BYTES} bytes, not {}", message.len()))?;
        match self.turn {
            Turn::Source if length > self.length_max => Err(format!(
                "a ping of {length} bytes is more than {}: run rping with a smaller -S",
                self.length_max
            )),
            Turn::Source => {
                (self.turn, self.length) = (Turn::Fetching, length);
                Ok(Step::Read { buffer, length })
            }
            Turn::Fetching => Err("an rping spoke out of turn".to_owned()),
            Turn::Sink => {
                self.turn = Turn::Source;
                self.pings += 1;
                self.bytes += u64::from(self.length);
                // The answer follows the echo on the same wire: no need to wait between them.
                Ok(Step::WriteAndSay {
                    buffer,
                    length: self.length.min(length),
                    answer: vec![0; MESSAGE_BYTES],
                })
            }
        }
    }

    /// Work of ours is done.
    pub(crate) fn completed(&mut self, kind: CompletionKind) -> Result<Step, String> {
        if kind != CompletionKind::Read {
            return Ok(Step::Wait);
        }
        self.turn = Turn::Sink;
        Ok(Step::Say(vec![0; MESSAGE_BYTES]))
    }

    pub(crate) fn summary(&self) -> String {
        format!("rping, {} pings, {} bytes", self.pings, self.bytes)
    }
}

fn advertised(message: &[u8]) -> Option<(RemoteBuffer, u32)> {
    let message: &[u8; MESSAGE_BYTES] = message.try_into().ok()?;
    let (addr, rest) = message.split_first_chunk()?;
    let (rkey, length) = rest.split_first_chunk()?;
    let buffer = RemoteBuffer {
        addr: u64::from_be_bytes(*addr),
        rkey: u32::from_be_bytes(*rkey),
    };
    Some((buffer, u32::from_be_bytes(length.try_into().ok()?)))
}
