//! Strangers who ask for connections that they never use.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use cairn_initiator::{Host, HostOptions, Recovery};
use cairn_roce::Soft;
use cairn_tests::harness::{NQN, host_nqn, nqn};
use nvme_proto::wire::cm::RequestData;

use super::datagrams::Stranger;
use super::{PATIENCE, Victim};

/// Requests at once, and the time between: some 3,000 a second.
const BATCH: usize = 15;
const PAUSE: Duration = Duration::from_millis(5);

/// Requests from addresses that were claimed, of several networks, to which nobody
/// answers; hosts that the target has never seen connect all the same.
#[test]
fn claimed_addresses_keep_no_host_out() {
    const CONNECTS: u32 = 20;
    let victim = Victim::start();
    let remote = victim.address().ip();
    let addresses =
        (0..4).flat_map(|network| (1..=50).map(move |host| Ipv4Addr::new(127, 77, network, host)));
    let flood = Flood::start(addresses.collect(), remote);
    for _ in 0..CONNECTS {
        let options = HostOptions {
            timeout: PATIENCE,
            recovery: Recovery::NONE,
            ..HostOptions::new(victim.address(), nqn(NQN), host_nqn("good"))
        };
        // An address of its own, too.
        let host = Host::connect(&Soft::default(), options).unwrap();
        host.shutdown().unwrap();
    }
    let asked = flood.stop();
    let counters = victim.counters();
    assert!(asked > 500, "{asked} requests are no flood");
    assert!(counters.cm_dropped_requests > 0, "{counters:?}");
    victim.target.stop().unwrap();
}

struct Flood {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU32>,
    thread: thread::JoinHandle<()>,
}

impl Flood {
    fn start(addresses: Vec<Ipv4Addr>, remote: IpAddr) -> Self {
        let (stop, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&asked));
        let mut strangers: Vec<_> = addresses
            .into_iter()
            .map(|address| Stranger::at(address, 0, remote))
            .collect();
        let thread = thread::spawn(move || {
            let request = RequestData::new(0, 32, 31, 0);
            let mut turn = 0;
            while !stopped.load(Ordering::Relaxed) {
                for _ in 0..BATCH {
                    let number = strangers.len();
                    strangers[turn % number].ask_with(100 + turn as u32, &request);
                    turn += 1;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(PAUSE);
            }
        });
        Self {
            stop,
            asked,
            thread,
        }
    }

    /// Ends it; returns how many requests there were.
    fn stop(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.asked.load(Ordering::Relaxed)
    }
}
