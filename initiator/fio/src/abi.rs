//! ABI of fio's engine interface, of releases 3.33 to 3.42 on 64-bit Linux.
//!
//! Structure offsets differ between releases, even of equal interface version, so the engine runs
//! only in releases with known offsets. `layout.c` prints the offsets from fio's headers.
//!
//! Why `unsafe` here: pointers to fio's memory come from fio, and are valid during its call.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};
use std::sync::OnceLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    interface: c_int,
    /// Option `FIO_NO_OFFLOAD`: the job's own thread submits I/O.
    no_offload: c_int,
    has_cancel: bool,
    /// Offset of [`Transfer`] in `struct io_u`, in bytes.
    transfer: usize,
}

const RELEASES: [(&str, Layout); 10] = [
    ("fio-3.33", layout(31, 1 << 15, true, 72)),
    ("fio-3.34", layout(32, 1 << 15, true, 72)),
    ("fio-3.35", layout(32, 1 << 15, true, 72)),
    ("fio-3.36", layout(33, 1 << 15, true, 72)),
    ("fio-3.37", layout(33, 1 << 15, true, 72)),
    ("fio-3.38", layout(36, 1 << 15, true, 72)),
    ("fio-3.39", layout(36, 1 << 15, true, 72)),
    ("fio-3.40", layout(37, 1 << 15, true, 72)),
    ("fio-3.41", layout(39, 1 << 15, false, 80)),
    ("fio-3.42", layout(39, 1 << 16, false, 80)),
];

const fn layout(interface: c_int, no_offload: c_int, has_cancel: bool, transfer: usize) -> Layout {
    Layout {
        interface,
        no_offload,
        has_cancel,
        transfer,
    }
}

static LAYOUT: OnceLock<Layout> = OnceLock::new();

const RAWIO: c_int = 1 << 1;
const DISKLESSIO: c_int = 1 << 2;
const NOEXTEND: c_int = 1 << 3;
const NODISKUTIL: c_int = 1 << 4;

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queued {
    Completed = 0,
    Underway = 1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
    Trim,
    Sync,
}

#[repr(C)]
pub(crate) struct ThreadData {
    _opaque: [u8; 0],
}

/// First members of `struct fio_file`.
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

const TYPE_BLOCK: c_int = 2;

#[repr(C)]
pub(crate) struct IoUnit {
    _start_time: [i64; 2],
    _issue_time: [i64; 2],
    _file: *mut File,
    _flags: c_uint,
    ddir: c_int,
}

/// Members of `struct io_u` whose offsets differ between releases.
#[repr(C)]
struct Transfer {
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
}

const _: () = {
    assert!(size_of::<EngineOps>() == 296);
    assert!(offset_of!(File, file_name) == 40 && offset_of!(File, real_file_size) == 48);
    assert!(offset_of!(IoUnit, ddir) == 44);
};

type OnJob<R> = unsafe extern "C" fn(*mut ThreadData) -> R;
type OnFile = unsafe extern "C" fn(*mut ThreadData, *mut File) -> c_int;
type OnUnit<R> = unsafe extern "C" fn(*mut ThreadData, *mut IoUnit) -> R;
type GetEvents =
    unsafe extern "C" fn(*mut ThreadData, c_uint, c_uint, *const libc::timespec) -> c_int;
type Unused = *mut c_void;

/// `struct ioengine_ops`. The members in `rest` differ between releases.
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
    rest: [*mut c_void; 24],
}

pub(crate) struct Calls {
    pub(crate) init: OnJob<c_int>,
    pub(crate) queue: OnUnit<Queued>,
    pub(crate) commit: OnJob<c_int>,
    pub(crate) getevents: GetEvents,
    pub(crate) event: unsafe extern "C" fn(*mut ThreadData, c_int) -> *mut IoUnit,
    pub(crate) cleanup: OnJob<()>,
    pub(crate) open_file: OnFile,
    pub(crate) get_file_size: OnFile,
    pub(crate) io_u_free: OnUnit<()>,
}

impl EngineOps {
    pub(crate) fn for_this_fio(name: &'static CStr, calls: &Calls) -> Result<Self, String> {
        let layout = layout_of(this_fio())?;
        let layout = LAYOUT.get_or_init(|| layout);
        Ok(Self::new(name, calls, layout))
    }

    fn new(name: &'static CStr, calls: &Calls, layout: &Layout) -> Self {
        const NULL: *mut c_void = std::ptr::null_mut();
        let Calls {
            cleanup, open_file, ..
        } = calls;
        let mut rest = [NULL; 24];
        // `rest` begins with `errdetails`. Some releases have `cancel` next.
        let at = usize::from(layout.has_cancel);
        rest[at + 1] = *cleanup as *mut c_void;
        rest[at + 2] = *open_file as *mut c_void;
        rest[at + 3] = *open_file as *mut c_void;
        // `invalidate` needs no work, because there is no cache.
        rest[at + 4] = *open_file as *mut c_void;
        rest[at + 6] = calls.get_file_size as *mut c_void;
        rest[at + 12] = calls.io_u_free as *mut c_void;
        Self {
            list: [NULL; 2],
            name: name.as_ptr(),
            version: layout.interface,
            flags: RAWIO | DISKLESSIO | NOEXTEND | NODISKUTIL | layout.no_offload,
            dlhandle: NULL,
            setup: NULL,
            init: calls.init,
            post_init: NULL,
            prep: NULL,
            queue: calls.queue,
            commit: calls.commit,
            getevents: calls.getevents,
            event: calls.event,
            rest,
        }
    }
}

fn this_fio() -> Option<&'static CStr> {
    // SAFETY: dlsym only looks a symbol up in the running program.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"fio_version_string".as_ptr()) };
    // SAFETY: the symbol is fio's version, a string constant.
    (!symbol.is_null()).then(|| unsafe { CStr::from_ptr(symbol.cast()) })
}

fn layout_of(version: Option<&CStr>) -> Result<Layout, String> {
    let (first, last) = (RELEASES[0].0, RELEASES[RELEASES.len() - 1].0);
    let Some(version) = version.map(CStr::to_string_lossy) else {
        return Err(format!(
            "the program that loads this engine does not say which fio it is; it must be {first} \
             to {last}"
        ));
    };
    let known = RELEASES.iter().find(|(release, _)| version == *release);
    known.map(|(_, layout)| *layout).ok_or_else(|| {
        format!(
            "this is {version}, and the engine is made for {first} to {last}: between releases of \
             fio the structures that engines use change. Run one of these, or use \
             `cairn-initiator bench`, which reads fio's job files"
        )
    })
}

impl File {
    /// Returns the job's `filename`.
    ///
    /// # Safety
    /// `file` is a valid pointer from fio, during fio's call.
    pub(crate) unsafe fn name<'a>(file: *const Self) -> Option<&'a str> {
        // SAFETY: the file is valid; its name is a string or null.
        let name = unsafe { (*file).file_name };
        if name.is_null() {
            return None;
        }
        // SAFETY: the name is a valid string for the duration of the call.
        unsafe { CStr::from_ptr(name) }.to_str().ok()
    }

    /// Makes the file a block device of `bytes` bytes.
    ///
    /// # Safety
    /// As [`Self::name`].
    pub(crate) unsafe fn set_size(file: *mut Self, bytes: u64) {
        // SAFETY: the file is valid, and only the calling fio thread accesses it.
        unsafe {
            (*file).filetype = TYPE_BLOCK;
            (*file).real_file_size = bytes;
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) direction: Direction,
    pub(crate) offset: u64,
    pub(crate) data: *mut u8,
    pub(crate) length: u64,
}

impl IoUnit {
    /// # Safety
    /// `unit` is a valid pointer from fio, and the I/O has not completed.
    pub(crate) unsafe fn request(unit: *const Self) -> Option<Request> {
        // SAFETY: the unit is valid.
        let (unit, transfer) = unsafe { (&*unit, &*Self::transfer(unit.cast_mut())) };
        let direction = match unit.ddir {
            0 => Direction::Read,
            1 => Direction::Write,
            2 => Direction::Trim,
            3..=5 => Direction::Sync,
            _ => return None,
        };
        Some(Request {
            direction,
            offset: transfer.offset,
            data: transfer.xfer_buf,
            length: transfer.xfer_buflen,
        })
    }

    /// Sets the result: 0 or an errno.
    ///
    /// # Safety
    /// As [`Self::request`].
    pub(crate) unsafe fn set_outcome(unit: *mut Self, errno: c_int) {
        // SAFETY: the unit is valid, and only the calling fio thread accesses it.
        let transfer = unsafe { &mut *Self::transfer(unit) };
        transfer.error = errno as c_uint;
        transfer.resid = if errno == 0 { 0 } else { transfer.xfer_buflen };
    }

    /// # Safety
    /// As [`Self::request`].
    unsafe fn transfer(unit: *mut Self) -> *mut Transfer {
        let layout = LAYOUT.get().expect("fio has units once it has the engine");
        // SAFETY: the offset lies within fio's structure, by the layout of its release.
        unsafe { unit.byte_add(layout.transfer).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn of_job(_: *mut ThreadData) -> c_int {
        0
    }
    extern "C" fn cleanup(_: *mut ThreadData) {}
    extern "C" fn open_file(_: *mut ThreadData, _: *mut File) -> c_int {
        1
    }
    extern "C" fn get_file_size(_: *mut ThreadData, _: *mut File) -> c_int {
        2
    }
    extern "C" fn queue(_: *mut ThreadData, _: *mut IoUnit) -> Queued {
        Queued::Underway
    }
    extern "C" fn getevents(
        _: *mut ThreadData,
        _: c_uint,
        _: c_uint,
        _: *const libc::timespec,
    ) -> c_int {
        3
    }
    extern "C" fn event(_: *mut ThreadData, _: c_int) -> *mut IoUnit {
        std::ptr::null_mut()
    }
    extern "C" fn io_u_free(_: *mut ThreadData, _: *mut IoUnit) {}

    fn printed() -> impl Iterator<Item = (&'static str, Vec<usize>)> {
        let rows = include_str!("../layouts.txt").lines();
        let rows = rows.filter(|row| !row.starts_with('#'));
        rows.map(|row| {
            let mut words = row.split_whitespace();
            let release = words.next().unwrap();
            (release, words.map(|word| word.parse().unwrap()).collect())
        })
    }

    #[test]
    fn each_release_finds_what_it_calls_where_its_headers_have_it() {
        let calls = Calls {
            init: of_job,
            queue,
            commit: of_job,
            getevents,
            event,
            cleanup,
            open_file,
            get_file_size,
            io_u_free,
        };
        let mut releases = 0;
        for (release, numbers) in printed() {
            let [version, flags, bytes, places @ ..] = &numbers[..] else {
                panic!("{release}");
            };
            let version_string = std::ffi::CString::new(release).unwrap();
            let layout = layout_of(Some(&version_string)).unwrap();
            let ops = EngineOps::new(c"name", &calls, &layout);
            assert_eq!(
                (ops.version, ops.flags),
                (*version as c_int, *flags as c_int)
            );
            assert!(*bytes <= size_of::<EngineOps>(), "{release}");
            let base = &raw const ops;
            // SAFETY: the word lies within `ops`.
            let word = |at: usize| unsafe { *base.byte_add(at).cast::<*mut c_void>() };
            let expected = [
                c"name".as_ptr() as *mut c_void,
                of_job as *mut c_void,
                queue as *mut c_void,
                of_job as *mut c_void,
                getevents as *mut c_void,
                event as *mut c_void,
                cleanup as *mut c_void,
                open_file as *mut c_void,
                open_file as *mut c_void,
                open_file as *mut c_void,
                get_file_size as *mut c_void,
                io_u_free as *mut c_void,
            ];
            let (in_ops, in_unit) = places.split_at(expected.len());
            let filled: Vec<_> = in_ops.iter().map(|&at| word(at)).collect();
            assert_eq!(filled[1..], expected[1..], "{release}");
            let words = (0..size_of::<EngineOps>() / 8).map(|at| word(at * 8));
            let set = words.filter(|word| !word.is_null()).count();
            // Version and flags are one more word that is not null.
            assert_eq!(set, expected.len() + 1, "{release}: nothing else is there");
            let at = |field: usize| layout.transfer + field;
            let transfer = [
                offset_of!(IoUnit, ddir),
                at(offset_of!(Transfer, offset)),
                at(offset_of!(Transfer, xfer_buf)),
                at(offset_of!(Transfer, xfer_buflen)),
                at(offset_of!(Transfer, resid)),
                at(offset_of!(Transfer, error)),
                offset_of!(File, filetype),
                offset_of!(File, file_name),
                offset_of!(File, real_file_size),
            ];
            assert_eq!(in_unit, transfer, "{release}");
            releases += 1;
        }
        assert_eq!(releases, RELEASES.len());
    }

    #[test]
    fn an_unknown_fio_is_refused() {
        for other in ["fio-3.32", "fio-3.43", "fio-3.33-5-gabcdef"] {
            let version = std::ffi::CString::new(other).unwrap();
            let error = layout_of(Some(&version)).unwrap_err();
            assert!(error.contains(&format!("this is {other}")), "{error}");
        }
        let error = layout_of(None).unwrap_err();
        assert!(error.contains("must be fio-3.33 to fio-3.42"), "{error}");
    }
}
