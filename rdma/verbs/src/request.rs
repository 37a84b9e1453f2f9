//! Connection request, passed from the listener to the answering endpoint.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cairn_base::peer_detail;
use cairn_rdma::{ConnHandle, Marking};

use crate::cm::Id;

#[derive(Debug)]
pub(crate) struct VerbsRequest {
    pub(crate) id: Option<Id>,
    pub(crate) pkey_index: Option<u16>,
    pub(crate) waiting: Arc<AtomicU32>,
}

impl VerbsRequest {
    pub(crate) fn id(&self) -> &Id {
        self.id.as_ref().expect("the request is not answered yet")
    }

    pub(crate) fn claim(mut self) -> (Id, Option<u16>) {
        let id = self.id.take().expect("a request is answered once");
        (id, self.pkey_index)
    }
}

impl ConnHandle for VerbsRequest {
    /// Does nothing, because the kernel copies the traffic class of the request to the REJ.
    fn mark(&mut self, _: Marking) {}

    fn reject(mut self: Box<Self>, private_data: &[u8]) {
        if let Some(mut id) = self.id.take() {
            refuse(&mut id, private_data);
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl Drop for VerbsRequest {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(mut id) = self.id.take() {
            refuse(&mut id, &[]);
        }
    }
}

/// Sends a REJ. An error is only logged, because the peer then no longer waits for an answer.
pub(crate) fn refuse(id: &mut Id, private_data: &[u8]) {
    if let Err(error) = id.reject(private_data) {
        peer_detail!(peer = %id.peer_addr(), %error, "rdma_reject");
    }
}
