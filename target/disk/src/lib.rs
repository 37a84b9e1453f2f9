//! Block I/O, independent of the network.
//!
//! A [`Backend`] is a disk shared by all threads: a file, block device, NVMe drive, Ceph image,
//! memory, or zeroes. Each thread has a [`Ring`], its own io_uring for I/O and sleeping, and an
//! [`Arena`] of buffers. [`Backend::begin`] starts a [`BlockIo`], and [`Backend::resume`] continues
//! it with each completion of [`Ring::pop`] until [`Progress::Done`]. The upper 8 bits of a tag
//! must be 0.
//!
//! Offsets and lengths are in bytes, unless a field says blocks. Errors are errnos or drive
//! statuses ([`Errno`]). Operations on files allocate no memory, take no lock and format no text,
//! except on worker threads.
//!
//! ```
//! use cairn_disk::{Arena, Backend, BlockIo, BlockOp, Claim, Finished, Formers, FoundPath};
//! use cairn_disk::{Progress, Ring};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let image = tempfile::NamedTempFile::new()?;
//! # image.as_file().set_len(1 << 20)?;
//! let path = FoundPath::find(image.path())?.admit(|_| Ok(true))?;
//! let disk = Backend::open(&path, None, Claim::default(), &Formers::default())?;
//! let mut ring = Ring::new(32)?;
//! let file = disk.add_to(&mut ring)?;
//!
//! let mut arena = Arena::new(0, 1 << 20, 64 << 10)?;
//! arena.set_slot(ring.add_buffer(arena.mapping())?);
//! let buffer = arena.pool().take(4096).expect("the pool is empty");
//! arena.write(&buffer, &[7; 4096]);
//!
//! let span = arena.span(&buffer, 4096);
//! let mut io = BlockIo::new(BlockOp::Write { durable: true }, 8192, 4096, Some(span));
//! let mut progress = disk.begin(&mut io, &mut ring, file, 1);
//! let result = loop {
//!     match progress {
//!         Progress::Done(result) => break result,
//!         Progress::Later => {
//!             std::thread::sleep(io.pause());
//!             progress = disk.begin(&mut io, &mut ring, file, 1);
//!         }
//!         Progress::Pending => {
//!             ring.wait(None)?;
//!             if let Some(Finished::Operation { tag: 1, result }) = ring.pop() {
//!                 progress = disk.resume(&mut io, result, &mut ring, file, 1);
//!             }
//!         }
//!     }
//! };
//! assert_eq!(result, Ok(()));
//! arena.pool().give(buffer);
//! # Ok(())
//! # }
//! ```

// Public items are for `cairn-target`; names and types document them.
#![allow(missing_docs)]

mod arena;
mod backend;
mod contention;
mod idle;
mod memlock;
mod nvme;
mod pool;
mod ring;
mod simulated_disk;
mod sleep_trial;
mod submission;
mod timely;
mod workers;

pub use cairn_rbd::wait_for_closes as wait_for_images;

pub use arena::Arena;
pub use backend::{
    AdmittedPath, Atomic, Backend, BlockIo, BlockOp, Claim, Errno, Formers, FoundPath, Geometry,
    IN_USE_PATIENCE, Names, OpenError, Preferred, Progress, Scope, copied_identity, where_to_look,
};
pub use contention::Contention;
pub use idle::{Idle, Pause};
pub use nvme::Hints;
pub use pool::{Buffer, Pool, UNIT, rounded};
pub use ring::{BUFFERS_MAX, FileSlot, Finished, ROUND_GAP, Ring, Span, disks_max};
pub use simulated_disk::{CacheFate, Habits, Lie, Operation, SimulatedDisk};
