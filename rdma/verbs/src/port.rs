//! Port attributes, for diagnostics without a connection.
//!
//! Why `unsafe` here: libibverbs is a C library.

use std::ffi::CStr;
use std::io;

use crate::library::Library;
use crate::sys::{ibv_context, ibv_device};

/// Length, in words of 32 bits, of the buffer for `struct ibv_port_attr` (52 bytes), which begins
/// with `state`, `max_mtu` and `active_mtu`.
const PORT_ATTR_WORDS: usize = 64;
const MAX_MTU: usize = 1;
const ACTIVE_MTU: usize = 2;

/// MTU of a port in bytes of payload: `active_mtu` and `max_mtu` of `ibv_devinfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortMtu {
    /// MTU in use.
    pub active: u32,
    /// Largest supported MTU.
    pub max: u32,
}

/// Returns the MTU of a port of the named device.
pub fn port_mtu(device: &str, port: u8) -> io::Result<PortMtu> {
    let library = Library::open().map_err(io::Error::other)?;
    let symbols = library.symbols();
    let mut count = 0;
    // SAFETY: the call writes one integer, and returns a list terminated by a null pointer, or
    // null.
    let list = unsafe { (symbols.ibv_get_device_list)(&raw mut count) };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let found = (0..usize::try_from(count).unwrap_or(0)).find_map(|at| {
        // SAFETY: the list has `count` devices. The name of a device is a C string that lives as
        // long as the list.
        unsafe {
            let entry = *list.add(at);
            let name = CStr::from_ptr((symbols.ibv_get_device_name)(entry));
            (name.to_bytes() == device.as_bytes()).then_some(entry)
        }
    });
    let answer = match found {
        Some(entry) => query(library, entry, port),
        None => Err(io::Error::other("libibverbs does not show the device")),
    };
    // SAFETY: the list came from `ibv_get_device_list` and is not used again.
    unsafe { (symbols.ibv_free_device_list)(list) };
    answer
}

fn query(library: &Library, device: *mut ibv_device, port: u8) -> io::Result<PortMtu> {
    let symbols = library.symbols();
    // SAFETY: the device belongs to a list that is not yet freed.
    let context: *mut ibv_context = unsafe { (symbols.ibv_open_device)(device) };
    if context.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut attributes = [0_u32; PORT_ATTR_WORDS];
    // SAFETY: the context is open, and the result is shorter than the array.
    let failed = unsafe { (symbols.ibv_query_port)(context, port, attributes.as_mut_ptr().cast()) };
    // SAFETY: the context is open and not used again.
    unsafe { (symbols.ibv_close_device)(context) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    Ok(PortMtu {
        active: bytes(attributes[ACTIVE_MTU])?,
        max: bytes(attributes[MAX_MTU])?,
    })
}

fn bytes(mtu: u32) -> io::Result<u32> {
    match mtu {
        1..=5 => Ok(128 << mtu),
        _ => Err(io::Error::other(format!("libibverbs reports MTU {mtu}"))),
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
