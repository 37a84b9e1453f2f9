//! HTTP port of the metrics page.

use std::net::SocketAddr;
use std::sync::Arc;

use super::control::Control;
use super::error::StartError;
use crate::exposition::MetricsServer;
use crate::outlook::Thing;

impl Control {
    /// Serves metrics if configured. A port that is in use does not stop the target.
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
