//! Server side of `rping`.
//!
//! The client sends the location of its data; the server READs the data and confirms. The client then sends the
//! destination of the echo; the server WRITEs the data there and confirms. A message of the client has 16 bytes,
//! big-endian: address (8), key (4), length (4). Messages of the server have no content.

use cairn_rdma::{CompletionKind, RemoteBuffer};

use crate::station::Step;

const MESSAGE_BYTES: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Source,
    Fetching,
    Sink,
}

#[derive(Debug)]
pub(crate) struct Rping {
    turn: Turn,
    length: u32,
    length_max: u32,
    pings: u64,
    bytes: u64,
}

impl Rping {
    pub(crate) fn new(length_max: u32) -> Self {
        Self {
            turn: Turn::Source,
            length: 0,
            length_max,
            pings: 0,
            bytes: 0,
        }
    }

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
                // A queue pair executes in order, so the answer arrives after the WRITE.
                Ok(Step::WriteAndSay {
                    buffer,
                    length: self.length.min(length),
                    answer: vec![0; MESSAGE_BYTES],
                })
            }
        }
    }

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
