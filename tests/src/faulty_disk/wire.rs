//! FUSE protocol (linux/fuse.h) for one file.

pub(super) const WRITE_MAX: usize = 1 << 20;
pub(super) const REQUEST_MAX: usize = WRITE_MAX + 4096;
const ROOT_INODE: u64 = 1;

const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Call {
    Init,
    GetAttributes,
    SetAttributes {
        length: Option<u64>,
    },
    Open,
    Statistics,
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        data: Vec<u8>,
    },
    Sync,
    Allocate {
        mode: u32,
        offset: u64,
        length: u64,
    },
    Interrupt {
        id: u64,
    },
    Close,
    /// The kernel expects a response without data.
    Nothing,
    /// The kernel expects no response.
    Forget,
    Unknown,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) call: Call,
}

impl Request {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let id = u64_at(bytes, 8);
        let body = &bytes[IN_HEADER..];
        let call = match u32_at(bytes, 4) {
            2 | 42 => Call::Forget,
            3 => Call::GetAttributes,
            4 => Call::SetAttributes {
                length: (u32_at(body, 0) & (1 << 3) != 0).then(|| u64_at(body, 16)),
            },
            14 => Call::Open,
            15 => Call::Read {
                offset: u64_at(body, 8),
                length: u32_at(body, 16),
            },
            16 => {
                let length = u32_at(body, 16) as usize;
                Call::Write {
                    offset: u64_at(body, 8),
                    data: body[40..40 + length].to_vec(),
                }
            }
            17 => Call::Statistics,
            25 => Call::Close,
            18 | 38 => Call::Nothing,
            20 => Call::Sync,
            26 => Call::Init,
            36 => Call::Interrupt {
                id: u64_at(body, 0),
            },
            43 => Call::Allocate {
                offset: u64_at(body, 8),
                length: u64_at(body, 16),
                mode: u32_at(body, 24),
            },
            _ => Call::Unknown,
        };
        Self { id, call }
    }
}

pub(super) fn answer(id: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = header(OUT_HEADER + body.len(), 0, id);
    bytes.extend_from_slice(body);
    bytes
}

pub(super) fn error(id: u64, errno: i32) -> Vec<u8> {
    header(OUT_HEADER, -errno, id)
}

fn header(length: usize, error: i32, id: u64) -> Vec<u8> {
    let mut bytes = (length as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&error.to_le_bytes());
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes
}

/// Returns a `fuse_init_out` of protocol 7.31. With `asynchronous`, direct I/O neither blocks the
/// calling thread nor holds the file's lock.
pub(super) fn init_body(asynchronous: bool) -> Vec<u8> {
    const ASYNC_READ: u32 = 1 << 0;
    const BIG_WRITES: u32 = 1 << 5;
    const ASYNC_DIO: u32 = 1 << 15;
    const MAX_PAGES: u32 = 1 << 22;
    let chosen = if asynchronous { ASYNC_DIO } else { 0 };
    let flags = ASYNC_READ | BIG_WRITES | MAX_PAGES | chosen;
    let mut body = words(&[7, 31, 0, flags]);
    let pages = (WRITE_MAX / 4096) as u32;
    body.extend(words(&[u32::MAX, WRITE_MAX as u32, 1, pages]));
    body.resize(64, 0);
    body
}

pub(super) fn attributes_body(length: u64) -> Vec<u8> {
    let mut body = vec![0; 16];
    for value in [ROOT_INODE, length, length.div_ceil(512), 0, 0, 0] {
        body.extend_from_slice(&value.to_le_bytes());
    }
    body.extend(words(&[0, 0, 0, 0o100_600, 1, 0, 0, 0, 4096, 0]));
    body
}

pub(super) fn statistics_body() -> [u8; 80] {
    [0; 80]
}

pub(super) fn open_body() -> Vec<u8> {
    const DIRECT_IO: u32 = 1 << 0;
    const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    words(&[0, 0, DIRECT_IO | PARALLEL_DIRECT_WRITES, 0])
}

pub(super) fn write_body(length: usize) -> Vec<u8> {
    words(&[length as u32, 0])
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
