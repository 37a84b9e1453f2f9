//! A target and a host, with nothing between them but the cable: every byte that
//! is written comes back.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use cairn_config::{Config, Flags};
use cairn_initiator::{Data, Host, HostOptions, command};
use cairn_rdma::Provider;
use cairn_sim::Random;
use cairn_target::Target;
use cairn_tests::harness::{NQN, host_nqn, nqn, subsystem};

use crate::cable::{Cable, TOS};

const PATIENCE: Duration = Duration::from_secs(30);
const BLOCK_BYTES: usize = 4096;
/// Transfers, one after the other, on each of the queues in turn: 2 MiB, each way.
const TRANSFERS: [usize; 12] = [
    BLOCK_BYTES,
    1 << 20,
    2 * BLOCK_BYTES,
    3 * BLOCK_BYTES,
    512 << 10,
    BLOCK_BYTES,
    64 << 10,
    5 * BLOCK_BYTES,
    BLOCK_BYTES,
    256 << 10,
    17 * BLOCK_BYTES,
    128 << 10,
];
const QUEUES: u16 = 2;

pub(crate) fn run(cable: Cable) {
    let (address_out, address_in) = channel();
    let (over_out, over_in) = channel();
    let target = move || {
        let address = cable.address(0);
        let listener = format!("[[listener]]\naddress = \"{address}\"\nprovider = \"soft\"\n");
        let exports = subsystem(NQN, &["mem:8MiB block_size = 4096"]);
        let text = format!("[target]\nreactors = 2\n{exports}\n{listener}");
        let config = Config::parse("test", &text, &Flags::default()).unwrap();
        let provider: Arc<dyn Provider> = Arc::new(cable.provider());
        let target = Target::start(config, vec![provider]).unwrap();
        address_out.send(target.addresses()[0]).unwrap();
        // An error is the host's panic, which is reported separately.
        let _ = over_in.recv_timeout(PATIENCE);
        target.stop().unwrap();
    };
    let host = move || {
        let remote = address_in.recv_timeout(PATIENCE).unwrap();
        let options = HostOptions {
            io_queues: QUEUES,
            traffic_class: Some(TOS),
            timeout: PATIENCE,
            ..HostOptions::new(remote, nqn(NQN), host_nqn("cable"))
        };
        let mut host = Host::connect(&cable.provider(), options).unwrap();
        write_and_read_back(&mut host);
        host.shutdown().unwrap();
        over_out.send(()).unwrap();
    };
    cable.join(target, host);
}

fn write_and_read_back(host: &mut Host) {
    let mut at = 0;
    let mut written = Vec::new();
    for (seed, length) in (1..).zip(TRANSFERS) {
        let qid = 1 + (seed % u64::from(QUEUES)) as u16;
        let blocks = (length / BLOCK_BYTES) as u32;
        let bytes = Random::new(seed).bytes(length);
        let sqe = command::write(1, at, blocks);
        if length == BLOCK_BYTES {
            host.run(qid, sqe, Data::InCapsule(&bytes)).unwrap();
        } else {
            let buffer = host.buffer(length).unwrap();
            buffer.write(0, &bytes);
            let data = Data::start_of(&buffer, length as u32);
            host.run(qid, sqe, data).unwrap();
        }
        written.push((at, bytes));
        at += u64::from(blocks);
    }
    for (index, (at, bytes)) in written.iter().enumerate() {
        let qid = 1 + index as u16 % QUEUES;
        let buffer = host.buffer(bytes.len()).unwrap();
        let sqe = command::read(1, *at, (bytes.len() / BLOCK_BYTES) as u32);
        let data = Data::start_of(&buffer, bytes.len() as u32);
        host.run(qid, sqe, data).unwrap();
        assert!(
            buffer.bytes(0, bytes.len()) == *bytes,
            "{} bytes at block {at} came back mangled",
            bytes.len()
        );
    }
}
