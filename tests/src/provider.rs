//! Providers of test programs.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use cairn_rdma::loopback::Loopback;
use cairn_rdma::{
    ConnRequest, FabricError, ListenOptions, Listener, ListenerEvent, PKey, Provider,
};
use cairn_roce::Soft;
use cairn_verbs::VerbsProvider;
use clap::ValueEnum;
use crossbeam_channel::{Receiver, unbounded};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};

/// RDMA provider of a test program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProviderName {
    /// Loopback inside this process.
    Loopback,
    /// RoCE in user space, over UDP.
    Soft,
    /// RDMA adapters, by libibverbs and librdmacm.
    Verbs,
}

impl ProviderName {
    /// Opens the provider; only [`Self::Verbs`] can fail.
    pub fn open(self) -> Result<Arc<dyn Provider>> {
        match self {
            Self::Loopback => Ok(Arc::new(Loopback::new())),
            Self::Soft => Ok(Arc::new(Soft::default())),
            Self::Verbs => Ok(Arc::new(VerbsProvider::new()?)),
        }
    }
}

/// Listens at an address, and sends connection requests to the returned channel.
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

/// True if this process may open packet sockets, which RoCE v1 needs. Otherwise, records a skip.
///
/// # Panics
/// If the socket cannot be opened for another reason than a missing `CAP_NET_RAW`.
#[must_use]
#[track_caller]
pub fn can_open_packet_sockets() -> bool {
    match socket(AddressFamily::PACKET, SocketType::RAW, None) {
        Ok(_) => true,
        Err(error @ Errno::PERM) => {
            cairn_skips::skip(format_args!(
                "RoCE v1 takes CAP_NET_RAW: packet socket: {error}"
            ));
            false
        }
        Err(error) => panic!("packet socket: {error}"),
    }
}
