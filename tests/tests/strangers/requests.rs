use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_initiator::{Host, HostError, HostOptions, Identity, Recovery};
use cairn_rdma::{Endpoint, EndpointOptions, QpOptions};
use cairn_roce::Soft;
use cairn_roce_proto::wire::udp::ROCE_PORT;
use cairn_tests::harness::{NQN, host_nqn, nqn, own_loopback_address};
use cairn_tests::provider::listen;
use cairn_tests::stranger::Stranger;
use nvme_proto::wire::cm::RequestData;

use super::{PATIENCE, Victim};

const BATCH: usize = 15;
const CONNECTS: u32 = 20;
const FAILURES_MAX: u32 = 1;

#[test]
fn claimed_addresses_keep_no_host_out_at_300_a_second() {
    claimed_addresses_keep_no_host_out(300);
}

#[test]
fn claimed_addresses_keep_no_host_out_at_3000_a_second() {
    claimed_addresses_keep_no_host_out(3000);
}

#[test]
fn claimed_networks_keep_no_host_out() {
    let networks = (0..600).map(|number| Ipv4Addr::from_bits((127 << 24) + (number << 8) + 9));
    keep_no_host_out(3000, own_loopback_address(), networks.collect());
}

fn claimed_addresses_keep_no_host_out(rate: u32) {
    let known = own_loopback_address();
    let networks = [known, [127, 77, 0, 0].into(), [127, 77, 1, 0].into()];
    let addresses = networks.into_iter().flat_map(|network: Ipv4Addr| {
        let network = network.to_bits() & !0xff;
        (201..=250).map(move |host| Ipv4Addr::from_bits(network + host))
    });
    keep_no_host_out(rate, known, addresses.chain([known]).collect());
}

fn keep_no_host_out(rate: u32, known: Ipv4Addr, strangers: Vec<Ipv4Addr>) {
    let victim = Victim::start();
    let remote = victim.address().ip();
    connect(&victim, known).unwrap();
    let flood = Flood::start(strangers, remote, rate);
    let (mut failures, mut failures_of_new) = (0, 0);
    let mut before = 0;
    for _ in 0..CONNECTS {
        flood.wait_for(before + rate / 30);
        before = flood.asked();
        failures += u32::from(connect(&victim, known).is_err());
        failures_of_new += u32::from(connect(&victim, own_loopback_address()).is_err());
    }
    let asked = flood.stop();
    assert!(failures <= FAILURES_MAX, "{failures} of the known host");
    assert!(
        failures_of_new <= FAILURES_MAX,
        "{failures_of_new} of new hosts"
    );
    let counters = victim.counters();
    assert!(
        counters.cm_dropped_requests > 0,
        "{asked} requests, {counters:?}"
    );
    victim.target.stop().unwrap();
}

/// Maximum slowdown of a host's connections while attackers use the host's address.
const SLOWDOWN_MAX: u32 = 5;

#[test]
fn the_host_of_a_claimed_address_waits_little_longer_than_another() {
    let victim = Victim::start();
    let remote = victim.address().ip();
    let (claimed, other) = (own_loopback_address(), own_loopback_address());
    for host in [claimed, other] {
        connect(&victim, host).unwrap();
    }
    let flood = Flood::start(vec![claimed], remote, 3000);
    let mut took = [Duration::ZERO; 2];
    let mut before = 0;
    for _ in 0..CONNECTS {
        flood.wait_for(before + 100);
        before = flood.asked();
        for (host, took) in [claimed, other].into_iter().zip(&mut took) {
            let begun = Instant::now();
            connect(&victim, host).unwrap();
            *took += begun.elapsed();
        }
    }
    flood.stop();
    assert!(took[0] < SLOWDOWN_MAX * took[1], "{took:?}");
    victim.target.stop().unwrap();
}

#[test]
fn a_half_open_connection_has_no_queue_pair() {
    let (provider, address) = (Soft::default(), own_loopback_address());
    let (_listener, requests) = listen(&provider, (address, 4420).into(), 64).unwrap();
    let mut peer = Stranger::at(own_loopback_address(), ROCE_PORT, address.into());
    let mut endpoint: Option<Box<dyn Endpoint>> = None;
    let mut events = Vec::new();
    let mut sockets = Vec::new();
    for asked in 0..32_u32 {
        peer.ask(asked << 18 | 5);
        let request = requests.recv_timeout(PATIENCE).unwrap();
        let device = Arc::clone(&request.device);
        let endpoint = endpoint.get_or_insert_with(|| {
            let options = EndpointOptions {
                receives: 4,
                completions: 256,
                queue_pairs: 64,
            };
            device.open(&options).unwrap()
        });
        endpoint
            .accept(request, &QpOptions::default(), &[])
            .unwrap();
        peer.receive();
        sockets.push(open_sockets());
    }
    assert_eq!(sockets.first(), sockets.last(), "{sockets:?}");
    peer.say();
    let endpoint = endpoint.as_mut().expect("it has accepted");
    let deadline = Instant::now() + PATIENCE;
    while events.len() < 32 {
        assert!(Instant::now() < deadline, "{events:?}");
        endpoint.poll_events(&mut events);
        thread::yield_now();
    }
    assert!(
        open_sockets() > sockets[0] + 16,
        "{} sockets",
        open_sockets()
    );
}

fn open_sockets() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let is_socket = |entry: &std::io::Result<std::fs::DirEntry>| {
        let target = entry.as_ref().map(|entry| std::fs::read_link(entry.path()));
        matches!(target, Ok(Ok(path)) if path.to_string_lossy().starts_with("socket:"))
    };
    all.filter(is_socket).count()
}

fn connect(victim: &Victim, local: Ipv4Addr) -> Result<(), HostError> {
    let options = HostOptions {
        local: Some(local.into()),
        timeout: PATIENCE,
        recovery: Recovery::NONE,
        kato_ms: 0,
        ..HostOptions::new(
            victim.address(),
            nqn(NQN),
            Identity::named(host_nqn("good")),
        )
    };
    Host::connect(&Soft::default(), options)?.shutdown()
}

struct Flood {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU32>,
    thread: thread::JoinHandle<()>,
}

impl Flood {
    fn start(addresses: Vec<Ipv4Addr>, remote: IpAddr, rate: u32) -> Self {
        let (stop, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&asked));
        let mut strangers: Vec<_> = addresses
            .into_iter()
            .map(|address| Stranger::at(address, 0, remote))
            .collect();
        let thread = thread::spawn(move || {
            let request = RequestData::new(0, 32, 31, 0);
            let pause = Duration::from_secs(1) * BATCH as u32 / rate;
            let mut turn = 0;
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..BATCH {
                    let number = strangers.len();
                    strangers[turn % number].ask_with(100 + turn as u32, &request);
                    turn += 1;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(pause);
            }
        });
        Self {
            stop,
            asked,
            thread,
        }
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    fn wait_for(&self, asked: u32) {
        let deadline = Instant::now() + PATIENCE;
        while self.asked() < asked {
            assert!(Instant::now() < deadline, "{} requests", self.asked());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.asked.load(Ordering::Relaxed)
    }
}
