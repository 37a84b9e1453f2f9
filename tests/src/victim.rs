//! Target over user-space RoCE for attack tests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cairn_config::{Config, Flags};
use cairn_initiator::{Data, Host, HostOptions, Identity, command};
use cairn_rdma::Provider;
use cairn_roce::Soft;
use cairn_roce_proto::counters::Counters;
use cairn_target::Target;

use crate::harness::{NQN, host_nqn, nqn, own_loopback_address, subsystem};

const PATIENCE: Duration = Duration::from_secs(20);

pub struct Victim {
    pub target: Target,
    pub soft: Soft,
}

impl Victim {
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(1)
    }

    #[must_use]
    pub fn start_with(reactors: usize) -> Self {
        let address = own_loopback_address();
        let exports = subsystem(NQN, &["mem:1MiB block_size = 512"]);
        let listener = format!("[[listener]]\naddress = \"{address}\"\nprovider = \"soft\"\n");
        let text = format!("[target]\nreactors = {reactors}\n{exports}\n{listener}");
        let config = Config::parse("test", &text, &Flags::default()).unwrap();
        let soft = Soft::default();
        let provider: Arc<dyn Provider> = Arc::new(soft.clone());
        let target = Target::start(config, vec![provider]).unwrap();
        Self { target, soft }
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.target.addresses()[0]
    }

    #[must_use]
    pub fn counters(&self) -> Counters {
        self.soft.counters()[0].1
    }

    /// Checks that a host at another address can connect and do I/O.
    pub fn serves_others(&self) {
        let options = HostOptions {
            timeout: PATIENCE,
            kato_ms: 0,
            ..HostOptions::new(self.address(), nqn(NQN), Identity::named(host_nqn("good")))
        };
        let mut host = Host::connect(&Soft::default(), options).unwrap();
        let mut buffer = host.buffer(512).unwrap();
        buffer.write(0, &[7; 512]);
        let data = Data::whole(&mut buffer);
        host.run(command::write(1, 0, 1), data).unwrap();
        buffer.write(0, &[0; 512]);
        let data = Data::whole(&mut buffer);
        host.run(command::read(1, 0, 1), data).unwrap();
        assert_eq!(buffer.bytes(0, 512), [7; 512]);
        host.shutdown().unwrap();
    }
}
