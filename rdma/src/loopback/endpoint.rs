use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use cairn_base::wake::Wake;

use crate::connection::{ConnectOptions, Event, PrivateData, QpOptions};
use crate::error::FabricError;
use crate::marking::{Marked, Marking};
use crate::provider::{
    ConnRequest, Device, Endpoint, EndpointLimits, EndpointOptions, ListenerEvent,
};
use crate::work::PostError;
use crate::work::{Completion, QpId, RecvWork, SendWork};

use super::network::{EndpointKey, QpAddress};
use super::{LoopbackDevice, LoopbackRequest, REP_PRIVATE_DATA, REQ_PRIVATE_DATA, padded};

const ACTIVE_PORT: u16 = 49151;

const REASON_INVALID_SERVICE_ID: u16 = 8;
const REASON_UNSUPPORTED_REQUEST: u16 = 5;

pub(super) struct LoopbackEndpoint {
    device: Arc<LoopbackDevice>,
    as_device: Arc<dyn Device>,
    key: EndpointKey,
    pub(super) wake: Arc<Wake>,
    wait_fds: [RawFd; 1],
}

impl LoopbackEndpoint {
    pub(super) fn open(
        device: Arc<LoopbackDevice>,
        options: &EndpointOptions,
    ) -> Result<Self, FabricError> {
        let wake = Wake::new().map_err(FabricError::os("eventfd"))?;
        let wake = Arc::new(wake);
        let key = device.shared.network().open_endpoint(
            device.id,
            device.domain,
            *options,
            Arc::clone(&wake),
        );
        let wait_fds = [wake.fd()];
        Ok(Self {
            as_device: Arc::clone(&device) as _,
            device,
            key,
            wake,
            wait_fds,
        })
    }

    fn at(&self, qp: QpId) -> QpAddress {
        QpAddress {
            endpoint: self.key,
            qp,
        }
    }
}

impl Drop for LoopbackEndpoint {
    fn drop(&mut self) {
        self.device.shared.network().close_endpoint(self.key);
        self.wake.clear();
    }
}

impl Endpoint for LoopbackEndpoint {
    fn device(&self) -> &Arc<dyn Device> {
        &self.as_device
    }

    fn limits(&self) -> EndpointLimits {
        EndpointLimits {
            send_work: 16384,
            initiator_depth: u8::MAX,
            responder_resources: u8::MAX,
            send_with_invalidate: true,
            shared_receives: true,
        }
    }

    fn post_receives(&mut self, works: &[RecvWork]) -> Result<(), PostError> {
        self.device.shared.network().post_receives(self.key, works)
    }

    fn accept(
        &mut self,
        request: ConnRequest,
        options: &QpOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError> {
        let handle = request.handle.into_any().downcast::<LoopbackRequest>();
        let mut handle = handle.expect("a request goes to an endpoint of its own provider");
        let data = padded::<REP_PRIVATE_DATA>(private_data);
        // This statement releases the lock before `handle` is dropped. After a failure, the drop
        // sends a REJ and takes the lock again.
        let qp = self
            .device
            .shared
            .network()
            .establish(handle.from, self.key, options, data)?;
        handle.answered = true;
        Ok(qp)
    }

    fn connect(
        &mut self,
        options: &ConnectOptions,
        private_data: &[u8],
    ) -> Result<QpId, FabricError> {
        let from = self.device.shared.network().begin(self.key, &options.qp)?;
        let listening = match self.device.shared.listening_at(options.remote) {
            None => Err(REASON_INVALID_SERVICE_ID),
            Some(listening) if !listening.pkey.accepts(options.pkey.bits()) => {
                Err(REASON_UNSUPPORTED_REQUEST)
            }
            Some(listening) => Ok(listening),
        };
        let listening = match listening {
            Ok(listening) => listening,
            Err(reason) => {
                let nothing = PrivateData::new(&[]);
                let mut network = self.device.shared.network();
                network.refuse(from, nothing, reason);
                return Ok(from.qp);
            }
        };
        let shared = Arc::clone(&self.device.shared);
        let request = ConnRequest {
            local: options.remote,
            peer: SocketAddr::new(options.local.unwrap_or(self.device.address), ACTIVE_PORT),
            private_data: padded::<REQ_PRIVATE_DATA>(private_data),
            peer_responder_resources: options.qp.responder_resources,
            peer_initiator_depth: options.qp.initiator_depth,
            device: shared.device_at(options.remote.ip()),
            handle: Box::new(LoopbackRequest {
                shared,
                from,
                answered: false,
            }),
        };
        (listening.sink)(ListenerEvent::Request(Box::new(request)));
        Ok(from.qp)
    }

    fn marked(&mut self, _: QpId) -> Option<Marked> {
        None
    }

    fn set_marking(&mut self, _: QpId, _: Marking) -> bool {
        false
    }

    fn post(&mut self, qp: QpId, chain: &[SendWork]) -> Result<(), PostError> {
        self.device.shared.network().post(self.at(qp), chain)
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.device.shared.network().poll(self.key, out)
    }

    fn poll_events(&mut self, out: &mut Vec<Event>) {
        self.device.shared.network().poll_events(self.key, out);
    }

    fn drain_connections(&mut self) {}

    fn disconnect(&mut self, qp: QpId) {
        self.device.shared.network().disconnect(self.at(qp));
    }

    fn arm(&mut self) -> Result<bool, FabricError> {
        Ok(self.device.shared.network().arm(self.key))
    }

    fn wait_fds(&self) -> &[RawFd] {
        &self.wait_fds
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}
