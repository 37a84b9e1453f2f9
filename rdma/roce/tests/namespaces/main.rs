//! Two hosts, each in a network namespace of its own, joined by a cable: every
//! MTU, both versions of IP and of RoCE, with a VLAN tag and without, a good wire
//! and a bad one. What the packets cross is the kernel's real network stack,
//! segmentation included. A sniffer on the cable says what they really were.
//!
//! Making namespaces takes root; without it these tests say so and end.

mod sniffer;

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use cairn_rdma::{
    Access, Completion, ConnectOptions, Endpoint, EndpointOptions, Event, ListenOptions,
    ListenerEvent, Mapping, Operation, Provider, QpId, QpOptions, RecvWork, Region, RemoteBuffer,
    SendWork, Sge, WorkStatus, sleep_until_ready,
};
use cairn_roce::phy::Network;
use cairn_roce::phy::fault::FaultOptions;
use cairn_roce::{Soft, SoftOptions};
use sniffer::Sniffer;

const PATIENCE: Duration = Duration::from_secs(20);
const SIZE: usize = 1 << 20;
/// Bytes of the longest message that is sent.
const MESSAGE: usize = 64 * 1024;
const ROUNDS: u64 = 20;

/// What the wire is like.
#[derive(Clone, Copy)]
struct Cable {
    mtu: u32,
    addresses: [&'static str; 2],
    fault: Option<FaultOptions>,
    roce: Roce,
}

/// What is spoken on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Roce {
    V1,
    /// Tags are written by the endpoint.
    V1Tagged,
    /// Tags are written by the kernel, on a VLAN's interface.
    V1Vlan,
    V2,
    /// As `V1Vlan`.
    V2Vlan,
}

impl Roce {
    fn is_v1(self) -> bool {
        matches!(self, Self::V1 | Self::V1Tagged | Self::V1Vlan)
    }

    fn is_tagged(self) -> bool {
        matches!(self, Self::V1Tagged | Self::V1Vlan | Self::V2Vlan)
    }

    fn has_vlan_interface(self) -> bool {
        matches!(self, Self::V1Vlan | Self::V2Vlan)
    }
}

const VID: u16 = 5;
/// The upper three bits of [`TOS`], and what a VLAN's `egress-qos-map` makes of the
/// priority that it gives.
const PCP: u8 = 3;
/// Type of service of the connections: DSCP 26, hence priority 2.
const TOS: u8 = 26 << 2;

const V4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const V6: [&str; 2] = ["fd77::1", "fd77::2"];

const BAD: FaultOptions = FaultOptions {
    loss_per_mille: 20,
    duplication_per_mille: 10,
    corruption_per_mille: 5,
    reordering_per_mille: 10,
    seed: 7,
};

/// Puts the calling thread into a network namespace of its own. False: it may
/// not.
fn leave_the_network() -> bool {
    // SAFETY: concerns the calling thread alone, and takes no pointers.
    unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 }
}

fn thread_id() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.expect("the program `ip` is there (package iproute2)");
    let complaint = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {arguments}: {complaint}");
}

fn set_up(end: usize, cable: Cable) {
    let (address, mtu) = (cable.addresses[end], cable.mtu);
    ip("link set lo up");
    let bits = if address.contains(':') {
        "64 nodad"
    } else {
        "24"
    };
    ip(&format!("link set cable{end} mtu {mtu} up"));
    let mut device = format!("cable{end}");
    if cable.roce.has_vlan_interface() {
        let port = std::mem::replace(&mut device, format!("cable{end}.{VID}"));
        let map = format!("egress-qos-map 2:{PCP}");
        ip(&format!(
            "link add link {port} name {device} type vlan id {VID} {map}"
        ));
        ip(&format!("link set {device} up"));
    }
    ip(&format!("address add {address}/{bits} dev {device}"));
}

/// One end.
struct End {
    endpoint: Box<dyn Endpoint>,
    region: Region,
    events: Vec<Event>,
    completions: Vec<Completion>,
}

impl End {
    fn open(device: &Arc<dyn cairn_rdma::Device>) -> Self {
        let mapping = Arc::new(Mapping::anonymous(SIZE).unwrap());
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let region = device.register(mapping, rights).unwrap();
        let options = EndpointOptions {
            receives: 8,
            completions: 64,
            queue_pairs: 4,
        };
        let mut this = Self {
            endpoint: Arc::clone(device).open(&options).unwrap(),
            region,
            events: Vec::new(),
            completions: Vec::new(),
        };
        this.post_receive();
        this
    }

    fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge {
            addr: self.region.mapping().addr() + offset as u64,
            length: length as u32,
            lkey: self.region.lkey(),
        }
    }

    fn post_receive(&mut self) {
        let sges = self.sge(0, MESSAGE).into();
        self.endpoint
            .post_receives(&[RecvWork { id: 1000, sges }])
            .unwrap();
    }

    /// Sleeps, in the endpoint's descriptors alone, until there is something that
    /// `pick` takes.
    fn wait<T>(&mut self, what: &str, pick: impl FnMut(&mut Self) -> Option<T>) -> T {
        self.wait_napping(what, PATIENCE, pick)
    }

    /// As `wait`, and looks again after each `nap`: for what the endpoint cannot
    /// wake us for.
    fn wait_napping<T>(
        &mut self,
        what: &str,
        nap: Duration,
        mut pick: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut out = [Completion::EMPTY; 16];
            let count = self.endpoint.poll(&mut out);
            self.completions.extend(&out[..count]);
            self.endpoint.poll_events(&mut self.events);
            if let Some(value) = pick(self) {
                return value;
            }
            assert!(Instant::now() < deadline, "{what}: {:?}", self.events);
            let latest = deadline.min(Instant::now() + nap);
            sleep_until_ready(&mut *self.endpoint, latest).unwrap();
        }
    }

    fn completion(&mut self, id: u64) -> Completion {
        self.wait(&format!("completion {id}"), |end| {
            let at = end.completions.iter().position(|done| done.id == id)?;
            Some(end.completions.remove(at))
        })
    }

    fn event(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        self.wait(what, |end| {
            let at = end.events.iter().position(&wanted)?;
            Some(end.events.remove(at))
        })
    }

    fn run(&mut self, qp: QpId, id: u64, op: Operation, offset: usize, length: usize) {
        let sges = self.sge(offset, length).into();
        let work = SendWork {
            id,
            op,
            sges,
            signaled: true,
        };
        self.endpoint.post(qp, &[work]).unwrap();
        let done = self.completion(id);
        assert_eq!(done.status, WorkStatus::Success, "{op:?}");
    }
}

fn pattern(round: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|i| (i * 7 + i / 251 + round * 13) as u8)
        .collect()
}

fn provider(cable: Cable) -> Soft {
    let network = match cable.roce {
        Roce::V1 | Roce::V1Vlan => Network::Ethernet { vlan: None },
        Roce::V1Tagged => Network::Ethernet { vlan: Some(VID) },
        Roce::V2 | Roce::V2Vlan => Network::System,
    };
    Soft::new(SoftOptions {
        fault: cable.fault,
        network,
        ..SoftOptions::default()
    })
}

fn qp_options() -> QpOptions {
    QpOptions {
        traffic_class: Some(TOS),
        ..QpOptions::default()
    }
}

/// Accepts one host and echoes its messages until it says goodbye. `echoed` is
/// told when the last echo is acknowledged.
fn target(cable: Cable, ready: &Sender<(SocketAddr, RemoteBuffer)>, echoed: &Sender<()>) {
    let provider = provider(cable);
    let address: IpAddr = cable.addresses[0].parse().unwrap();
    let (sender, requests) = channel();
    let sink = Box::new(move |event| {
        let _ = sender.send(event);
    });
    let options = ListenOptions {
        address: SocketAddr::new(address, 4420),
        backlog: 8,
    };
    let listener = provider.listen(&options, sink).unwrap();
    let device = provider.device_for(listener.local_addr(), None).unwrap();
    let mut end = End::open(&device);
    let remote = RemoteBuffer {
        addr: end.region.mapping().addr() + MESSAGE as u64,
        rkey: end.region.rkey(),
    };
    ready.send((listener.local_addr(), remote)).unwrap();
    let Ok(ListenerEvent::Request(request)) = requests.recv_timeout(PATIENCE) else {
        panic!("no request came");
    };
    assert_eq!(request.peer.ip().to_string(), cable.addresses[1]);
    let qp = end
        .endpoint
        .accept(*request, &qp_options(), b"welcome")
        .unwrap();
    end.event("Established", |event| {
        matches!(event, Event::Established { .. })
    });
    for round in 0..ROUNDS {
        let landed = end.completion(1000);
        assert_eq!(landed.status, WorkStatus::Success);
        end.post_receive();
        end.run(qp, round, Operation::Send, 0, landed.byte_len as usize);
    }
    echoed.send(()).unwrap();
    end.event("goodbye", |event| {
        matches!(event, Event::Disconnected { .. })
    });
    end.endpoint.disconnect(qp);
    end.event("Closed", |event| matches!(event, Event::Closed { .. }));
}

/// Connects, and moves data every way there is.
fn host(cable: Cable, ready: &Receiver<(SocketAddr, RemoteBuffer)>, echoed: &Receiver<()>) {
    let (address, there) = ready.recv_timeout(PATIENCE).unwrap();
    let provider = provider(cable);
    let device = provider.device_for(address, None).unwrap();
    let mut end = End::open(&device);
    let options = ConnectOptions {
        remote: address,
        local: None,
        qp: qp_options(),
        timeout: PATIENCE,
    };
    let qp = end.endpoint.connect(&options, b"hello").unwrap();
    end.event("Established", |event| {
        matches!(event, Event::Established { .. })
    });
    let (ours, back) = (2 * MESSAGE, 5 * MESSAGE);
    for round in 0..ROUNDS {
        let length = [1, 100, 1024, 1500, 4096, 4097, 40_000, MESSAGE][round as usize % 8];
        let bytes = pattern(round, length);
        end.region.mapping().write(ours, &bytes);
        end.region.mapping().write(back, &vec![0; length]);
        end.run(qp, 1, Operation::Write(there), ours, length);
        end.run(qp, 2, Operation::Read(there), back, length);
        let mut read = vec![0; length];
        end.region.mapping().read(back, &mut read);
        assert!(
            read == bytes,
            "round {round}: {length} bytes came back mangled"
        );
        end.run(qp, 3, Operation::Send, ours, length);
        let landed = end.completion(1000);
        assert_eq!(landed.byte_len as usize, length);
        end.region.mapping().read(0, &mut read);
        assert!(read == bytes, "round {round}: the echo is mangled");
        end.post_receive();
    }
    // On a bad wire the acknowledgement of the last echo may be lost, and a
    // goodbye that overtakes it flushes the echo.
    let nap = Duration::from_millis(2);
    end.wait_napping("the last acknowledgement", nap, |_| echoed.try_recv().ok());
    end.endpoint.disconnect(qp);
    end.event("Closed", |event| matches!(event, Event::Closed { .. }));
    // A busy endpoint tells its counters now and then, one about to sleep at once.
    end.endpoint.arm().unwrap();
    check_counters(&provider, cable);
}

/// The counters tell a good wire from a bad one.
fn check_counters(provider: &Soft, cable: Cable) {
    let counters = provider.counters();
    let [(name, counters)] = &counters[..] else {
        panic!("one device is open: {counters:?}");
    };
    assert_eq!(*name, format!("soft-{}", cable.addresses[1]));
    assert!(counters.sent_pkts > ROUNDS * 3 && counters.rcvd_pkts > ROUNDS * 3);
    if cable.fault.is_none() {
        assert_eq!(counters.rx_icrc_encapsulated, 0, "{counters:?}");
        assert_eq!(counters.rx_malformed, 0, "{counters:?}");
    } else {
        let recovered = counters.packet_seq_err
            + counters.implied_nak_seq_err
            + counters.local_ack_timeout_err
            + counters.duplicate_request;
        assert!(
            recovered > 0 && counters.rx_icrc_encapsulated > 0,
            "{counters:?}"
        );
    }
}

/// The sniffer has seen this RoCE on the cable, and no other.
fn check_frames(sniffer: &Sniffer, cable: Cable) {
    let frames = sniffer.frames();
    let all: Vec<_> = frames.iter().filter_map(|f| Some((f, f.roce?))).collect();
    // Either way, and long ones may still be whole in front of the adapter.
    assert!(all.len() > ROUNDS as usize * 8, "{} frames", all.len());
    let mut broken = 0;
    for (frame, roce) in &all {
        assert_eq!(roce.is_v1, cable.roce.is_v1(), "{frame:?}");
        let vid = frame.ethernet.vlan.map(|tag| tag.vid);
        assert_eq!(vid, cable.roce.is_tagged().then_some(VID), "{frame:?}");
        let is_management = roce.dest_qpn == 1;
        let pcp = frame.ethernet.vlan.map_or(0, |tag| tag.pcp);
        let wanted = if cable.roce.is_tagged() && !is_management {
            PCP
        } else {
            0
        };
        // A bad wire may make one queue pair number of another.
        assert!(pcp == wanted || !roce.is_intact, "{frame:?}");
        broken += usize::from(!roce.is_intact);
    }
    if cable.roce.is_v1() {
        // There is no segmentation offload, whose super-packets would be seen.
        assert_eq!(broken > 0, cable.fault.is_some(), "{broken} are broken");
    }
}

/// Whether the kernel has VLANs. False: it does not, or we may not make any.
fn has_vlans() -> bool {
    thread::spawn(|| {
        leave_the_network() && {
            let arguments = "link add link lo name lo.9 type vlan id 9";
            let done = Command::new("ip").args(arguments.split(' ')).output();
            // An interface's link must be one that can have VLANs; the loopback
            // cannot, but only a kernel that knows of them says so.
            let said = done.map(|done| String::from_utf8_lossy(&done.stderr).into_owned());
            !said.is_ok_and(|said| said.contains("Unknown device type"))
        }
    })
    .join()
    .unwrap()
}

fn over(cable: Cable) {
    if cable.roce.has_vlan_interface() && !has_vlans() {
        eprintln!("skipped: this kernel has no VLAN interfaces (8021q)");
        return;
    }
    let (tid_out, tid_in) = channel();
    let (linked_out, linked_in) = channel();
    let (ready_out, ready_in) = channel();
    let (echoed_out, echoed_in) = channel();
    let (checked_out, checked_in) = channel::<()>();
    let other = thread::spawn(move || {
        if !leave_the_network() {
            return;
        }
        tid_out.send(thread_id()).unwrap();
        if linked_in.recv().is_ok() {
            set_up(1, cable);
            host(cable, &ready_in, &echoed_in);
            // With this thread its namespace goes, and the cable with that.
            let _ = checked_in.recv();
        }
    });
    let this = thread::spawn(move || {
        let Ok(tid) = tid_in.recv() else {
            eprintln!("skipped: making network namespaces takes root");
            return;
        };
        assert!(leave_the_network());
        ip(&format!(
            "link add cable0 type veth peer name cable1 netns {tid}"
        ));
        set_up(0, cable);
        let sniffer = Sniffer::on("cable0");
        linked_out.send(()).unwrap();
        target(cable, &ready_out, &echoed_out);
        check_frames(&sniffer, cable);
        drop(checked_out);
    });
    let results = [this.join(), other.join()];
    for result in results {
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    }
}

/// One test for each way of using a cable.
macro_rules! cables {
    ($($name:ident: $roce:ident, $addresses:ident, $mtu:literal, $fault:expr;)*) => {
        $(#[test]
        fn $name() {
            over(Cable {
                mtu: $mtu,
                addresses: $addresses,
                fault: $fault,
                roce: Roce::$roce,
            });
        })*
    };
}

cables! {
    ordinary_frames: V2, V4, 1500, None;
    jumbo_frames: V2, V4, 4200, None;
    ordinary_frames_on_ipv6: V2, V6, 1500, None;
    jumbo_frames_on_ipv6: V2, V6, 4200, None;
    a_bad_wire: V2, V4, 1500, Some(BAD);
    a_bad_wire_on_ipv6: V2, V6, 4200, Some(BAD);
    vlan: V2Vlan, V4, 1500, None;
    v1_ordinary_frames: V1, V4, 1500, None;
    v1_jumbo_frames: V1, V4, 4200, None;
    v1_ordinary_frames_on_ipv6: V1, V6, 1500, None;
    v1_jumbo_frames_on_ipv6: V1, V6, 4200, None;
    v1_bad_wire: V1, V4, 4200, Some(BAD);
    v1_bad_wire_on_ipv6: V1, V6, 1500, Some(BAD);
    v1_tagged: V1Tagged, V4, 1500, None;
    v1_tagged_jumbo_frames: V1Tagged, V4, 4200, None;
    v1_tagged_on_ipv6: V1Tagged, V6, 1500, None;
    v1_vlan: V1Vlan, V4, 1500, None;
    v1_vlan_bad_wire_on_ipv6: V1Vlan, V6, 4200, Some(BAD);
    v1_tagged_bad_wire: V1Tagged, V4, 1500, Some(BAD);
    v1_tagged_bad_wire_on_ipv6: V1Tagged, V6, 4200, Some(BAD);
}
