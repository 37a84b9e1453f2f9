//! The one fact that only the device has: the MTU that its port uses, by
//! libibverbs where that is installed.
//!
//! `unsafe` stands here because libibverbs is C, opened at run time. The list of
//! devices and the context live until they are given back at the end.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;

use libloading::{Library, Symbol};

use crate::source::PortMtu;

/// `struct ibv_port_attr` begins with `state`, `max_mtu` and `active_mtu`, C
/// enumerations all; the whole has 52 bytes. Room to spare, in whole words.
const PORT_ATTR_WORDS: usize = 64;
const MAX_MTU: usize = 1;
const ACTIVE_MTU: usize = 2;

type GetDeviceList = unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void;
type FreeDeviceList = unsafe extern "C" fn(*mut *mut c_void);
type GetDeviceName = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type OpenDevice = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type CloseDevice = unsafe extern "C" fn(*mut c_void) -> c_int;
type QueryPort = unsafe extern "C" fn(*mut c_void, u8, *mut u32) -> c_int;

/// The library's functions that are called here.
struct Verbs<'a> {
    get_device_list: Symbol<'a, GetDeviceList>,
    free_device_list: Symbol<'a, FreeDeviceList>,
    get_device_name: Symbol<'a, GetDeviceName>,
    open_device: Symbol<'a, OpenDevice>,
    close_device: Symbol<'a, CloseDevice>,
    query_port: Symbol<'a, QueryPort>,
}

/// What `ibv_devinfo` shows as max_mtu and active_mtu.
pub(super) fn port_mtu(device: &str, port: u32) -> io::Result<PortMtu> {
    // SAFETY: libibverbs' initialisers have no preconditions; the providers that
    // it loads are those that the administrator installed.
    let library = unsafe { Library::new("libibverbs.so.1") };
    let library = library.map_err(|_| {
        io::Error::other(
            "libibverbs.so.1 is not installed: apt install libibverbs1 ibverbs-providers",
        )
    })?;
    let verbs = Verbs::of(&library).map_err(io::Error::other)?;
    let port = u8::try_from(port).map_err(io::Error::other)?;
    verbs.port_mtu(device, port)
}

impl<'a> Verbs<'a> {
    fn of(library: &'a Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are those of infiniband/verbs.h.
        unsafe {
            Ok(Self {
                get_device_list: library.get(b"ibv_get_device_list\0")?,
                free_device_list: library.get(b"ibv_free_device_list\0")?,
                get_device_name: library.get(b"ibv_get_device_name\0")?,
                open_device: library.get(b"ibv_open_device\0")?,
                close_device: library.get(b"ibv_close_device\0")?,
                query_port: library.get(b"ibv_query_port\0")?,
            })
        }
    }

    fn port_mtu(&self, device: &str, port: u8) -> io::Result<PortMtu> {
        let mut count = 0;
        // SAFETY: writes one integer; returns a list that ends in a null pointer,
        // or null.
        let list = unsafe { (self.get_device_list)(&raw mut count) };
        if list.is_null() {
            return Err(io::Error::last_os_error());
        }
        let found = (0..usize::try_from(count).unwrap_or(0)).find_map(|at| {
            // SAFETY: the list has `count` devices; a device's name is a C string
            // that lives as long as the list.
            unsafe {
                let entry = *list.add(at);
                let name = CStr::from_ptr((self.get_device_name)(entry));
                (name.to_bytes() == device.as_bytes()).then_some(entry)
            }
        });
        let answer = match found {
            Some(entry) => self.query(entry, port),
            None => Err(io::Error::other("libibverbs does not show the device")),
        };
        // SAFETY: the list came from ibv_get_device_list; nothing of it is used again.
        unsafe { (self.free_device_list)(list) };
        answer
    }

    fn query(&self, device: *mut c_void, port: u8) -> io::Result<PortMtu> {
        // SAFETY: the device is one of the list, which is still there.
        let context = unsafe { (self.open_device)(device) };
        if context.is_null() {
            return Err(io::Error::last_os_error());
        }
        let mut attributes = [0; PORT_ATTR_WORDS];
        // SAFETY: the context is open; the structure that is filled is shorter
        // than the array.
        let failed = unsafe { (self.query_port)(context, port, attributes.as_mut_ptr()) };
        // SAFETY: the context is open, and not used again.
        unsafe { (self.close_device)(context) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        Ok(PortMtu {
            active: bytes(attributes[ACTIVE_MTU])?,
            max: bytes(attributes[MAX_MTU])?,
        })
    }
}

/// `enum ibv_mtu`: 1 is 256 bytes, 5 is 4096.
fn bytes(mtu: u32) -> io::Result<u32> {
    match mtu {
        1..=5 => Ok(128 << mtu),
        _ => Err(io::Error::other(format!("libibverbs says MTU {mtu}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn the_enumeration_stands_for_bytes() {
        let all: Vec<u32> = (1..=5).map(|mtu| bytes(mtu).unwrap()).collect();
        assert_eq!(all, [256, 512, 1024, 2048, 4096]);
        assert!(bytes(0).is_err());
        assert!(bytes(6).is_err());
    }
}
