use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use cairn_config::{Config, Flags};
use cairn_initiator::{Data, Host, HostOptions, Identity, command, discover};
use cairn_rdma::Provider;
use cairn_roce::Soft;
use cairn_sim::Random;
use cairn_target::Target;
use cairn_tests::harness::{NQN, host_nqn, nqn, subsystem};

use crate::cable::{Cable, TOS};

const PATIENCE: Duration = Duration::from_secs(30);
const BLOCK_BYTES: usize = 4096;
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
    join(cable, |host, _, _| write_and_read_back(host));
}

/// Checks I/O over link-local addresses. The discovery log must not name interfaces: the host's
/// interfaces have other names.
pub(crate) fn run_link_local(cable: Cable) {
    join(cable, move |host, provider, remote| {
        write_and_read_back(host);
        let options = HostOptions::new(remote, nqn(NQN), Identity::named(host_nqn("cable")));
        let log = discover(provider, &options).unwrap();
        for entry in &log.entries {
            let traddr = String::from_utf8_lossy(&entry.traddr);
            assert_eq!(traddr.trim_end(), cable.addresses[0]);
        }
        assert_eq!(log.entries.len(), 2);
    });
}

pub(crate) fn blocks_are_whole(cable: Cable) {
    join(cable, |writer, provider, remote| {
        let mut reader = connect(provider, remote);
        read_while_it_is_written(writer, &mut reader);
        reader.shutdown().unwrap();
    });
}

fn connect(provider: &Soft, remote: SocketAddr) -> Host {
    let options = HostOptions {
        io_queues: QUEUES,
        traffic_class: Some(TOS),
        timeout: PATIENCE,
        kato_ms: 0,
        ..HostOptions::new(remote, nqn(NQN), Identity::named(host_nqn("cable")))
    };
    Host::connect(provider, options).unwrap()
}

fn join(cable: Cable, work: impl FnOnce(&mut Host, &Soft, SocketAddr) + Send + 'static) {
    let (address_out, address_in) = channel();
    let (over_out, over_in) = channel();
    let target = move || {
        let address = cable.traddr(0, 0);
        let listener = format!("[[listener]]\naddress = \"{address}\"\nprovider = \"soft\"\n");
        let exports = subsystem(NQN, &["mem:8MiB block_size = 4096"]);
        let text = format!("[target]\nreactors = 2\n{exports}\n{listener}");
        let config = Config::parse("test", &text, &Flags::default()).unwrap();
        let provider: Arc<dyn Provider> = Arc::new(cable.provider());
        let target = Target::start(config, vec![provider]).unwrap();
        address_out.send(target.addresses()[0]).unwrap();
        let _ = over_in.recv_timeout(PATIENCE);
        target.stop().unwrap();
    };
    let host = move || {
        let at: SocketAddr = address_in.recv_timeout(PATIENCE).unwrap();
        let remote = cable.listener(1, at.port());
        let provider = cable.provider();
        let mut host = connect(&provider, remote);
        work(&mut host, &provider, remote);
        host.shutdown().unwrap();
        over_out.send(()).unwrap();
    };
    cable.join(target, host);
}

fn write_and_read_back(host: &mut Host) {
    let mut at = 0;
    let mut written = Vec::new();
    for (seed, length) in (1..).zip(TRANSFERS) {
        let queue = host.io_queue(seed as usize);
        let blocks = (length / BLOCK_BYTES) as u32;
        let bytes = Random::new(seed).bytes(length);
        let sqe = command::write(1, at, blocks);
        if length == BLOCK_BYTES {
            host.run_on(queue, sqe, Data::InCapsule(&bytes)).unwrap();
        } else {
            let mut buffer = host.buffer(length).unwrap();
            buffer.write(0, &bytes);
            let data = Data::start_of(&mut buffer, length as u32);
            host.run_on(queue, sqe, data).unwrap();
        }
        written.push((at, bytes));
        at += u64::from(blocks);
    }
    for (index, (at, bytes)) in written.iter().enumerate() {
        let queue = host.io_queue(index);
        let mut buffer = host.buffer(bytes.len()).unwrap();
        let sqe = command::read(1, *at, (bytes.len() / BLOCK_BYTES) as u32);
        let data = Data::start_of(&mut buffer, bytes.len() as u32);
        host.run_on(queue, sqe, data).unwrap();
        assert!(
            buffer.bytes(0, bytes.len()) == *bytes,
            "{} bytes at block {at} came back mangled",
            bytes.len()
        );
    }
}

fn read_while_it_is_written(writer: &mut Host, reader: &mut Host) {
    let (mut new, mut seen) = (
        writer.buffer(BLOCK_BYTES).unwrap(),
        reader.buffer(BLOCK_BYTES).unwrap(),
    );
    for round in 0..3000 {
        new.write(0, &[1 + round as u8 % 2; BLOCK_BYTES]);
        let write = command::write(1, 0, 1);
        let write = writer.submit(write, Data::whole(new)).unwrap();
        let read = reader.submit(command::read(1, 0, 1), Data::whole(seen));
        let read = read.unwrap();
        let end = Instant::now() + PATIENCE;
        let (mut written, mut back) = (None, None);
        while written.is_none() || back.is_none() {
            assert!(Instant::now() < end, "no answer");
            writer.poll();
            reader.poll();
            written = written.or_else(|| writer.take(write));
            back = back.or_else(|| reader.take(read));
        }
        new = written.unwrap().into_buffer().unwrap();
        seen = back.unwrap().into_buffer().unwrap();
        let bytes = seen.bytes(0, BLOCK_BYTES);
        assert!(
            bytes.iter().all(|byte| *byte == bytes[0]),
            "read {round} has parts of two writes"
        );
    }
}
