//! The few structures of fio that an engine meets, as fio 3.33 lays them out on
//! 64-bit Linux, and the check that it is that fio which loads us.
//!
//! fio has no stable interface for engines: their offsets change from version to
//! version. Its own version number of the interface has served several layouts.
//! So nothing is touched unless fio says that it is the one version known here.
//!
//! Why `unsafe` here: fio's memory is reached through raw pointers. A caller of
//! an accessor has the pointer from fio, for the duration of fio's call.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};

/// The version of fio whose structures these are.
pub(crate) const FIO_VERSION: &str = "fio-3.33";
/// `FIO_IOOPS_VERSION` of that version.
const IOOPS_VERSION: c_int = 31;

/// `FIO_RAWIO`: offsets and lengths are multiples of blocks.
const RAWIO: c_int = 1 << 1;
/// `FIO_DISKLESSIO`: there is no file to make.
const DISKLESSIO: c_int = 1 << 2;
/// `FIO_NOEXTEND`: nor to extend.
const NOEXTEND: c_int = 1 << 3;
/// `FIO_NODISKUTIL`: nor a disk of this machine to watch.
const NODISKUTIL: c_int = 1 << 4;
/// `FIO_NO_OFFLOAD`: a job's I/O stays on the job's thread.
const NO_OFFLOAD: c_int = 1 << 15;

/// What became of an I/O that was queued (`enum fio_q_status`).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queued {
    /// It is over.
    Completed = 0,
    /// It will be given by `getevents`.
    Underway = 1,
    /// There is no room: fio asks for events first.
    Busy = 2,
}

/// What an I/O does (`enum fio_ddir`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
    Trim,
    /// fsync, fdatasync or sync_file_range.
    Sync,
}

/// `struct thread_data`: one job. Nothing in it is touched.
#[repr(C)]
pub(crate) struct ThreadData {
    _opaque: [u8; 0],
}

/// The head of `struct fio_file`.
#[repr(C)]
pub(crate) struct File {
    _hash_list: [*mut c_void; 2],
    filetype: c_int,
    _fd: c_int,
    _shadow_fd: c_int,
    _major: c_uint,
    _minor: c_uint,
    _fileno: c_int,
    file_name: *const c_char,
    real_file_size: u64,
}

/// `FIO_TYPE_BLOCK`.
const TYPE_BLOCK: c_int = 2;

/// `struct io_u`, up to what belongs to engines.
#[repr(C)]
pub(crate) struct IoUnit {
    _start_time: [i64; 2],
    _issue_time: [i64; 2],
    _file: *mut File,
    _flags: c_uint,
    ddir: c_int,
    _acct_ddir: c_int,
    _numberio: u16,
    _ioprio: u16,
    _clat_prio_index: u16,
    _buflen: u64,
    offset: u64,
    _verify_offset: u64,
    _buf: *mut c_void,
    _rand_seed: u64,
    xfer_buf: *mut u8,
    xfer_buflen: u64,
    _buf_filled_len: u64,
    _ipo: *mut c_void,
    resid: u64,
    error: c_uint,
    _engine_data: *mut c_void,
}

const _: () = {
    assert!(size_of::<EngineOps>() == 264);
    assert!(offset_of!(File, file_name) == 40 && offset_of!(File, real_file_size) == 48);
    assert!(offset_of!(IoUnit, _file) == 32 && offset_of!(IoUnit, ddir) == 44);
    assert!(offset_of!(IoUnit, offset) == 72 && offset_of!(IoUnit, xfer_buf) == 104);
    assert!(offset_of!(IoUnit, resid) == 136 && offset_of!(IoUnit, error) == 144);
    assert!(offset_of!(IoUnit, _engine_data) == 152);
};

type OnJob<R> = unsafe extern "C" fn(*mut ThreadData) -> R;
type OnFile = unsafe extern "C" fn(*mut ThreadData, *mut File) -> c_int;
type OnUnit<R> = unsafe extern "C" fn(*mut ThreadData, *mut IoUnit) -> R;
type GetEvents =
    unsafe extern "C" fn(*mut ThreadData, c_uint, c_uint, *const libc::timespec) -> c_int;
/// What this engine has nothing to say to.
type Unused = *mut c_void;

/// `struct ioengine_ops`.
#[repr(C)]
pub(crate) struct EngineOps {
    list: [*mut c_void; 2],
    name: *const c_char,
    version: c_int,
    flags: c_int,
    dlhandle: *mut c_void,
    setup: Unused,
    init: OnJob<c_int>,
    post_init: Unused,
    prep: Unused,
    queue: OnUnit<Queued>,
    commit: OnJob<c_int>,
    getevents: GetEvents,
    event: unsafe extern "C" fn(*mut ThreadData, c_int) -> *mut IoUnit,
    errdetails: Unused,
    cancel: Unused,
    cleanup: OnJob<()>,
    open_file: OnFile,
    close_file: OnFile,
    invalidate: OnFile,
    unlink_file: Unused,
    get_file_size: OnFile,
    prepopulate_file: Unused,
    terminate: Unused,
    iomem_alloc: Unused,
    iomem_free: Unused,
    io_u_init: Unused,
    io_u_free: OnUnit<()>,
    /// Zones: `get_zoned_model`, `report_zones`, `reset_wp`, `get_max_open_zones`.
    zones: [Unused; 4],
    option_struct_size: c_int,
    options: *mut c_void,
}

/// The functions that an engine has for fio.
pub(crate) struct Calls {
    pub(crate) init: OnJob<c_int>,
    pub(crate) queue: OnUnit<Queued>,
    pub(crate) commit: OnJob<c_int>,
    pub(crate) getevents: GetEvents,
    pub(crate) event: unsafe extern "C" fn(*mut ThreadData, c_int) -> *mut IoUnit,
    pub(crate) cleanup: OnJob<()>,
    /// For opening, closing and invalidating.
    pub(crate) open_file: OnFile,
    pub(crate) get_file_size: OnFile,
    pub(crate) io_u_free: OnUnit<()>,
}

impl EngineOps {
    /// An engine of this name.
    pub(crate) const fn new(name: &'static CStr, calls: &Calls) -> Self {
        const NULL: *mut c_void = std::ptr::null_mut();
        Self {
            list: [NULL; 2],
            name: name.as_ptr(),
            version: IOOPS_VERSION,
            flags: RAWIO | DISKLESSIO | NOEXTEND | NODISKUTIL | NO_OFFLOAD,
            dlhandle: NULL,
            setup: NULL,
            init: calls.init,
            post_init: NULL,
            prep: NULL,
            queue: calls.queue,
            commit: calls.commit,
            getevents: calls.getevents,
            event: calls.event,
            errdetails: NULL,
            cancel: NULL,
            cleanup: calls.cleanup,
            open_file: calls.open_file,
            close_file: calls.open_file,
            // There is no cache of this machine's to drop.
            invalidate: calls.open_file,
            unlink_file: NULL,
            get_file_size: calls.get_file_size,
            prepopulate_file: NULL,
            terminate: NULL,
            iomem_alloc: NULL,
            iomem_free: NULL,
            io_u_init: NULL,
            io_u_free: calls.io_u_free,
            zones: [NULL; 4],
            option_struct_size: 0,
            options: NULL,
        }
    }
}

/// Refuses every fio but the one whose structures these are.
///
/// # Errors
/// What is wrong, and what to do.
pub(crate) fn check_version() -> Result<(), String> {
    // SAFETY: looking up a symbol in the running program.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"fio_version_string".as_ptr()) };
    // SAFETY: fio's own version, a string constant.
    let version = (!symbol.is_null()).then(|| unsafe { CStr::from_ptr(symbol.cast()) });
    refuse_all_but_ours(version)
}

fn refuse_all_but_ours(version: Option<&CStr>) -> Result<(), String> {
    let Some(version) = version.map(CStr::to_string_lossy) else {
        return Err(format!(
            "the program that loads this engine does not say which fio it is; it must be \
             {FIO_VERSION}"
        ));
    };
    if version == FIO_VERSION {
        return Ok(());
    }
    Err(format!(
        "this is {version}, and the engine is made for {FIO_VERSION} (Debian 12's): between \
         versions of fio the structures that engines use change. Run that version, or use \
         `cairn-initiator bench`, which reads fio's job files"
    ))
}

impl File {
    /// `filename`, as the job has it.
    ///
    /// # Safety
    /// `file` comes from fio, for the duration of its call.
    pub(crate) unsafe fn name<'a>(file: *const Self) -> Option<&'a str> {
        // SAFETY: a live file; its name is a string or absent.
        let name = unsafe { (*file).file_name };
        if name.is_null() {
            return None;
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(name) }.to_str().ok()
    }

    /// Reports to fio that it is a block device of so many bytes.
    ///
    /// # Safety
    /// As for [`Self::name`].
    pub(crate) unsafe fn set_size(file: *mut Self, bytes: u64) {
        // SAFETY: a live file, which fio's caller does not share.
        unsafe {
            (*file).filetype = TYPE_BLOCK;
            (*file).real_file_size = bytes;
        }
    }
}

/// What an I/O asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) direction: Direction,
    /// Bytes from the beginning of the namespace.
    pub(crate) offset: u64,
    /// The data, and how much of it.
    pub(crate) data: *mut u8,
    pub(crate) length: u64,
}

impl IoUnit {
    /// What it asks for; `None` for what fio should not ask an engine.
    ///
    /// # Safety
    /// `unit` comes from fio, and has not completed.
    pub(crate) unsafe fn request(unit: *const Self) -> Option<Request> {
        // SAFETY: a live unit.
        let unit = unsafe { &*unit };
        let direction = match unit.ddir {
            0 => Direction::Read,
            1 => Direction::Write,
            2 => Direction::Trim,
            3..=5 => Direction::Sync,
            _ => return None,
        };
        Some(Request {
            direction,
            offset: unit.offset,
            data: unit.xfer_buf,
            length: unit.xfer_buflen,
        })
    }

    /// Its outcome: 0, or an errno.
    ///
    /// # Safety
    /// As for [`Self::request`].
    pub(crate) unsafe fn set_outcome(unit: *mut Self, errno: c_int) {
        // SAFETY: a live unit. An I/O that failed has moved nothing that counts.
        unsafe {
            (*unit).error = errno as c_uint;
            (*unit).resid = if errno == 0 { 0 } else { (*unit).xfer_buflen };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_version_of_fio_is_known() {
        assert_eq!(refuse_all_but_ours(Some(c"fio-3.33")), Ok(()));
        for other in ["fio-3.32", "fio-3.36", "fio-3.33-5-gabcdef"] {
            let version = std::ffi::CString::new(other).unwrap();
            let error = refuse_all_but_ours(Some(&version)).unwrap_err();
            assert!(error.contains(&format!("this is {other}")), "{error}");
        }
        let error = refuse_all_but_ours(None).unwrap_err();
        assert!(error.contains("must be fio-3.33"), "{error}");
    }
}
