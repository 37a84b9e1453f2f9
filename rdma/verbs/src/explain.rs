use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use cairn_base::ScopedAddr;
use cairn_base::permission;
use cairn_rdma::FabricError;

use crate::library::LibraryError;

pub(crate) const PROVIDER: &str = "verbs";

impl From<LibraryError> for FabricError {
    fn from(error: LibraryError) -> Self {
        Self::Unavailable {
            provider: PROVIDER,
            reason: error.to_string(),
        }
    }
}

pub(crate) fn os(call: &'static str, error: io::Error) -> FabricError {
    FabricError::Os {
        call,
        source: error,
    }
}

const FOR_ROOT: &str = "give the container its device nodes (--device /dev/infiniband), or the \
                        service a DeviceAllow= for them";

pub(crate) fn event_channel(error: &io::Error) -> FabricError {
    let reason = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "this machine has no RDMA device, or the kernel's connection manager is not loaded: \
             modprobe -a ib_uverbs rdma_ucm, and `rdma link` shows the devices; \
             --provider soft needs neither"
                .to_owned()
        }
        Some(libc::EACCES | libc::EPERM) => format!(
            "no permission to open /dev/infiniband/rdma_cm: {}",
            permission("give this user access to /dev/infiniband/*", FOR_ROOT)
        ),
        _ => format!("rdma_create_event_channel: {error}"),
    };
    FabricError::Unavailable {
        provider: PROVIDER,
        reason,
    }
}

pub(crate) fn open_device(name: &str, error: &io::Error) -> FabricError {
    let reason = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "no permission to open {name}'s /dev/infiniband/uverbsN: {}",
            permission("give this user access to it", FOR_ROOT)
        ),
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => format!(
            "{name} has no /dev/infiniband/uverbsN: modprobe ib_uverbs, \
             and in a container pass the device nodes through"
        ),
        _ => format!("cannot open RDMA device {name}: {error}"),
    };
    FabricError::Unavailable {
        provider: PROVIDER,
        reason,
    }
}

pub(crate) fn unusable(reason: &str) -> FabricError {
    FabricError::Unavailable {
        provider: PROVIDER,
        reason: reason.to_owned(),
    }
}

pub(crate) fn iwarp(device: &str) -> FabricError {
    unusable(&format!(
        "RDMA device {device} speaks iWARP, and Cairn speaks RoCE: use an adapter or a port with \
         RoCE, switch the adapter to RoCE if it has both (irdma: `modprobe irdma roce_ena=1`, or \
         `devlink dev param`), or use --provider soft"
    ))
}

pub(crate) fn bind(address: SocketAddr, error: io::Error) -> FabricError {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => FabricError::AddressInUse { address },
        Some(libc::ENODEV) => no_device(address.ip()),
        Some(libc::EADDRNOTAVAIL) if UdpSocket::bind(ScopedAddr::from(address).at(0)).is_ok() => {
            FabricError::AddressInUse { address }
        }
        Some(libc::EADDRNOTAVAIL) => FabricError::NoDevice {
            address: address.ip(),
            remedy: "no network interface of this machine has that address; \
                     `ip address` lists those it has"
                .to_owned(),
        },
        _ => os("rdma_bind_addr", error),
    }
}

pub(crate) fn no_device(address: IpAddr) -> FabricError {
    FabricError::NoDevice {
        address,
        remedy: "`rdma link` shows which network interfaces have one; \
                 `rdma link add rxe0 type rxe netdev IFACE` gives IFACE a software one; \
                 --provider soft works without"
            .to_owned(),
    }
}

pub(crate) fn no_route(remote: SocketAddr, error: io::Error) -> FabricError {
    match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ETIMEDOUT) => {
            FabricError::NoDevice {
                address: remote.ip(),
                remedy: format!(
                    "no RDMA device has a way to it ({error}); \
                     `ip route get {ip}` shows which interface leads there, \
                     `rdma link` which interfaces have an RDMA device",
                    ip = remote.ip()
                ),
            }
        }
        Some(libc::EADDRNOTAVAIL) => FabricError::NoDevice {
            address: remote.ip(),
            remedy: "the local address to connect from is not on this machine".to_owned(),
        },
        _ => os("rdma_resolve_addr", error),
    }
}

pub(crate) fn register(
    device: &str,
    length: u64,
    limit: Option<u64>,
    error: io::Error,
) -> FabricError {
    let needed = size(length);
    let reason = match (error.raw_os_error(), limit) {
        (Some(libc::ENOMEM), Some(limit)) => format!(
            "cannot pin {needed} for {device}: the memlock limit is {limit}; raise it \
             (ulimit -l, or LimitMEMLOCK= in the service unit; CAP_IPC_LOCK lifts it) \
             or make the arena smaller",
            limit = size(limit)
        ),
        (Some(libc::ENOMEM), None) => format!(
            "cannot pin {needed} for {device}: out of memory, though the memlock limit is off; \
             make the arena smaller"
        ),
        (Some(libc::EFAULT | libc::EACCES), _) => format!(
            "cannot register {needed} with {device}: the memory is not writable or not mapped"
        ),
        _ => return os("ibv_reg_mr", error),
    };
    FabricError::Memory { reason }
}

pub(crate) fn memlock_limit() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: getrlimit writes one rlimit structure.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } != 0;
    (!failed && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{} {name}", bytes.div_ceil(*unit)),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }

    #[test]
    fn a_memlock_refusal_says_limit_need_and_remedy() {
        let error = register("rxe0", 72 << 20, Some(8 << 20), errno(libc::ENOMEM)).to_string();
        for part in ["72 MiB", "8 MiB", "rxe0", "LimitMEMLOCK"] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
    }

    #[test]
    fn an_address_that_is_there_is_in_use_and_another_one_is_not_there() {
        let of = |ip: &str| {
            let address = SocketAddr::new(ip.parse().unwrap(), 4420);
            bind(address, errno(libc::EADDRNOTAVAIL))
        };
        assert!(matches!(of("127.0.0.1"), FabricError::AddressInUse { .. }));
        assert!(matches!(of("192.0.2.77"), FabricError::NoDevice { .. }));
    }

    #[test]
    fn an_unlimited_process_gets_no_advice_about_a_limit() {
        let error = register("rxe0", 72 << 20, None, errno(libc::ENOMEM)).to_string();
        assert!(!error.contains("ulimit"), "{error}");
    }

    #[test]
    fn binding_distinguishes_a_taken_port_from_a_missing_device() {
        let at: SocketAddr = "192.0.2.7:4420".parse().unwrap();
        assert!(matches!(
            bind(at, errno(libc::EADDRINUSE)),
            FabricError::AddressInUse { address } if address == at
        ));
        let missing = bind(at, errno(libc::ENODEV)).to_string();
        assert!(missing.contains("192.0.2.7"), "{missing}");
        assert!(missing.contains("rdma link add"), "{missing}");
        let foreign = bind(at, errno(libc::EADDRNOTAVAIL)).to_string();
        assert!(foreign.contains("ip address"), "{foreign}");
    }

    #[test]
    fn permissions_name_the_device_node() {
        let error = open_device("mlx5_0", &errno(libc::EACCES)).to_string();
        assert!(error.contains("/dev/infiniband/uverbs"), "{error}");
        let error = event_channel(&errno(libc::EACCES)).to_string();
        assert!(error.contains("/dev/infiniband/rdma_cm"), "{error}");
    }

    #[test]
    fn sizes_round_up() {
        assert_eq!(size(512), "512 B");
        assert_eq!(size((1 << 20) + 1), "2 MiB");
        assert_eq!(size(3 << 30), "3 GiB");
    }
}
