use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_initiator::{HostError, HostOptions, Recovery};
use cairn_rdma::{ConnectOptions, Endpoint, EndpointOptions, Event, PKey, Provider, QpOptions};
use cairn_roce::Soft;
use cairn_tests::harness::{NQN, TestTarget, own_loopback_address, subsystem};
use cairn_tests::logged;
use nvme_proto::wire::IntoBytes;
use nvme_proto::wire::cm::RequestData;

use super::PATIENCE;

const CONNECTIONS: u32 = 1100;
const TRIES: u32 = 5;
const CONNECTS: u32 = 5;

#[test]
fn one_address_refuses_no_other_by_loopback() {
    let target = TestTarget::start(&exports());
    one_address_refuses_no_other(&target, || target.provider(), loopback_address);
}

#[test]
fn one_address_refuses_no_other_by_soft() {
    let target = TestTarget::start_on_soft(Soft::default(), &exports());
    let soft = || Arc::new(Soft::default()) as Arc<dyn Provider>;
    one_address_refuses_no_other(&target, soft, |_| own_loopback_address().into());
}

fn one_address_refuses_no_other(
    target: &TestTarget,
    provider: impl Fn() -> Arc<dyn Provider>,
    address: impl Fn(u32) -> IpAddr,
) {
    logged::listen();
    let known = address(1);
    connect(target, &*provider(), known).unwrap();
    let stranger = address(2);
    let silent = Silent::start(provider(), target.remote(), vec![stranger; 2]);
    silent.wait_for(CONNECTIONS);
    for number in 0..CONNECTS {
        connect(target, &*provider(), known).unwrap();
        connect(target, &*provider(), address(100 + number)).unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    let parts = [
        &stranger.to_string(),
        "wait for their Connect",
        "allowed_addresses",
    ];
    while logged::lines(&parts).is_empty() {
        assert!(Instant::now() < deadline, "the refusals are not explained");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(silent.stop() > 0, "nothing was refused");
}

/// Addresses in 600 networks occupy all `STRANGERS_MAX` connections for unknown addresses. New
/// hosts must still be able to connect.
#[test]
fn many_networks_keep_no_new_host_out() {
    const NETWORKS: u32 = 600;
    const HOSTS: u32 = 20;
    const STRANGERS_MAX: u32 = 512;
    let target = TestTarget::start(&exports());
    let network = |number: u32| Ipv4Addr::from_bits((10 << 24) + (number << 8) + 1).into();
    let strangers = (0..NETWORKS).map(network);
    let silent = Silent::start_with(target.provider(), target.remote(), strangers.collect(), 2);
    silent.wait_for(2 * NETWORKS);
    silent.permit(0);
    let mut tries = 0;
    for number in 0..HOSTS {
        let first = [9, 10, 200][number as usize % 3];
        let local: IpAddr = Ipv4Addr::new(first, 200, number as u8, 1).into();
        let connected = (0..TRIES).find_map(|_| {
            let asked = silent.permit(STRANGERS_MAX / 2);
            tries += 1;
            let connected = connect(&target, &*target.provider(), local).ok();
            silent.wait_for(asked + 10);
            connected
        });
        assert!(connected.is_some(), "host {number} of {HOSTS} got no place");
    }
    assert!(tries <= HOSTS + HOSTS / 4, "{tries} tries of {HOSTS} hosts");
    assert!(silent.stop() > 0, "none of theirs was refused or ended");
}

#[test]
fn many_addresses_refuse_no_known_host() {
    logged::listen();
    let target = TestTarget::start(&exports());
    let known = loopback_address(1);
    connect(&target, &*target.provider(), known).unwrap();
    let strangers = (0..16).map(|network| Ipv4Addr::new(198, 51, network, 1).into());
    let silent = Silent::start(target.provider(), target.remote(), strangers.collect());
    silent.wait_for(2 * CONNECTIONS);
    for _ in 0..CONNECTS {
        if let Err(error) = connect(&target, &*target.provider(), known) {
            panic!("{error:?}; the target's log: {:#?}", logged::lines(&[]));
        }
    }
    assert!(silent.stop() > 0, "nothing was refused");
}

/// The limit on controllers applies to each combination of host NQN and address.
#[test]
fn a_claimed_name_keeps_no_host_out() {
    let target = TestTarget::start(&exports());
    let options = |local| HostOptions {
        local: Some(local),
        ..target.options("good")
    };
    let mut claimed = Vec::new();
    let refused = loop {
        match target.try_connect(options(loopback_address(2))) {
            Ok(host) => claimed.push(host),
            Err(error) => break error,
        }
        assert!(claimed.len() < 1000, "there is no limit");
    };
    assert!(claimed.len() >= 64, "{refused}");
    connect(&target, &*target.provider(), loopback_address(1)).unwrap();
}

fn exports() -> String {
    subsystem(NQN, &["mem:1MiB block_size = 512"])
}

fn loopback_address(number: u32) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, 10 + number as u8).into()
}

fn connect(target: &TestTarget, provider: &dyn Provider, local: IpAddr) -> Result<(), HostError> {
    let options = HostOptions {
        local: Some(local),
        recovery: Recovery::NONE,
        ..target.options("good")
    };
    let host = cairn_initiator::Host::connect(provider, options)?;
    host.shutdown()
}

struct Silent {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU32>,
    permitted: Arc<AtomicU32>,
    thread: thread::JoinHandle<u32>,
}

impl Silent {
    fn start(provider: Arc<dyn Provider>, remote: SocketAddr, locals: Vec<IpAddr>) -> Self {
        Self::start_with(provider, remote, locals, 600)
    }

    fn start_with(
        provider: Arc<dyn Provider>,
        remote: SocketAddr,
        locals: Vec<IpAddr>,
        queue_pairs: u16,
    ) -> Self {
        let (stop, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let permitted = Arc::new(AtomicU32::new(u32::MAX));
        let asker = Asker {
            remote,
            queue_pairs,
            stopped: Arc::clone(&stop),
            asked: Arc::clone(&asked),
            permitted: Arc::clone(&permitted),
        };
        let thread = thread::spawn(move || asker.keep_asking(&*provider, &locals));
        Self {
            stop,
            asked,
            permitted,
            thread,
        }
    }

    fn permit(&self, more: u32) -> u32 {
        let asked = self.asked();
        self.permitted.store(asked + more, Ordering::Relaxed);
        asked
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }

    fn wait_for(&self, asked: u32) {
        let deadline = Instant::now() + PATIENCE;
        while self.asked() < asked {
            assert!(Instant::now() < deadline, "{:?} requests", self.asked);
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

struct Asker {
    remote: SocketAddr,
    queue_pairs: u16,
    stopped: Arc<AtomicBool>,
    asked: Arc<AtomicU32>,
    permitted: Arc<AtomicU32>,
}

impl Asker {
    fn keep_asking(&self, provider: &dyn Provider, locals: &[IpAddr]) -> u32 {
        let options = EndpointOptions {
            receives: 1,
            completions: 64,
            queue_pairs: self.queue_pairs,
        };
        let open = |&local: &IpAddr| {
            let device = provider.device_for(self.remote, Some(local)).unwrap();
            (local, device.open(&options).unwrap())
        };
        let mut endpoints: Vec<_> = locals.iter().map(open).collect();
        let (mut refused, mut events) = (0, Vec::new());
        while !self.stopped.load(Ordering::Relaxed) {
            let mut asks = 0;
            for (local, endpoint) in &mut endpoints {
                if self.asked.load(Ordering::Relaxed) < self.permitted.load(Ordering::Relaxed) {
                    self.ask(&mut **endpoint, *local);
                    asks += 1;
                }
                endpoint.poll_events(&mut events);
                for event in events.drain(..) {
                    match event {
                        Event::Rejected { .. } => refused += 1,
                        Event::Disconnected { qp, .. } => {
                            refused += 1;
                            endpoint.disconnect(qp);
                        }
                        _ => {}
                    }
                }
            }
            endpoints.rotate_left(asks % locals.len());
            thread::sleep(Duration::from_micros(300));
        }
        refused
    }

    fn ask(&self, endpoint: &mut dyn Endpoint, local: IpAddr) {
        let options = ConnectOptions {
            remote: self.remote,
            local: Some(local),
            pkey: PKey::DEFAULT,
            qp: QpOptions::default(),
            timeout: PATIENCE,
        };
        let request = RequestData::new(0, 32, 31, 0);
        let begun = endpoint.connect(&options, request.as_bytes()).is_ok();
        self.asked.fetch_add(u32::from(begun), Ordering::Relaxed);
    }
}
