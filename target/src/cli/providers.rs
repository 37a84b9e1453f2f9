//! The providers that this program has.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use cairn_config::Roce;
use cairn_rdma::{Device, FabricError, ListenOptions, Listener, Provider, Sink};
use cairn_roce::capture::Capture;
use cairn_roce::phy::Network;
use cairn_roce::{Soft, SoftOptions};
use cairn_verbs::VerbsProvider;

/// All of them, best first, and once more the one whose counters we report.
/// One that cannot work here says so when it is asked to.
///
/// # Errors
/// The capture file cannot be written.
pub(super) fn all(
    target: &cairn_config::Target,
    pcap: Option<(&Path, u64)>,
) -> Result<(Vec<Arc<dyn Provider>>, Soft), String> {
    let verbs: Arc<dyn Provider> = match VerbsProvider::new() {
        Ok(verbs) => Arc::new(verbs),
        Err(error) => Arc::new(Missing {
            name: "verbs",
            reason: reason(error),
        }),
    };
    let capture = match pcap {
        Some((path, limit_bytes)) => {
            let capture = Capture::create(path, limit_bytes);
            let capture = capture.map_err(|error| format!("--pcap {}: {error}", path.display()))?;
            Some(Arc::new(capture))
        }
        None => None,
    };
    let network = match target.roce {
        Roce::V1 { vlan } => Network::Ethernet { vlan },
        Roce::V2 => Network::System,
    };
    let soft = Soft::new(SoftOptions {
        capture,
        congestion_control: target.congestion_control,
        network,
        ..SoftOptions::default()
    });
    Ok((vec![verbs, Arc::new(soft.clone())], soft))
}

fn reason(error: FabricError) -> String {
    match error {
        FabricError::Unavailable { reason, .. } => reason,
        other => other.to_string(),
    }
}

/// A provider that cannot work on this machine.
#[derive(Debug)]
struct Missing {
    name: &'static str,
    reason: String,
}

impl Missing {
    fn error(&self) -> FabricError {
        FabricError::Unavailable {
            provider: self.name,
            reason: self.reason.clone(),
        }
    }
}

impl Provider for Missing {
    fn name(&self) -> &'static str {
        self.name
    }

    fn listen(&self, _: &ListenOptions, _: Sink) -> Result<Box<dyn Listener>, FabricError> {
        Err(self.error())
    }

    fn device_for(&self, _: SocketAddr, _: Option<IpAddr>) -> Result<Arc<dyn Device>, FabricError> {
        Err(self.error())
    }
}
