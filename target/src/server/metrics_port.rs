//! The port that metrics are asked for at.

use std::net::SocketAddr;
use std::sync::Arc;

use super::StartError;
use super::control::Control;
use crate::exposition::MetricsServer;

impl Control {
    /// Serves metrics, if a port is configured.
    pub(super) fn serve_metrics(
        &self,
        listen: Option<SocketAddr>,
    ) -> Result<Option<MetricsServer>, StartError> {
        let serve = |address| {
            MetricsServer::start(address, Arc::clone(&self.observed))
                .map_err(|source| StartError::Metrics { address, source })
        };
        listen.map(serve).transpose()
    }
}
