//! Error messages must name cause and remedy. The tests use loopback and user-space RoCE.

mod adapters;
mod at_the_host;
mod at_the_target;
mod authentication;
mod fake;
mod log;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use cairn_initiator::{HostOptions, Identity, Recovery};
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_roce::Soft;
use cairn_tests::harness::{NQN, host_nqn, nqn, own_loopback_address};

const PATIENCE: Duration = Duration::from_secs(60);

struct Place {
    provider: Arc<dyn Provider>,
    target: IpAddr,
    hosts: Option<IpAddr>,
}

impl Place {
    fn loopback() -> Self {
        Self {
            provider: Arc::new(Loopback::new()),
            target: Ipv4Addr::new(192, 0, 2, 1).into(),
            hosts: Some(Ipv4Addr::new(192, 0, 2, 2).into()),
        }
    }

    fn soft() -> Self {
        Self {
            provider: Arc::new(Soft::default()),
            target: own_loopback_address().into(),
            hosts: None,
        }
    }

    fn both() -> [Self; 2] {
        [Self::loopback(), Self::soft()]
    }

    fn options(&self, port: u16) -> HostOptions {
        HostOptions {
            local: self.hosts,
            timeout: PATIENCE,
            recovery: Recovery::NONE,
            kato_ms: 0,
            ..HostOptions::new(
                (self.target, port).into(),
                nqn(NQN),
                Identity::named(host_nqn("errors")),
            )
        }
    }
}
