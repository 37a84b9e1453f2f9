//! Listener that passes its connection requests to a test.

use std::net::SocketAddr;

use cairn_rdma::{
    ConnRequest, FabricError, ListenOptions, Listener, ListenerEvent, PKey, Provider,
};
use crossbeam_channel::{Receiver, unbounded};

/// Listens at an address, and sends connection requests to the returned channel.
///
/// # Errors
/// As [`Provider::listen`].
pub fn listen(
    provider: &dyn Provider,
    address: SocketAddr,
    backlog: u32,
) -> Result<(Box<dyn Listener>, Receiver<ConnRequest>), FabricError> {
    let (sender, requests) = unbounded();
    let options = ListenOptions {
        address,
        backlog,
        pkey: PKey::DEFAULT,
        roce: None,
    };
    let sink = Box::new(move |event| {
        if let ListenerEvent::Request(request) = event {
            let _ = sender.send(*request);
        }
    });
    Ok((provider.listen(&options, sink)?, requests))
}
