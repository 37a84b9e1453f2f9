//! Attributes of devices and ports, for diagnostics without a connection.
//!
//! Why `unsafe` here: libibverbs is a C library.

use std::ffi::CStr;
use std::io;

use crate::library::Library;
use crate::sys::{
    IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_DEVICE_RC_RNR_NAK_GEN, IBV_TRANSPORT_IWARP, ibv_context,
    ibv_device, ibv_device_attr,
};

/// Length of the buffer for `struct ibv_port_attr` in 32-bit words. The structure begins with
/// `state`, `max_mtu` and `active_mtu`.
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

/// Device attributes used by Cairn, as in `ibv_devinfo -v`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// True for an iWARP device.
    pub is_iwarp: bool,
    /// Maximum queue pairs of the device.
    pub max_qp: u32,
    /// Maximum work requests of a queue.
    pub max_qp_wr: u32,
    /// Maximum shared receive queues; 0 if the device has none.
    pub max_srq: u32,
    /// Maximum concurrent RDMA READs of a peer at a queue pair.
    pub max_qp_rd_atom: u32,
    /// Maximum concurrent RDMA READs started by a queue pair.
    pub max_qp_init_rd_atom: u32,
    /// True if the device sends an RNR NAK when no receive is posted (`RC_RNR_NAK_GEN`).
    pub has_rnr_nak: bool,
    /// True if the device has SEND with Invalidate (`MEM_MGT_EXTENSIONS`).
    pub has_invalidate: bool,
}

/// Returns the attributes of the named device.
pub fn device_attributes(device: &str) -> io::Result<DeviceAttributes> {
    with_device(device, |library, entry, context| {
        // SAFETY: the device belongs to a list that is not yet freed, and all-zero bytes are a
        // valid ibv_device_attr.
        let (transport, mut found) = unsafe {
            let found: ibv_device_attr = std::mem::zeroed();
            ((*entry).transport_type, found)
        };
        // SAFETY: the context is open, and `found` holds the result.
        let failed = unsafe { (library.symbols().ibv_query_device)(context, &raw mut found) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        let count = |limit: i32| u32::try_from(limit).unwrap_or(0);
        let flag = |flag| found.device_cap_flags & flag != 0;
        Ok(DeviceAttributes {
            is_iwarp: transport == IBV_TRANSPORT_IWARP,
            max_qp: count(found.max_qp),
            max_qp_wr: count(found.max_qp_wr),
            max_srq: count(found.max_srq),
            max_qp_rd_atom: count(found.max_qp_rd_atom),
            max_qp_init_rd_atom: count(found.max_qp_init_rd_atom),
            has_rnr_nak: flag(IBV_DEVICE_RC_RNR_NAK_GEN),
            has_invalidate: flag(IBV_DEVICE_MEM_MGT_EXTENSIONS),
        })
    })
}

/// Returns the MTU of a port of the named device.
pub fn port_mtu(device: &str, port: u8) -> io::Result<PortMtu> {
    with_device(device, |library, _, context| {
        let mut attributes = [0_u32; PORT_ATTR_WORDS];
        let buffer = attributes.as_mut_ptr().cast();
        // SAFETY: the context is open, and the result is shorter than the array.
        let failed = unsafe { (library.symbols().ibv_query_port)(context, port, buffer) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        Ok(PortMtu {
            active: bytes(attributes[ACTIVE_MTU])?,
            max: bytes(attributes[MAX_MTU])?,
        })
    })
}

fn with_device<T>(
    device: &str,
    query: impl FnOnce(&Library, *mut ibv_device, *mut ibv_context) -> io::Result<T>,
) -> io::Result<T> {
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
        Some(entry) => {
            // SAFETY: the device belongs to a list that is not yet freed.
            let context: *mut ibv_context = unsafe { (symbols.ibv_open_device)(entry) };
            if context.is_null() {
                Err(io::Error::last_os_error())
            } else {
                let answer = query(library, entry, context);
                // SAFETY: the context is open and not used again.
                unsafe { (symbols.ibv_close_device)(context) };
                answer
            }
        }
        None => Err(io::Error::other("libibverbs does not show the device")),
    };
    // SAFETY: the list came from `ibv_get_device_list` and is not used again.
    unsafe { (symbols.ibv_free_device_list)(list) };
    answer
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
