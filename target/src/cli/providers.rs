use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use cairn_rdma::{Device, FabricError, ListenOptions, Listener, Provider, Sink};
use cairn_roce::Capture;
use cairn_roce::Network;
use cairn_roce::{Soft, SoftOptions};
use cairn_verbs::VerbsProvider;

/// Returns all providers in order of preference, and the user-space provider again for its
/// counters. A provider that cannot work here fails only on use. Fails if the capture file cannot
/// be written.
pub(super) fn all(
    target: &cairn_config::Target,
    pcap: Option<(&Path, u64)>,
) -> Result<(Vec<Arc<dyn Provider>>, Soft), String> {
    let capture = match pcap {
        Some((path, limit_bytes)) => {
            let capture = Capture::create(path, limit_bytes);
            let capture = capture.map_err(|error| format!("--pcap {}: {error}", path.display()))?;
            Some(Arc::new(capture))
        }
        None => None,
    };
    let soft = Soft::new(SoftOptions {
        capture,
        congestion_control: target.congestion_control,
        segmentation_offload: target.segmentation_offload,
        network: Network::System.with(target.roce),
        ..SoftOptions::default()
    });
    Ok((
        vec![Arc::new(Verbs::default()), Arc::new(soft.clone())],
        soft,
    ))
}

/// Verbs provider. Opens the RDMA library on first use, and retries until there is an RDMA device.
#[derive(Debug, Default)]
struct Verbs(OnceLock<VerbsProvider>);

impl Verbs {
    fn opened(&self) -> Result<&VerbsProvider, FabricError> {
        if let Some(opened) = self.0.get() {
            return Ok(opened);
        }
        let opened = VerbsProvider::new()?;
        Ok(self.0.get_or_init(|| opened))
    }
}

impl Provider for Verbs {
    fn name(&self) -> &'static str {
        "verbs"
    }

    fn listen(
        &self,
        options: &ListenOptions,
        sink: Sink,
    ) -> Result<Box<dyn Listener>, FabricError> {
        self.opened()?.listen(options, sink)
    }

    fn device_for(
        &self,
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> Result<Arc<dyn Device>, FabricError> {
        self.opened()?.device_for(remote, local)
    }
}
