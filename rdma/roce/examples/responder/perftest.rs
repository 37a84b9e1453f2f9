//! Server side of perftest's bandwidth tests with `-R`.

use cairn_roce::rdma::RemoteBuffer;

const DESTINATION_BYTES: usize = 56;
const DESTINATION_QPN: usize = 8;
const DESTINATION_RKEY: usize = 16;
const DESTINATION_ADDR: usize = 24;

#[derive(Debug)]
pub(crate) struct ControlWindow {
    window: RemoteBuffer,
    number: u32,
    messages: u64,
}

impl ControlWindow {
    pub(crate) fn new(window: RemoteBuffer, number: u32) -> Self {
        Self {
            window,
            number,
            messages: 0,
        }
    }

    pub(crate) fn receive(&mut self, mut message: Vec<u8>) -> Vec<u8> {
        self.messages += 1;
        if message.len() == DESTINATION_BYTES {
            let mut put = |at: usize, bytes: &[u8]| {
                message[at..at + bytes.len()].copy_from_slice(bytes);
            };
            put(DESTINATION_QPN, &self.number.to_be_bytes());
            put(DESTINATION_RKEY, &self.window.rkey.to_be_bytes());
            put(DESTINATION_ADDR, &self.window.addr.to_be_bytes());
        }
        message
    }

    pub(crate) fn summary(&self) -> String {
        format!("perftest, {} messages of control", self.messages)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Traffic {
    messages: u64,
    bytes: u64,
}

impl Traffic {
    pub(crate) fn receive(&mut self, message: &[u8]) {
        self.messages += 1;
        self.bytes += message.len() as u64;
    }

    pub(crate) fn summary(&self) -> String {
        let Self { messages, bytes } = self;
        format!("perftest, {messages} messages received, {bytes} bytes")
    }
}
