//! The port that metrics are served at.

use std::net::SocketAddr;
use std::sync::Arc;

use super::StartError;
use super::control::Control;
use crate::exposition::MetricsServer;
use crate::outlook::Thing;

impl Control {
    /// Serves metrics there, if anywhere. A port that is taken does not stop the storage.
    pub(super) fn serve_metrics(&mut self, listen: Option<SocketAddr>) -> Option<MetricsServer> {
        let address = listen?;
        let started = MetricsServer::start(address, Arc::clone(&self.observed));
        match started {
            Ok(server) => Some(server),
            Err(source) => {
                let error = StartError::Metrics { address, source };
                self.note_missing(Thing::Metrics(address), &error);
                None
            }
        }
    }
}
