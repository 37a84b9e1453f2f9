//! Network changes under verified I/O: a link goes down, an address is removed, or an interface is
//! replaced.
//!
//! When the network returns, both ends must recover without loss of acknowledged data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cairn_config::{Config, Flags};
use cairn_initiator::{Buffer, Data, Event, Host, HostOptions, Identity, Recovery, command};
use cairn_rdma::Provider;
use cairn_sim::Random;
use cairn_target::Target;
use cairn_tests::harness::{NQN, host_nqn, nqn, subsystem};
use nvme_proto::wire::Sqe;

use crate::cable::{Cable, FarEnd, ip};

const PATIENCE: Duration = Duration::from_secs(60);
const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 64;
const TRANSFERS: u64 = 50;

#[derive(Default)]
struct Progress {
    verified: AtomicU64,
    lost: AtomicU64,
    over: AtomicBool,
}

impl Progress {
    fn wait(&self, what: &str, counter: &AtomicU64, more: u64) {
        let wanted = counter.load(Ordering::Relaxed) + more;
        let deadline = Instant::now() + PATIENCE;
        while counter.load(Ordering::Relaxed) < wanted {
            assert!(Instant::now() < deadline, "{what}: it did not come");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

pub(crate) fn run(cable: Cable) {
    let (address_out, address_in) = channel();
    let progress = Arc::new(Progress::default());
    let seen = Arc::clone(&progress);
    let target = move |far_end: FarEnd| {
        let address = cable.address(0);
        let listener = format!("[[listener]]\naddress = \"{address}\"\nprovider = \"soft\"\n");
        let exports = subsystem(NQN, &["mem:1MiB block_size = 4096"]);
        let text = format!("[target]\nreactors = 1\n{exports}\n{listener}");
        let config = Config::parse("test", &text, &Flags::default()).unwrap();
        let provider: Arc<dyn Provider> = Arc::new(cable.provider());
        let target = Target::start(config, vec![provider]).unwrap();
        address_out.send(target.addresses()[0]).unwrap();
        move || {
            seen.wait("the first transfers", &seen.verified, TRANSFERS);
            for trial in Trial::of(&cable) {
                trial.befall(&cable, far_end, &seen);
            }
            seen.over.store(true, Ordering::Relaxed);
            seen.wait("the host's disconnect", &seen.lost, 1);
            target.stop().unwrap();
        }
    };
    let host = move || {
        let remote = address_in.recv_timeout(PATIENCE).unwrap();
        let options = HostOptions {
            timeout: Duration::from_secs(5),
            recovery: Recovery {
                reconnect_delay: Duration::from_millis(500),
                ..Recovery::default()
            },
            kato_ms: 0,
            ..HostOptions::new(remote, nqn(NQN), Identity::named(host_nqn("life")))
        };
        let mut host = Host::connect(&cable.provider(), options).unwrap();
        write_and_read_back(&mut host, &progress);
        host.shutdown().unwrap();
        progress.lost.fetch_add(1, Ordering::Relaxed);
    };
    cable.join_unwatched(target, host);
}

#[derive(Debug, Clone, Copy)]
enum Trial {
    PathMtuForged,
    Blink,
    TargetsLinkDown,
    HostsLinkDown,
    TargetsAddressGone,
    HostsAddressGone,
    Replaced,
}

impl Trial {
    /// Returns the changes to test. Only RoCE v2 over IPv4 tests all changes, because most changes
    /// take a connection timeout.
    fn of(cable: &Cable) -> Vec<Self> {
        let every = vec![
            Self::PathMtuForged,
            Self::Blink,
            Self::TargetsLinkDown,
            Self::HostsLinkDown,
            Self::TargetsAddressGone,
            Self::HostsAddressGone,
            Self::Replaced,
        ];
        match (cable.roce.is_v1(), cable.address(0).is_ipv6()) {
            (true, _) => vec![Self::TargetsLinkDown, Self::HostsLinkDown],
            (false, true) => vec![Self::TargetsLinkDown, Self::TargetsAddressGone],
            (false, false) => every,
        }
    }

    fn befall(self, cable: &Cable, far_end: FarEnd, progress: &Progress) {
        eprintln!("{self:?}");
        let lost = progress.lost.load(Ordering::Relaxed);
        match self {
            Self::PathMtuForged => {
                ip("route change 10.77.0.0/24 dev cable0 mtu 600");
                far_end.ip("route change 10.77.0.0/24 dev cable1 mtu 600");
            }
            Self::Blink => {
                far_end.ip("link set cable1 down");
                ip("link set cable0 down");
                thread::sleep(Duration::from_millis(300));
            }
            Self::TargetsLinkDown => ip("link set cable0 down"),
            Self::HostsLinkDown => far_end.ip("link set cable1 down"),
            Self::TargetsAddressGone => ip("address flush dev cable0"),
            Self::HostsAddressGone => far_end.ip("address flush dev cable1"),
            Self::Replaced => ip("link delete cable0"),
        }
        if !matches!(self, Self::Blink | Self::PathMtuForged) {
            progress.wait("the loss of the connection", &progress.lost, 1);
        }
        match self {
            Self::Replaced => far_end.lay(cable),
            Self::PathMtuForged => {}
            _ => far_end.plug_in_again(cable),
        }
        progress.wait("transfers afterwards", &progress.verified, TRANSFERS);
        if matches!(self, Self::Blink | Self::PathMtuForged) {
            let now = progress.lost.load(Ordering::Relaxed);
            assert_eq!(lost, now, "that is no reason to give up");
        }
    }
}

fn write_and_read_back(host: &mut Host, progress: &Progress) {
    let mut buffer = host.buffer(BLOCK_BYTES).unwrap();
    let mut random = 1;
    while !progress.over.load(Ordering::Relaxed) {
        let bytes = Random::new(random).bytes(BLOCK_BYTES);
        let block = random % BLOCKS;
        random += 1;
        buffer.write(0, &bytes);
        let write = command::write(1, block, 1);
        buffer = patiently(host, write, buffer, progress);
        buffer.write(0, &[0; BLOCK_BYTES]);
        let read = command::read(1, block, 1);
        buffer = patiently(host, read, buffer, progress);
        assert!(buffer.bytes(0, BLOCK_BYTES) == bytes, "block {block}");
        progress.verified.fetch_add(1, Ordering::Relaxed);
    }
}

fn patiently(host: &mut Host, sqe: Sqe, buffer: Buffer, progress: &Progress) -> Buffer {
    let ticket = host.submit(sqe, Data::whole(buffer)).unwrap();
    let deadline = Instant::now() + 2 * PATIENCE;
    loop {
        let busy = host.poll();
        while let Some(event) = host.take_event() {
            match event {
                Event::Lost(error) => {
                    eprintln!("lost: {error}");
                    progress.lost.fetch_add(1, Ordering::Relaxed);
                }
                Event::TryFailed { tries, error } => eprintln!("try {tries}: {error}"),
                Event::Gone(why) => panic!("it gave up: {why:?}"),
                _ => {}
            }
        }
        if let Some(ended) = host.take(ticket) {
            return ended.into_buffer().unwrap();
        }
        assert!(Instant::now() < deadline, "no answer");
        if !busy {
            thread::sleep(Duration::from_micros(200));
        }
    }
}
