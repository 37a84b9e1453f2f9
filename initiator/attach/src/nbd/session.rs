//! Session of NBD with one client, without I/O: the client's bytes go in, the server's come out.

use std::collections::VecDeque;

use cairn_initiator::Buffer;

use super::PAYLOAD_BYTES_MAX;
use super::handshake::{Handshake, Progress};
use super::wire::{
    CHUNK_DONE, CHUNK_ERROR, CHUNK_OFFSET_DATA, Header, Parsed, REQUEST_BYTES, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC, error_number, parse,
};
use crate::request::{Done, Errno, Limits, Operation, Request};

/// Bytes read from the client and not yet parsed.
const INPUT_BYTES: usize = 256 << 10;
/// Output that stops the parsing of requests.
const OUTPUT_BYTES: usize = 512 << 10;
/// Maximum requests of a client under way.
const REQUESTS_MAX: usize = (crate::disk::REQUESTS_MAX / super::CONNECTIONS_MAX) as usize;

/// Identifies a request to its connection.
#[derive(Debug, Clone, Copy)]
pub struct Tag<C> {
    pub(crate) connection: C,
    handle: u64,
    offset: u64,
    /// Bytes of a read, else 0.
    bytes: u32,
    is_read: bool,
}

#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    Transmission { is_structured: bool },
}

/// Request whose data is being received.
#[derive(Debug)]
struct Incoming {
    header: Header,
    operation: Operation,
    memory: Vec<Buffer>,
    filled: usize,
}

/// Reply that is not yet completely in the output.
#[derive(Debug)]
struct Reply {
    head: Vec<u8>,
    memory: VecDeque<Buffer>,
    bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Session {
    phase: Phase,
    limits: Limits,
    input: Box<[u8]>,
    parsed: usize,
    filled: usize,
    incoming: Option<Incoming>,
    /// Remaining data of a refused write.
    skipped: usize,
    /// Memory not used by a request.
    spare: Vec<Buffer>,
    under_way: usize,
    output: Vec<u8>,
    sent: usize,
    replies: VecDeque<Reply>,
    has_ended: bool,
}

impl Session {
    /// Starts with a handshake. `memory` must be able to hold [`PAYLOAD_BYTES_MAX`] bytes.
    pub(crate) fn with_handshake(limits: Limits, memory: Vec<Buffer>) -> Self {
        let mut session = Self::with_phase(Phase::Handshake(Handshake::default()), limits, memory);
        session.output.extend(Handshake::greeting());
        session
    }

    /// Starts in the transmission phase, with simple replies, as the kernel's client requires.
    pub(crate) fn without_handshake(limits: Limits, memory: Vec<Buffer>) -> Self {
        let phase = Phase::Transmission {
            is_structured: false,
        };
        Self::with_phase(phase, limits, memory)
    }

    fn with_phase(phase: Phase, limits: Limits, memory: Vec<Buffer>) -> Self {
        assert!(memory.len() >= limits.pieces(PAYLOAD_BYTES_MAX.into()));
        Self {
            phase,
            limits,
            input: vec![0; INPUT_BYTES].into(),
            parsed: 0,
            filled: 0,
            incoming: None,
            skipped: 0,
            spare: memory,
            under_way: 0,
            output: Vec::new(),
            sent: 0,
            replies: VecDeque::new(),
            has_ended: false,
        }
    }

    /// Place for the client's next bytes. Empty if requests must end first, or after the end.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.has_ended {
            return &mut [];
        }
        if self.parsed > 0 {
            self.input.copy_within(self.parsed..self.filled, 0);
            self.filled -= self.parsed;
            self.parsed = 0;
        }
        &mut self.input[self.filled..]
    }

    /// Records that the client's next `bytes` bytes are in [`Self::room`].
    pub(crate) fn received(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// Bytes for the client.
    pub(crate) fn output(&mut self) -> &[u8] {
        self.fill_output();
        &self.output[self.sent..]
    }

    /// Records that the client received the first `bytes` bytes of the output.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// Ends the session: the client is gone.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
        if let Some(incoming) = self.incoming.take() {
            self.spare.extend(incoming.memory);
        }
    }

    /// True after the end, once no request is under way and the output is sent or `is_broken`.
    pub(crate) fn is_over(&mut self, is_broken: bool) -> bool {
        self.has_ended && self.under_way == 0 && (is_broken || self.output().is_empty())
    }

    /// Parses the client's bytes until a request is complete. Returns `None` if bytes, memory or
    /// room in the output are missing.
    pub(crate) fn next<C>(&mut self, connection: C) -> Option<Request<Tag<C>>> {
        while !self.has_ended {
            if matches!(self.phase, Phase::Handshake(_)) {
                self.shake_hands()?;
                continue;
            }
            let skipped = self.skipped.min(self.filled - self.parsed);
            self.skipped -= skipped;
            self.parsed += skipped;
            if self.skipped > 0 {
                return None;
            }
            let incoming = match self.incoming.take() {
                Some(incoming) => incoming,
                None => match self.begin()? {
                    Some(incoming) => incoming,
                    None => continue,
                },
            };
            let incoming = self.receive_data(incoming)?;
            self.under_way += 1;
            return Some(incoming.request(connection));
        }
        None
    }

    /// Returns `None` if more bytes are needed.
    fn shake_hands(&mut self) -> Option<()> {
        let Phase::Handshake(handshake) = &mut self.phase else {
            return Some(());
        };
        let input = &self.input[self.parsed..self.filled];
        let (used, progress) = handshake.advance(input, &self.limits, &mut self.output);
        self.parsed += used;
        match progress {
            Progress::Incomplete => return None,
            Progress::End => self.has_ended = true,
            Progress::Ready { is_structured } => {
                self.phase = Phase::Transmission { is_structured };
            }
        }
        Some(())
    }

    /// Parses the next request's header. Returns `None` if the header must wait, and `Some(None)`
    /// for a request that was answered here, or for the end of the session.
    fn begin(&mut self) -> Option<Option<Incoming>> {
        let is_full = self.under_way >= REQUESTS_MAX || self.output.len() >= OUTPUT_BYTES;
        let header = self.input[self.parsed..self.filled].first_chunk::<REQUEST_BYTES>();
        let header = header.filter(|_| !is_full)?;
        let Parsed::Request(header) = parse(header) else {
            self.has_ended = true;
            return Some(None);
        };
        let checked = header.operation.and_then(|operation| {
            let is_long = operation.has_data() && header.bytes > PAYLOAD_BYTES_MAX;
            let bytes = header.bytes.into();
            self.limits.check(operation, header.offset, bytes)?;
            match is_long {
                true => Err(Errno(libc::EINVAL)),
                false => Ok(operation),
            }
        });
        let Ok(operation) = checked else {
            self.parsed += REQUEST_BYTES;
            self.skipped = if header.has_payload {
                header.bytes as usize
            } else {
                0
            };
            self.under_way += 1;
            self.reply(&header.tag(()), checked.map(drop), Vec::new());
            return Some(None);
        };
        let pieces = match operation.has_data() {
            true => self.limits.pieces(header.bytes.into()),
            false => 0,
        };
        let rest = self.spare.len().checked_sub(pieces)?;
        self.parsed += REQUEST_BYTES;
        Some(Some(Incoming {
            header,
            operation,
            memory: self.spare.split_off(rest),
            filled: 0,
        }))
    }

    /// Copies the data of a write into its memory. Returns `None` if more bytes are needed.
    fn receive_data(&mut self, mut incoming: Incoming) -> Option<Incoming> {
        let bytes = match incoming.header.has_payload {
            true => incoming.header.bytes as usize,
            false => 0,
        };
        let piece_bytes = self.limits.piece_bytes as usize;
        while incoming.filled < bytes && self.parsed < self.filled {
            let (piece, at) = (incoming.filled / piece_bytes, incoming.filled % piece_bytes);
            let most = (bytes - incoming.filled).min(piece_bytes - at);
            let part = most.min(self.filled - self.parsed);
            let data = &self.input[self.parsed..self.parsed + part];
            incoming.memory[piece].write(at, data);
            incoming.filled += part;
            self.parsed += part;
        }
        if incoming.filled == bytes {
            return Some(incoming);
        }
        self.incoming = Some(incoming);
        None
    }

    /// Answers a request that [`Self::next`] returned.
    pub(crate) fn done<C>(&mut self, done: Done<Tag<C>>) {
        self.reply(&done.tag, done.result, done.memory);
    }

    fn reply<C>(&mut self, tag: &Tag<C>, result: Result<(), Errno>, mut memory: Vec<Buffer>) {
        self.under_way -= 1;
        let is_structured = matches!(
            self.phase,
            Phase::Transmission {
                is_structured: true
            }
        );
        let has_data = tag.is_read && result.is_ok();
        let mut head = Vec::with_capacity(32);
        if is_structured && tag.is_read {
            let (kind, length) = match result {
                Ok(()) => (CHUNK_OFFSET_DATA, 8 + tag.bytes),
                Err(_) => (CHUNK_ERROR, 6),
            };
            head.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
            head.extend(CHUNK_DONE.to_be_bytes());
            head.extend(kind.to_be_bytes());
            head.extend(tag.handle.to_be_bytes());
            head.extend(length.to_be_bytes());
            match result {
                Ok(()) => head.extend(tag.offset.to_be_bytes()),
                Err(errno) => {
                    head.extend(error_number(errno).to_be_bytes());
                    // Length of a message.
                    head.extend(0_u16.to_be_bytes());
                }
            }
        } else {
            let error = result.map_or_else(error_number, |()| 0);
            head.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
            head.extend(error.to_be_bytes());
            head.extend(tag.handle.to_be_bytes());
        }
        if !has_data {
            self.spare.append(&mut memory);
        }
        self.replies.push_back(Reply {
            head,
            bytes: if has_data { tag.bytes as usize } else { 0 },
            memory: memory.into(),
        });
        self.fill_output();
    }

    /// Moves replies into the output, as far as it has room. The memory of moved data is free
    /// again.
    fn fill_output(&mut self) {
        while self.output.len() - self.sent < OUTPUT_BYTES {
            let Some(reply) = self.replies.front_mut() else {
                return;
            };
            self.output.append(&mut reply.head);
            if let Some(piece) = reply.memory.pop_front() {
                let part = reply.bytes.min(piece.len());
                let at = self.output.len();
                self.output.resize(at + part, 0);
                piece.read(0, &mut self.output[at..]);
                reply.bytes -= part;
                self.spare.push(piece);
            }
            if reply.memory.is_empty() {
                self.replies.pop_front();
            }
        }
    }
}

impl Header {
    fn tag<C>(&self, connection: C) -> Tag<C> {
        let is_read = self.operation == Ok(Operation::Read);
        Tag {
            connection,
            handle: self.handle,
            offset: self.offset,
            bytes: if is_read { self.bytes } else { 0 },
            is_read,
        }
    }
}

impl Incoming {
    fn request<C>(self, connection: C) -> Request<Tag<C>> {
        Request {
            tag: self.header.tag(connection),
            operation: self.operation,
            offset: self.header.offset,
            bytes: self.header.bytes.into(),
            memory: self.memory,
        }
    }
}

#[cfg(test)]
mod tests;
