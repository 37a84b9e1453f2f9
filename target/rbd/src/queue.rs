use std::collections::VecDeque;
use std::ffi::c_void;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cairn_base::Mapping;
use cairn_base::wake::Wake;

use crate::image::{Handle, Image};
use crate::sys::{self, Completion};

/// Range of a mapping; keeps the mapping alive.
#[derive(Debug, Clone)]
pub struct Memory {
    mapping: Arc<Mapping>,
    at: usize,
    length: usize,
}

impl Memory {
    #[must_use]
    pub fn new(mapping: Arc<Mapping>, at: usize, length: usize) -> Self {
        let end = at.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= mapping.len()),
            "{length} bytes at {at} of {mapping:?}"
        );
        Self {
            mapping,
            at,
            length,
        }
    }

    fn addr(&self) -> *mut libc::c_char {
        (self.mapping.addr() as *mut libc::c_char).wrapping_add(self.at)
    }
}

/// Operation on an image. Offsets and lengths are in bytes.
#[derive(Debug, Clone)]
pub enum Work {
    Read {
        offset: u64,
        memory: Memory,
    },
    /// Writes memory to the image. Completes when all replicas have the data.
    Write {
        offset: u64,
        memory: Memory,
    },
    WriteZeroes {
        offset: u64,
        length: usize,
        allocated: bool,
    },
    /// Deallocates whole discard units; partial units keep their data.
    Discard {
        offset: u64,
        length: u64,
    },
    /// Completes after all writes that were started before.
    Flush,
}

struct Operation {
    shared: Arc<Shared>,
    tag: u64,
    image: Option<Arc<Handle>>,
    memory: Option<Memory>,
}

struct Ended {
    operation: Box<Operation>,
    result: Result<u32, i32>,
}

struct Shared {
    ended: Mutex<VecDeque<Ended>>,
    count: AtomicUsize,
    asleep: AtomicBool,
    closed: AtomicBool,
    wake: Wake,
}

impl Shared {
    fn ended(&self) -> MutexGuard<'_, VecDeque<Ended>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, ended: Ended) {
        let mut all = self.ended();
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        all.push_back(ended);
        self.count.store(all.len(), Ordering::Relaxed);
        drop(all);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.wake.wake();
        }
    }
}

/// Starts operations on images and collects their completions, for one thread.
pub struct Queue {
    shared: Arc<Shared>,
    #[expect(clippy::vec_box, reason = "the library knows each by its address")]
    free: Vec<Box<Operation>>,
    out: u32,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({} out)", self.out)
    }
}

impl Queue {
    /// Creates a queue, if an eventfd can be created.
    #[must_use]
    pub fn new() -> Option<Self> {
        let shared = Shared {
            ended: Mutex::default(),
            count: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            wake: Wake::new().ok()?,
        };
        Some(Self {
            shared: Arc::new(shared),
            free: Vec::new(),
            out: 0,
        })
    }

    /// Starts an operation without blocking. The completion comes from [`Self::pop`].
    pub fn submit(&mut self, image: &Image, tag: u64, work: &Work) {
        self.out += 1;
        let mut operation = self.free.pop().unwrap_or_else(|| {
            Box::new(Operation {
                shared: Arc::clone(&self.shared),
                tag,
                image: None,
                memory: None,
            })
        });
        operation.tag = tag;
        let handle = image.current();
        operation.image = Some(Arc::clone(&handle));
        operation.memory = match work {
            Work::Read { memory, .. } | Work::Write { memory, .. } => Some(memory.clone()),
            _ => None,
        };
        if let Err((operation, errno)) = begin(operation, &handle, work) {
            let result = Err(errno);
            self.shared.push(Ended { operation, result });
        }
    }

    /// Returns the next completion: tag, and bytes or errno.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, Result<u32, i32>)> {
        if self.shared.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut all = self.shared.ended();
        let Ended {
            mut operation,
            result,
        } = all.pop_front()?;
        self.shared.count.store(all.len(), Ordering::Relaxed);
        drop(all);
        let tag = operation.tag;
        (operation.image, operation.memory) = (None, None);
        self.free.push(operation);
        self.out -= 1;
        Some((tag, result))
    }

    /// Returns the number of started operations that [`Self::pop`] has not returned yet.
    #[must_use]
    pub fn out(&self) -> u32 {
        self.out
    }

    /// Prepares to sleep on [`Self::wake_fd`]. Returns `false` if a completion is ready.
    #[must_use]
    pub fn prepare_sleep(&self) -> bool {
        self.shared.asleep.store(true, Ordering::SeqCst);
        let quiet = self.shared.ended().is_empty();
        if !quiet {
            self.shared.asleep.store(false, Ordering::SeqCst);
        }
        quiet
    }

    /// Returns a descriptor that becomes readable on a completion after [`Self::prepare_sleep`].
    #[must_use]
    pub fn wake_fd(&self) -> RawFd {
        self.shared.wake.fd()
    }

    pub fn clear(&self) {
        self.shared.wake.clear();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut ended = self.shared.ended();
        self.shared.closed.store(true, Ordering::Relaxed);
        let left = std::mem::take(&mut *ended);
        drop(ended);
        drop(left);
    }
}

fn begin(
    operation: Box<Operation>,
    image: &Handle,
    work: &Work,
) -> Result<(), (Box<Operation>, i32)> {
    let functions = image.functions;
    let argument = Box::into_raw(operation);
    let mut completion: Completion = std::ptr::null_mut();
    // SAFETY: the completion is written before it is read. The argument stays a valid operation
    // until the callback takes it back.
    let made =
        unsafe { (functions.rbd_aio_create_completion)(argument.cast(), ended, &mut completion) };
    if made < 0 {
        // SAFETY: without a completion, there is no callback, so this function owns the operation.
        return Err((unsafe { Box::from_raw(argument) }, -made));
    }
    let it = image.image;
    // SAFETY: the operation keeps image and memory alive until the callback. The memory has this
    // length, and no Rust reference to the memory exists.
    let begun = unsafe {
        match work {
            Work::Read { offset, memory } => {
                (functions.rbd_aio_read)(it, *offset, memory.length, memory.addr(), completion)
            }
            Work::Write { offset, memory } => {
                (functions.rbd_aio_write)(it, *offset, memory.length, memory.addr(), completion)
            }
            Work::WriteZeroes {
                offset,
                length,
                allocated,
            } => {
                let flags = if *allocated { sys::ZEROES_THICK } else { 0 };
                (functions.rbd_aio_write_zeroes)(it, *offset, *length, completion, flags, 0)
            }
            Work::Discard { offset, length } => {
                (functions.rbd_aio_discard)(it, *offset, *length, completion)
            }
            Work::Flush => (functions.rbd_aio_flush)(it, completion),
        }
    };
    if begun >= 0 {
        return Ok(());
    }
    // SAFETY: an operation that failed to start has no callback, so this function owns completion
    // and argument.
    unsafe {
        (functions.rbd_aio_release)(completion);
        Err((Box::from_raw(argument), -begun))
    }
}

extern "C" fn ended(completion: Completion, argument: *mut c_void) {
    // SAFETY: the argument was made from a box for this callback, which happens once.
    let operation = unsafe { Box::from_raw(argument.cast::<Operation>()) };
    let image = operation.image.as_ref().expect("it is on its way");
    // SAFETY: the library passed a valid completion, which is not used after this.
    let returned = unsafe {
        let returned = (image.functions.rbd_aio_get_return_value)(completion);
        (image.functions.rbd_aio_release)(completion);
        returned
    };
    let result = match u32::try_from(returned) {
        Ok(bytes) => Ok(bytes),
        Err(_) if returned < 0 => Err(-returned as i32),
        Err(_) => Ok(u32::MAX),
    };
    let shared = Arc::clone(&operation.shared);
    shared.push(Ended { operation, result });
}
