//! Listener that accepts connections but does not implement NVMe.

use std::net::SocketAddr;
use std::sync::Arc;

use cairn_base::Mapping;
use cairn_rdma::{
    Access, ConnRequest, Endpoint, EndpointOptions, Listener, QpOptions, RecvWork, Region,
};
use cairn_tests::provider::listen;
use crossbeam_channel::Receiver;
use nvme_proto::wire::IntoBytes;
use nvme_proto::wire::cm::ReplyData;

use super::{PATIENCE, Place};

pub(crate) struct Fake {
    listener: Box<dyn Listener>,
    requests: Receiver<ConnRequest>,
}

pub(crate) struct Accepted {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) region: Region,
}

impl Fake {
    pub(crate) fn open(place: &Place) -> Self {
        let address = SocketAddr::new(place.target, 0);
        let (listener, requests) = listen(&*place.provider, address, 16).unwrap();
        Self { listener, requests }
    }

    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().port()
    }

    pub(crate) fn request(&self) -> ConnRequest {
        self.requests.recv_timeout(PATIENCE).unwrap()
    }

    pub(crate) fn accept(&self, bytes: u32) -> Accepted {
        let request = self.request();
        let device = Arc::clone(&request.device);
        let mapping = Arc::new(Mapping::anonymous(1 << 16).unwrap());
        let region = device.register(mapping, Access::LOCAL_WRITE).unwrap();
        let options = EndpointOptions {
            receives: 4,
            completions: 64,
            queue_pairs: 4,
        };
        let mut endpoint = device.open(&options).unwrap();
        if bytes > 0 {
            let receive = RecvWork {
                id: 0,
                sges: region.sge(0, bytes).into(),
            };
            endpoint.post_receives(&[receive]).unwrap();
        }
        let reply = ReplyData::new(32);
        endpoint
            .accept(request, &QpOptions::default(), reply.as_bytes())
            .unwrap();
        Accepted { endpoint, region }
    }
}
