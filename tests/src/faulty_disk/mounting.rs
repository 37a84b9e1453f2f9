//! Unsafe calls of mount(2) and umount2(2).

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::wire;

pub(super) const FILE: &str = "100600";
pub(super) const FOLDER: &str = "40700";

pub(super) fn mount_on(place: &Path, device: &File, mode: &str) -> io::Result<()> {
    let options = format!(
        "fd={},rootmode={mode},user_id=0,group_id=0,allow_other,max_read={}",
        device.as_raw_fd(),
        wire::WRITE_MAX
    );
    let options = CString::new(options).expect("options have no NUL");
    let place = CString::new(place.as_os_str().as_bytes()).expect("paths have no NUL");
    // SAFETY: all pointers are to NUL-terminated strings that outlive the call.
    let result = unsafe {
        libc::mount(
            c"cairn-faulty-disk".as_ptr(),
            place.as_ptr(),
            c"fuse".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV,
            options.as_ptr().cast(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

pub(super) fn unmount(place: &Path) {
    let place = CString::new(place.as_os_str().as_bytes()).expect("paths have no NUL");
    // SAFETY: the pointer is to a NUL-terminated string that outlives the call.
    let result = unsafe { libc::umount2(place.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
    if result != 0 {
        let error = io::Error::last_os_error();
        let _ = writeln!(io::stderr(), "cannot unmount a faulty disk: {error}");
    }
}
