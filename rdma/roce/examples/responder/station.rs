//! Endpoint, receives and memory of all connections.
//!
//! Peers can access only the region `window`, which contains no secrets. The region `private`
//! contains messages.

use std::sync::Arc;

use cairn_roce::rdma::{
    Access, Completion, ConnRequest, Device, Endpoint, EndpointOptions, Event, FabricError,
    Mapping, Operation, PostError, QpId, QpOptions, RecvWork, Region, RemoteBuffer, SendWork,
};

const RECEIVES: usize = 128;
const RECEIVE_BYTES: usize = 128 << 10;

const CONNECTIONS: usize = 64;

const SAID_BYTES: usize = 4 << 10;

const WINDOW_BYTES: usize = 16 << 20;

const READS: u8 = 128;

pub(crate) struct Station {
    endpoint: Box<dyn Endpoint>,
    private: Region,
    window: Region,
}

impl Station {
    pub(crate) fn open(device: &Arc<dyn Device>) -> Result<Self, FabricError> {
        let options = EndpointOptions {
            receives: RECEIVES as u32,
            completions: (RECEIVES + 4 * CONNECTIONS) as u32,
            queue_pairs: CONNECTIONS as u16,
        };
        let endpoint = Arc::clone(device).open(&options)?;
        let memory = |bytes, access| {
            let mapping = Mapping::anonymous(bytes).map_err(FabricError::os("mmap"))?;
            device.register(Arc::new(mapping), access)
        };
        let private_bytes = RECEIVES * RECEIVE_BYTES + CONNECTIONS * SAID_BYTES;
        let mut station = Self {
            endpoint,
            private: memory(private_bytes, Access::LOCAL_WRITE)?,
            window: memory(WINDOW_BYTES, Access::REMOTE_READ | Access::REMOTE_WRITE)?,
        };
        for slot in 0..RECEIVES {
            let posted = station.post_receive(slot);
            posted.expect("an endpoint takes as many receives as it was opened for");
        }
        Ok(station)
    }

    pub(crate) fn endpoint(&mut self) -> &mut dyn Endpoint {
        &mut *self.endpoint
    }

    pub(crate) fn window(&self) -> RemoteBuffer {
        self.window.remote(0).expect("the window is for peers")
    }

    pub(crate) fn accept(&mut self, request: ConnRequest) -> Result<QpId, FabricError> {
        let options = QpOptions {
            responder_resources: READS,
            ..QpOptions::default()
        };
        self.endpoint.accept(request, &options, &[])
    }

    pub(crate) fn disconnect(&mut self, qp: QpId) {
        self.endpoint.disconnect(qp);
    }

    pub(crate) fn poll(&mut self, completions: &mut Vec<Completion>, events: &mut Vec<Event>) {
        let mut out = [Completion::EMPTY; 64];
        let count = self.endpoint.poll(&mut out);
        completions.extend_from_slice(&out[..count]);
        self.endpoint.poll_events(events);
    }

    pub(crate) fn take_message(&mut self, completion: &Completion) -> Result<Vec<u8>, PostError> {
        let slot = completion.id as usize;
        let mut message = vec![0; completion.byte_len as usize];
        if completion.status.is_success() {
            self.private
                .mapping()
                .read(slot * RECEIVE_BYTES, &mut message);
        }
        self.post_receive(slot)?;
        Ok(message)
    }

    pub(crate) fn say(&mut self, qp: QpId, message: &[u8]) -> Result<(), PostError> {
        let message = &message[..message.len().min(SAID_BYTES)];
        let at = RECEIVES * RECEIVE_BYTES + qp.slot() * SAID_BYTES;
        self.private.mapping().write(at, message);
        let work = SendWork {
            id: 0,
            op: Operation::Send,
            sges: self.private.sge(at, message.len() as u32).into(),
            signaled: true,
        };
        self.endpoint.post(qp, &[work])
    }

    fn post_receive(&mut self, slot: usize) -> Result<(), PostError> {
        let buffer = self.private.sge(slot * RECEIVE_BYTES, RECEIVE_BYTES as u32);
        let work = RecvWork {
            id: slot as u64,
            sges: buffer.into(),
        };
        self.endpoint.post_receives(&[work])
    }
}
