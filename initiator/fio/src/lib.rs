//! An external ioengine for fio: its jobs run against a namespace over NVMe/RDMA,
//! from user space, by an RDMA adapter or by Cairn's own RoCE.
//!
//! ```text
//! fio --ioengine=external:libcairn_fio.so --thread \
//!     --filename='traddr=192.0.2.1 subnqn=nqn.2026-01.org.example\:disk ns=1' \
//!     --name=job --rw=randread --bs=4k --iodepth=32 --runtime=10 --time_based
//! ```
//!
//! Each job (`numjobs`) is a thread of fio's with a controller and an I/O queue of
//! its own. Data moves between the target and fio's own buffers, with no copy but
//! that of small writes into their capsules.
//!
//! Why `unsafe` here: these are functions that fio calls. What fio promises is said
//! where it is used: pointers are live for the duration of a call, and all calls
//! about a job come from the job's thread.

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

thread_local! {
    /// The job that this thread of fio's runs.
    static JOB: RefCell<Option<Job>> = const { RefCell::new(None) };
}

/// The namespace of each job, by the address of fio's own structure: fio asks for
/// sizes, on its main thread, before it starts the jobs.
static PLANS: Mutex<BTreeMap<usize, Plan>> = Mutex::new(BTreeMap::new());

/// What a job is going to be about.
#[derive(Clone)]
struct Plan {
    filename: Filename,
    namespace: Namespace,
}

/// fio writes into it: lists and handles.
struct Ops(UnsafeCell<EngineOps>);

// SAFETY: fio loads engines on its main thread, before it starts jobs; after that
// it only reads.
unsafe impl Sync for Ops {}
// SAFETY: as above; what it points to is this library's.
unsafe impl Send for Ops {}

/// Made once: fio may ask for each job, and has it in a list.
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

/// Gives fio the engine. A fio that we do not know gets none, and says that it has
/// no engine, after we have said why.
///
/// # Safety
/// For fio: `ops` is where it expects the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_ioengine(ops: *mut *mut std::ffi::c_void) {
    match EngineOps::for_this_fio(c"cairn", &CALLS) {
        Ok(own) => {
            let own = OPS.get_or_init(|| Ops(UnsafeCell::new(own)));
            // SAFETY: as the caller says.
            unsafe { *ops = own.0.get().cast() };
        }
        Err(error) => complain(&error),
    }
}

fn complain(error: &str) {
    eprintln!("cairn: {error}");
}

/// Called for each job before its thread is there.
unsafe extern "C" fn get_file_size(td: *mut ThreadData, file: *mut File) -> c_int {
    // SAFETY: fio's file, for this call.
    let name = unsafe { File::name(file) }.unwrap_or_default();
    match plan(td as usize, name) {
        Ok(bytes) => {
            // SAFETY: as above.
            unsafe { File::set_size(file, bytes) };
            0
        }
        Err(error) => {
            complain(&error);
            1
        }
    }
}

/// Notes which namespace a job is about, and says how large that is.
fn plan(td: usize, name: &str) -> Result<u64, String> {
    let filename = Filename::parse(name)?;
    let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    if plans.get(&td).is_some_and(|plan| plan.filename != filename) {
        return Err("a job has one namespace: give each a job of its own".to_owned());
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
    // A fio that makes processes of its jobs would have each bind the same UDP port.
    // SAFETY: plain system calls.
    if unsafe { libc::gettid() == libc::getpid() } {
        return Err("jobs must be threads: add --thread, or thread=1 to the job file".to_owned());
    }
    let plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = plans.get(&td).cloned();
    drop(plans);
    let plan = plan.ok_or("a job needs a filename")?;
    Job::start(&plan.filename, Some(&plan.namespace))
}

/// Nothing: the connection is there from the job's first moment to its last.
unsafe extern "C" fn open_file(_: *mut ThreadData, _: *mut File) -> c_int {
    0
}

/// Calls with this thread's job, if it runs.
fn with_job<R>(call: impl FnOnce(&mut Job) -> R) -> Option<R> {
    JOB.with_borrow_mut(|job| job.as_mut().map(call))
}

unsafe extern "C" fn queue(_: *mut ThreadData, unit: *mut IoUnit) -> Queued {
    // SAFETY: fio's unit, which is the engine's from now on.
    let queued = with_job(|job| unsafe { job.queue(unit) });
    queued.unwrap_or_else(|| {
        // SAFETY: as above.
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
    // SAFETY: fio's time, or none.
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

/// The first of many: the buffers go next.
unsafe extern "C" fn io_u_free(_: *mut ThreadData, _: *mut IoUnit) {
    with_job(Job::forget_buffers);
}

unsafe extern "C" fn cleanup(_: *mut ThreadData) {
    if let Some(job) = JOB.take() {
        job.stop();
    }
}
