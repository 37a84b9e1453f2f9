//! External ioengine for fio: a namespace over NVMe/RDMA from user space.
//!
//! Each job (`numjobs`) is a thread with its own controller and I/O queue. Data moves directly
//! between target and fio's buffers, except small writes, which are copied into capsules.
//!
//! Why `unsafe` here: fio calls these functions with raw pointers, valid during the call, and all
//! calls of a job come from its thread.

mod abi;
mod filename;
mod interrupt;
mod job;

use std::cell::{RefCell, UnsafeCell};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cairn_initiator::Namespace;

use abi::{Calls, EngineOps, File, IoUnit, Queued, ThreadData};
use filename::Filename;
use job::Job;

/// Debian release of the linked glibc. If the variable changes, Cargo links again.
const _: Option<&str> = option_env!("CAIRN_GLIBC");

thread_local! {
    static JOB: RefCell<Option<Job>> = const { RefCell::new(None) };
}

static PLANS: Mutex<BTreeMap<usize, Plan>> = Mutex::new(BTreeMap::new());

#[derive(Clone)]
struct Plan {
    filename: Filename,
    namespace: Namespace,
}

struct Ops(UnsafeCell<EngineOps>);

// SAFETY: fio loads engines on its main thread before it starts jobs, and later only reads the
// description.
unsafe impl Sync for Ops {}
// SAFETY: as for `Sync`; the pointers in the description refer to this library.
unsafe impl Send for Ops {}

static OPS: OnceLock<Ops> = OnceLock::new();

const CALLS: Calls = Calls {
    init,
    queue,
    commit,
    getevents,
    event,
    cleanup,
    open_file,
    get_file_size,
    io_u_free,
};

/// Stores a pointer to the engine description in `ops`, or prints why this fio release is not
/// supported.
///
/// # Safety
/// `ops` is valid for a write of a pointer, as fio guarantees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_ioengine(ops: *mut *mut std::ffi::c_void) {
    match EngineOps::for_this_fio(c"cairn", &CALLS) {
        Ok(own) => {
            let own = OPS.get_or_init(|| Ops(UnsafeCell::new(own)));
            // SAFETY: guaranteed by the caller.
            unsafe { *ops = own.0.get().cast() };
        }
        Err(error) => complain(&error),
    }
}

fn complain(error: &str) {
    eprintln!("cairn: {error}");
}

/// Sets the file's size. fio calls this on the main thread for each file, before the job starts.
unsafe extern "C" fn get_file_size(td: *mut ThreadData, file: *mut File) -> c_int {
    // SAFETY: `file` is fio's, valid for this call.
    let name = unsafe { File::name(file) }.unwrap_or_default();
    match plan(td as usize, name) {
        Ok(bytes) => {
            // SAFETY: `file` is fio's, valid for this call.
            unsafe { File::set_size(file, bytes) };
            0
        }
        Err(error) => {
            complain(&error);
            1
        }
    }
}

fn plan(td: usize, name: &str) -> Result<u64, String> {
    let filename = Filename::parse(name)?;
    let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    if plans.get(&td).is_some_and(|plan| plan.filename != filename) {
        return Err("a job can have only one namespace: write a job for each".to_owned());
    }
    let known = plans.values().find(|plan| plan.filename == filename);
    let namespace = match known {
        Some(plan) => plan.namespace.clone(),
        None => {
            let job = Job::start(&filename, None)?;
            let namespace = job.namespace().clone();
            job.stop();
            namespace
        }
    };
    let bytes = namespace.bytes() as u64;
    plans.insert(
        td,
        Plan {
            filename,
            namespace,
        },
    );
    Ok(bytes)
}

unsafe extern "C" fn init(td: *mut ThreadData) -> c_int {
    match start(td as usize) {
        Ok(job) => {
            JOB.set(Some(job));
            0
        }
        Err(error) => {
            complain(&error);
            1
        }
    }
}

fn start(td: usize) -> Result<Job, String> {
    // Without `--thread`, each job is a process that would bind the same UDP port.
    // SAFETY: both system calls have no preconditions.
    if unsafe { libc::gettid() == libc::getpid() } {
        return Err("jobs must be threads: add --thread, or thread=1 to the job file".to_owned());
    }
    let plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = plans.get(&td).cloned();
    drop(plans);
    let plan = plan.ok_or("a job needs a filename")?;
    Job::start(&plan.filename, Some(&plan.namespace))
}

/// Does nothing, because the connection lasts as long as the job.
unsafe extern "C" fn open_file(_: *mut ThreadData, _: *mut File) -> c_int {
    0
}

fn with_job<R>(call: impl FnOnce(&mut Job) -> R) -> Option<R> {
    JOB.with_borrow_mut(|job| job.as_mut().map(call))
}

unsafe extern "C" fn queue(_: *mut ThreadData, unit: *mut IoUnit) -> Queued {
    // SAFETY: `unit` is fio's, and the engine owns it from now on.
    let queued = with_job(|job| unsafe { job.queue(unit) });
    queued.unwrap_or_else(|| {
        // SAFETY: `unit` is fio's, valid for this call.
        unsafe { IoUnit::set_outcome(unit, libc::EBADF) };
        Queued::Completed
    })
}

unsafe extern "C" fn commit(_: *mut ThreadData) -> c_int {
    with_job(Job::commit);
    0
}

unsafe extern "C" fn getevents(
    _: *mut ThreadData,
    min: c_uint,
    max: c_uint,
    patience: *const libc::timespec,
) -> c_int {
    // SAFETY: `patience` is null or points to fio's timeout.
    let patience = unsafe { patience.as_ref() }
        .map(|time| Duration::new(time.tv_sec as u64, time.tv_nsec as u32));
    match with_job(|job| job.wait(min as usize, max as usize, patience)) {
        Some(Ok(count)) => count as c_int,
        Some(Err(error)) => {
            complain(&error.to_string());
            -libc::EIO
        }
        None => -libc::EBADF,
    }
}

unsafe extern "C" fn event(_: *mut ThreadData, index: c_int) -> *mut IoUnit {
    with_job(|job| job.event(index as usize)).unwrap_or(std::ptr::null_mut())
}

/// Releases all buffers. fio calls this for each unit; the first call is enough.
unsafe extern "C" fn io_u_free(_: *mut ThreadData, _: *mut IoUnit) {
    with_job(Job::forget_buffers);
}

unsafe extern "C" fn cleanup(_: *mut ThreadData) {
    if let Some(job) = JOB.take() {
        job.stop();
    }
}
