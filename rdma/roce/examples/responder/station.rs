//! Endpoint, receives and memory of all connections.
//!
//! Peers can access only the region `window`, without secrets. Messages are in the region `private`.

use std::sync::Arc;

use cairn_base::Mapping;
use cairn_rdma::{
    Access, Completion, ConnRequest, Device, Endpoint, EndpointOptions, Event, FabricError,
    Operation, PostError, QpId, QpOptions, RecvWork, Region, RemoteBuffer, SendWork, Sge,
};

const RECEIVES: usize = 128;
const RECEIVE_BYTES: usize = 128 << 10;

const CONNECTIONS: usize = 64;

/// Scratch bytes of a connection: data of READs and WRITEs, then the message to send.
const DATA_BYTES: usize = 64 << 10;
const SAID_BYTES: usize = 4 << 10;
const SCRATCH_BYTES: usize = DATA_BYTES + SAID_BYTES;

const WINDOW_BYTES: usize = 16 << 20;

const READS: u8 = 128;

#[derive(Debug)]
pub(crate) enum Step {
    /// Wait for the next message.
    Wait,
    /// Send a message.
    Say(Vec<u8>),
    /// READ the buffer of the peer.
    Read { buffer: RemoteBuffer, length: u32 },
    /// WRITE the scratch data to the buffer, and send a message.
    WriteAndSay {
        buffer: RemoteBuffer,
        length: u32,
        answer: Vec<u8>,
    },
}

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
            let mapping = Mapping::anonymous(bytes).map_err(|source| FabricError::Os {
                call: "mmap",
                source,
            })?;
            device.register(Arc::new(mapping), access)
        };
        let private_bytes = RECEIVES * RECEIVE_BYTES + CONNECTIONS * SCRATCH_BYTES;
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
        RemoteBuffer {
            addr: self.window.mapping().addr(),
            rkey: self.window.rkey().expect("the window is for peers"),
        }
    }

    pub(crate) const fn data_bytes() -> u32 {
        DATA_BYTES as u32
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

    pub(crate) fn take(&mut self, qp: QpId, step: Step) -> Result<(), PostError> {
        let work = |op, sge: Sge| SendWork {
            id: 0,
            op,
            sges: sge.into(),
            signaled: true,
        };
        match step {
            Step::Wait => Ok(()),
            Step::Say(message) => {
                let said = self.write_down(qp, &message);
                self.endpoint.post(qp, &[work(Operation::Send, said)])
            }
            Step::Read { buffer, length } => {
                let data = self.data(qp, length);
                self.endpoint
                    .post(qp, &[work(Operation::Read(buffer), data)])
            }
            Step::WriteAndSay {
                buffer,
                length,
                answer,
            } => {
                let said = self.write_down(qp, &answer);
                let echo = work(Operation::Write(buffer), self.data(qp, length));
                let chain = [echo, work(Operation::Send, said)];
                self.endpoint.post(qp, &chain)
            }
        }
    }

    fn post_receive(&mut self, slot: usize) -> Result<(), PostError> {
        let sge = Sge {
            addr: self.private.mapping().addr() + (slot * RECEIVE_BYTES) as u64,
            length: RECEIVE_BYTES as u32,
            lkey: self.private.lkey(),
        };
        let work = RecvWork {
            id: slot as u64,
            sges: sge.into(),
        };
        self.endpoint.post_receives(&[work])
    }

    fn write_down(&self, qp: QpId, message: &[u8]) -> Sge {
        let message = &message[..message.len().min(SAID_BYTES)];
        let at = scratch(qp) + DATA_BYTES;
        self.private.mapping().write(at, message);
        self.sge(at, message.len() as u32)
    }

    fn data(&self, qp: QpId, length: u32) -> Sge {
        self.sge(scratch(qp), length)
    }

    fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge {
            addr: self.private.mapping().addr() + offset as u64,
            length,
            lkey: self.private.lkey(),
        }
    }
}

fn scratch(qp: QpId) -> usize {
    RECEIVES * RECEIVE_BYTES + qp.slot() * SCRATCH_BYTES
}
