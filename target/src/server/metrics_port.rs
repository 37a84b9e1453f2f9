use std::net::SocketAddr;
use std::sync::Arc;

use super::error::StartError;
use super::missing::MissingParts;
use crate::exposition::{MetricsServer, Observed};
use crate::health::Thing;

pub(super) struct MetricsPort {
    observed: Arc<Observed>,
    server: Option<MetricsServer>,
}

impl MetricsPort {
    pub(super) fn new(observed: Arc<Observed>) -> Self {
        Self {
            observed,
            server: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.server.is_some()
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(MetricsServer::address)
    }

    /// Closes the metrics port, and opens it at `listen` or notes it as missing.
    pub(super) fn serve(&mut self, listen: Option<SocketAddr>, missing: &mut MissingParts) {
        self.server = None;
        let Some(address) = listen else {
            return;
        };
        match MetricsServer::start(address, Arc::clone(&self.observed)) {
            Ok(server) => self.server = Some(server),
            Err(source) => {
                let error = StartError::Metrics { address, source };
                missing.note(Thing::Metrics(address), &error);
            }
        }
    }
}
