//! Connection requests: looked at here, accepted by a reactor.

use std::sync::Arc;

use cairn_fabric::trouble::{self, End};
use cairn_rdma::ConnRequest;
use nvme_proto::controller::connect;
use nvme_proto::wire::IntoBytes;
use nvme_proto::wire::cm::{RejectData, RejectStatus, ReplyData, RequestData};

use super::control::{Control, QUEUE_PAIRS_MAX};
use crate::ana::ListenerShared;
use crate::registry::Admitted;

impl Control {
    /// Gives a connection to the reactor with the fewest, or refuses it.
    pub(super) fn admit(
        &mut self,
        listener: &cairn_config::Listener,
        shared: Arc<ListenerShared>,
        request: ConnRequest,
    ) {
        match self.examine(&request) {
            Ok((reactor, cm, reply)) => {
                self.introduce_device(&request);
                let admitted = Admitted {
                    request,
                    cm,
                    reply,
                    traffic_class: listener.traffic_class,
                    hop_limit: listener.hop_limit,
                    listener: shared,
                };
                self.mailboxes[reactor].accept(Box::new(admitted));
            }
            Err(status) => {
                let now = self.clock.now();
                if let Some(unreported) = self.complaints.admit(request.peer.ip(), now) {
                    let reason = trouble::of_nvme_reject(status.0);
                    let reason = reason.line(End::Target, request.peer.ip());
                    tracing::warn!(
                        address = %request.peer, local = %request.local, reason,
                        unreported, "connection request refused"
                    );
                }
                request.reject(RejectData::new(status).as_bytes());
            }
        }
    }

    /// The reactor to go to, and what was asked for and is to be replied.
    fn examine(
        &self,
        request: &ConnRequest,
    ) -> Result<(usize, RequestData, ReplyData), RejectStatus> {
        let cm = RequestData::parse(request.private_data.as_slice())?;
        let reply = connect::admit(&cm, &self.limits)?;
        // Data from the host is fetched by RDMA READ: a host that answers none
        // (its IRD is 0) cannot be served.
        if request.peer_responder_resources == 0 {
            return Err(RejectStatus::INVALID_IRD);
        }
        let loads = self
            .mailboxes
            .iter()
            .map(crate::registry::Mailbox::load)
            .enumerate();
        let (reactor, load) = loads
            .min_by_key(|&(_, load)| load)
            .expect("there is a reactor");
        if load >= usize::from(QUEUE_PAIRS_MAX) {
            return Err(RejectStatus::NO_RESOURCES);
        }
        Ok((reactor, cm, reply))
    }

    /// Registers the memory of namespaces with a device that is new, which takes
    /// its time: here, so that no reactor does it.
    fn introduce_device(&mut self, request: &ConnRequest) {
        if self
            .devices
            .iter()
            .any(|known| known.id() == request.device.id())
        {
            return;
        }
        for namespace in self
            .exports
            .values()
            .flat_map(|export| export.namespaces.values())
        {
            // A reactor tries again, and says so if it cannot be.
            let _ = namespace.region(&request.device);
        }
        self.devices.push(Arc::clone(&request.device));
    }
}
