use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, HostOptions, Identity, command};
use cairn_roce::Capture;
use cairn_roce::{Soft, SoftOptions};
use cairn_roce_proto::wire::frame::{Frame, Network};
use cairn_roce_proto::wire::{Bth, Header, Opcode, Packet};
use cairn_sim::pcap;
use cairn_tests::harness::{NQN, host_nqn, nqn, own_loopback_address};
use cairn_tests::stranger::Stranger;

use super::{PATIENCE, Victim};

const PHASE: Duration = Duration::from_millis(150);
const READ: u32 = 128 << 10;

#[test]
fn forged_notifications_do_not_stop_reads() {
    let victim = Victim::start();
    let local = own_loopback_address();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pcapng");
    let capture = Arc::new(Capture::create(&path, 64 << 10).unwrap());
    let soft = Soft::new(SoftOptions {
        capture: Some(Arc::clone(&capture)),
        ..SoftOptions::default()
    });
    let options = HostOptions {
        timeout: PATIENCE,
        local: Some(local.into()),
        kato_ms: 0,
        ..HostOptions::new(
            victim.address(),
            nqn(NQN),
            Identity::named(host_nqn("good")),
        )
    };
    let mut host = Host::connect(&soft, options).unwrap();
    let mut buffer = host.buffer(READ as usize).unwrap();
    let mut read_for = |time: Duration| {
        let start = Instant::now();
        let mut reads = 0_u32;
        while start.elapsed() < time {
            let data = Data::start_of(&mut buffer, READ);
            host.run(command::read(1, 0, READ / 512), data).unwrap();
            reads += 1;
        }
        f64::from(reads) / start.elapsed().as_secs_f64()
    };
    read_for(PHASE);
    capture.flush();
    let queue_pairs = queue_pairs_of(&path, local);
    assert!(queue_pairs.len() >= 2, "{queue_pairs:?}");
    let (mut quiet, mut attacked) = (0.0, 0.0);
    for _ in 0..3 {
        quiet += read_for(PHASE);
        let flood = Flood::start(local, &victim, &queue_pairs);
        read_for(PHASE / 3);
        attacked += read_for(PHASE);
        flood.stop();
    }
    let counters = victim.counters();
    assert!(
        counters.rp_cnp_handled > 0,
        "no notification was believable"
    );
    assert!(counters.rp_cnp_ignored > 0, "each notification was heeded");
    assert!(
        attacked > 0.3 * quiet,
        "{attacked:.0} reads a second of {quiet:.0}: {counters:?}"
    );
    host.shutdown().unwrap();
    victim.target.stop().unwrap();
}

struct Flood {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Flood {
    fn start(claimed: Ipv4Addr, victim: &Victim, queue_pairs: &BTreeSet<u32>) -> Self {
        let stranger = Stranger::at(claimed, 0, victim.address().ip());
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, queue_pairs) = (Arc::clone(&stop), queue_pairs.clone());
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for &qpn in &queue_pairs {
                    let mut packet = Packet::new(Opcode::Cnp, qpn, 0);
                    packet.bth.becn = true;
                    packet.payload = &[0; 16];
                    stranger.send(&packet);
                }
                thread::sleep(Duration::from_micros(40));
            }
        });
        Self { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn queue_pairs_of(path: &Path, host: Ipv4Addr) -> BTreeSet<u32> {
    let bytes = std::fs::read(path).unwrap();
    let frames = pcap::frames(&bytes).into_iter().filter_map(Frame::parse);
    frames
        .filter(|frame| matches!(frame.network, Network::V4(ip, _) if ip.source == host))
        .filter_map(|frame| Bth::parse(frame.packet).map(|(bth, _)| bth.dest_qpn))
        .filter(|qpn| *qpn > 1)
        .collect()
}
