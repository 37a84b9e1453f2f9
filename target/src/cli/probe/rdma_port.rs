//! Check of a listener's port at an RDMA device, and in user space beside one.

use cairn_base::ScopedAddr;
use cairn_config::{Listener, Provider, Trid};
use cairn_rdma::{FabricError, Roce};
use cairn_roce::taken_by_adapter;
use cairn_verbs::VerbsProvider;

use super::PORT_IN_USE;

pub(super) fn refusal(listener: &Listener, resolved: ScopedAddr) -> Option<String> {
    let at = listener.trid();
    let adapter = || taken_by_adapter(resolved.ip());
    if listener.provider == Provider::Soft {
        let reason = matches!(listener.roce, None | Some(Roce::V2)).then(adapter);
        return reason
            .flatten()
            .map(|reason| format!("listener {at}: {reason}"));
    }
    let is_free = VerbsProvider::new().and_then(|devices| devices.check_free(resolved.at(at.port)));
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
        // With `auto` and no device, the soft provider listens.
        Err(error) if provider == Provider::Verbs => Some(format!("listener {at}: {error}")),
        _ => None,
    }
}
