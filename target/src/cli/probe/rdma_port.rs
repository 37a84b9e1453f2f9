//! Checks whether a listener can use its address and port, at an RDMA device or in user space.

use std::io;
use std::net::UdpSocket;

use cairn_base::ScopedAddr;
use cairn_config::{Config, Listener, Provider, Trid};
use cairn_rdma::{FabricError, ROCE_PORT, Roce};
use cairn_roce::taken_by_adapter;
use cairn_verbs::VerbsProvider;

use super::PORT_IN_USE;

pub(super) fn refusal(config: &Config, listener: &Listener) -> Option<String> {
    let at = listener.trid();
    let resolved = match listener.address.resolve() {
        Ok(resolved) => resolved,
        Err(error) => return Some(format!("listener {at}: {error}")),
    };
    let is_free = match listener.provider {
        Provider::Soft => Ok(()),
        Provider::Auto | Provider::Verbs => {
            VerbsProvider::new().and_then(|devices| devices.check_free(resolved.at(at.port)))
        }
    };
    let is_udp =
        config.roce_at(listener) == Roce::V2 && uses_user_space(listener.provider, &is_free);
    let refused = bound(at, resolved, if is_udp { ROCE_PORT } else { 0 });
    refused.or_else(|| at_adapter(listener, resolved, is_free))
}

/// Returns whether the listener would use RoCE in user space: with `soft`, or with `auto` if no
/// usable RDMA device has the address.
fn uses_user_space(provider: Provider, is_free: &Result<(), FabricError>) -> bool {
    let has_no_device = matches!(
        is_free,
        Err(FabricError::NoDevice { .. } | FabricError::Unavailable { .. })
    );
    provider == Provider::Soft || provider == Provider::Auto && has_no_device
}

fn bound(at: Trid, resolved: ScopedAddr, port: u16) -> Option<String> {
    let error = UdpSocket::bind(resolved.at(port)).err()?;
    Some(match error.kind() {
        io::ErrorKind::AddrNotAvailable => format!(
            "listener {at}: no interface has this address: `ip address` shows those that there are"
        ),
        io::ErrorKind::AddrInUse => format!(
            "listener {at}: UDP port {ROCE_PORT} {PORT_IN_USE}: `ss -lunp` shows by which program"
        ),
        _ => format!("listener {at}: {error}"),
    })
}

fn at_adapter(
    listener: &Listener,
    resolved: ScopedAddr,
    is_free: Result<(), FabricError>,
) -> Option<String> {
    let at = listener.trid();
    let adapter = || taken_by_adapter(resolved.ip());
    if listener.provider == Provider::Soft {
        let reason = matches!(listener.roce, None | Some(Roce::V2)).then(adapter);
        return reason
            .flatten()
            .map(|reason| format!("listener {at}: {reason}"));
    }
    if let (Provider::Auto, Err(error)) = (listener.provider, &is_free)
        && let Some(reason) = adapter()
    {
        return Some(format!("listener {at}: {error}; {reason}"));
    }
    explain(at, listener.provider, is_free)
}

pub(super) fn explain(
    at: Trid,
    provider: Provider,
    is_free: Result<(), FabricError>,
) -> Option<String> {
    match is_free {
        Err(FabricError::AddressInUse { .. }) => Some(format!(
            "listener {at}: the port {PORT_IN_USE} at an RDMA device: `rdma resource show cm_id` shows by which \
             program"
        )),
        Err(error) if provider == Provider::Verbs => Some(format!("listener {at}: {error}")),
        _ => None,
    }
}
