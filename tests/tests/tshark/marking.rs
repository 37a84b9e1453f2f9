//! Traffic class and hop limit of the target's packets, by the rules for each host.
//!
//! Traffic classes come from the host's capture, hop limits from the target's capture, because the
//! kernel reports no hop limit of received packets.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, HostOptions, IoQueue, command};
use cairn_rdma::marking::Rules;
use cairn_rdma::{ConnectOptions, EndpointOptions, Event, PKey, Provider, QpOptions};
use cairn_roce::Capture;
use cairn_roce::{Soft, SoftOptions};
use cairn_roce_proto::wire::cm::{Message, ip_cm};
use cairn_roce_proto::wire::frame::{Frame, Network};
use cairn_roce_proto::wire::icrc::Checker;
use cairn_roce_proto::wire::{Opcode, Packet};
use cairn_tests::harness::{NQN, Scratch, TestTarget, host_nqn, own_loopback_address, subsystem};
use nvme_proto::wire::cm::RequestData;

use crate::dissection::{can_run, dissect};
use crate::frames;

const ECN: u8 = 3;

const PATIENCE: Duration = Duration::from_secs(20);

const SMALL: EndpointOptions = EndpointOptions {
    receives: 8,
    completions: 16,
    queue_pairs: 1,
};

fn capturing(name: &str) -> (Soft, Scratch) {
    let capture = Scratch::new(&format!("marking-{name}.pcapng"), 0);
    let file = Capture::create(capture.path(), 1 << 30).expect("the capture can be written");
    let options = SoftOptions {
        capture: Some(Arc::new(file)),
        ..SoftOptions::default()
    };
    (Soft::new(options), capture)
}

struct Guest {
    address: Ipv4Addr,
    provider: Soft,
    capture: Scratch,
}

impl Guest {
    fn new(name: &str) -> Self {
        let (provider, capture) = capturing(name);
        Self {
            address: own_loopback_address(),
            provider,
            capture,
        }
    }

    fn connect(&self, target: &TestTarget, name: &str, traffic_class: u8) -> Host {
        let options = HostOptions {
            local: Some(self.address.into()),
            traffic_class: Some(traffic_class),
            ..target.options(name)
        };
        Host::connect(&self.provider, options).expect("a connection")
    }

    fn packets(self) -> Vec<Seen> {
        drop(self.provider);
        packets(self.capture.path())
            .into_iter()
            .filter(|seen| seen.destination == self.address)
            .collect()
    }
}

const COMMANDS: u32 = 40;

fn exchange(host: &mut Host) {
    let mut buffer = host.buffer(64 << 10).expect("memory");
    let data = Data::start_of(&mut buffer, 64 << 10);
    host.run(command::write(1, 0, 128), data).expect("a write");
    let data = Data::whole(&mut buffer);
    host.run(command::read(1, 0, 128), data).expect("a read");
    for _ in 0..COMMANDS {
        host.run(command::flush(1), Data::None).expect("a flush");
    }
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    destination: IpAddr,
    class: u8,
    hop_limit: u8,
    opcode: Opcode,
    queue_pair: u32,
    asks: Option<(u32, u16)>,
}

fn packets(capture: &Path) -> Vec<Seen> {
    frames::read(capture)
        .iter()
        .map(|frame| seen(frame))
        .collect()
}

fn seen(frame: &[u8]) -> Seen {
    let parsed = Frame::parse(frame).expect("RoCE alone is captured");
    let Network::V4(ip, _) = parsed.network else {
        panic!("it is RoCE v2 on IPv4");
    };
    let transport = Checker::new().open(&parsed.route(), 0, parsed.packet);
    let packet = Packet::parse(transport.expect("a good ICRC")).expect("a packet");
    let message = (packet.opcode == Opcode::UdSendOnly).then(|| Message::parse(packet.payload));
    let asks = match message.flatten() {
        Some((_, Message::Req(req))) => {
            let private = RequestData::parse(&req.private_data[ip_cm::LEN..]);
            Some(req.local_qpn).zip(private.ok().map(|private| private.qid.get()))
        }
        _ => None,
    };
    Seen {
        destination: ip.destination.into(),
        class: ip.tos & !ECN,
        hop_limit: ip.ttl,
        opcode: packet.opcode,
        queue_pair: packet.bth.dest_qpn,
        asks,
    }
}

fn classes<'a>(packets: impl IntoIterator<Item = &'a Seen>) -> Vec<u8> {
    let mut classes = Vec::new();
    for seen in packets {
        if !classes.contains(&seen.class) {
            classes.push(seen.class);
        }
    }
    classes
}

fn assert_complete(packets: &[Seen]) {
    for kind in [
        Opcode::UdSendOnly,
        Opcode::Acknowledge,
        Opcode::SendOnly,
        Opcode::ReadRequest,
        Opcode::WriteMiddle,
    ] {
        let found = packets.iter().any(|seen| seen.opcode == kind);
        assert!(found, "no {kind:?} among {} packets", packets.len());
    }
}

fn configuration(rules: &[String]) -> String {
    let disks = subsystem(NQN, &["mem:1MiB block_size = 512"]);
    format!("[marking]\nrules = {rules:?}\n{disks}")
}

#[test]
fn each_host_gets_what_its_rule_says_and_a_reload_changes_new_connections_alone() {
    let (ruled, mirrored) = (Guest::new("ruled"), Guest::new("mirrored"));
    let (soft, capture) = capturing("target");
    let rule = |class| format!("tclass={class},hop_limit=9,dst_ip={}", ruled.address);
    let target = TestTarget::start_on_soft(soft, &configuration(&[rule(0x20)]));

    let mut first = ruled.connect(&target, "a", 0x60);
    let mut other = mirrored.connect(&target, "b", 0x88);
    assert_eq!(
        first
            .controller_mut()
            .marked(IoQueue::FIRST)
            .map(|marked| marked.traffic_class),
        Some(0x60)
    );
    exchange(&mut first);
    target.reload(&configuration(&[rule(0x48)]));
    exchange(&mut first);
    exchange(&mut other);
    first.shutdown().expect("a shutdown");
    let mut second = ruled.connect(&target, "a", 0x60);
    exchange(&mut second);
    second.shutdown().expect("a shutdown");
    other.shutdown().expect("a shutdown");
    target.stop();

    let (ruled_address, mirrored_address) = (ruled.address, mirrored.address);
    let of_mirrored = mirrored.packets();
    assert_complete(&of_mirrored);
    assert_eq!(classes(&of_mirrored), [0x88], "the host's own choice");
    let of_ruled = ruled.packets();
    assert_complete(&of_ruled);
    assert_eq!(
        classes(&of_ruled),
        [0x20, 0x48],
        "of connections before and after"
    );
    let turn = of_ruled.iter().position(|seen| seen.class == 0x48);
    let (old, new) = of_ruled.split_at(turn.expect("it was just seen"));
    assert_complete(old);
    assert_complete(new);
    assert_eq!((classes(old), classes(new)), (vec![0x20], vec![0x48]));
    for seen in packets(capture.path()) {
        let hops = match seen.destination {
            to if to == ruled_address => 9,
            to if to == mirrored_address => 64,
            _ => continue, // sent by a host
        };
        assert_eq!(seen.hop_limit, hops, "{seen:?}");
    }
}

#[test]
fn a_rule_for_a_name_holds_from_connect_on_and_for_io_queues_from_the_start() {
    let guest = Guest::new("named");
    let rules = [
        "tclass=16".to_owned(),
        format!("tclass=184,host_nqn={}", host_nqn("a")),
    ];
    let target = TestTarget::start_on_soft(Soft::default(), &configuration(&rules));
    let mut host = guest.connect(&target, "a", 0x60);
    exchange(&mut host);
    host.shutdown().expect("a shutdown");
    target.stop();

    drop(guest.provider);
    let all = packets(guest.capture.path());
    let queue_pair = |qid| {
        let asked = all.iter().filter_map(|seen| seen.asks);
        let found = asked.into_iter().find(|(_, of)| *of == qid);
        found.expect("the host asked for it").0
    };
    let to_host = |seen: &&Seen| seen.destination == guest.address;
    let of = |qid| {
        let queue_pair = queue_pair(qid);
        let own = all.iter().filter(to_host);
        classes(own.filter(move |seen| seen.queue_pair == queue_pair))
    };
    assert_eq!(
        of(0),
        [16, 184],
        "the admin queue, before and after its Connect"
    );
    assert_eq!(of(1), [184]);
    let asked = all
        .iter()
        .position(|seen| seen.asks.is_some_and(|(_, qid)| qid == 1));
    let later = all[asked.expect("it was asked for")..].iter();
    let messages = later.filter(to_host).filter(|seen| seen.queue_pair == 1);
    assert_eq!(classes(messages), [184]);
}

#[test]
fn the_hosts_own_rules_mark_what_it_sends() {
    let guest = Guest::new("host");
    let target = TestTarget::start_on_soft(Soft::default(), &configuration(&[]));
    let rule = format!("tclass=200,hop_limit=5,src_ip={}", guest.address);
    let options = HostOptions {
        local: Some(guest.address.into()),
        marking_rules: Arc::new(Rules::parse([rule.as_str()]).expect("a rule")),
        ..target.options("a")
    };
    let mut host = Host::connect(&guest.provider, options).expect("a connection");
    exchange(&mut host);
    host.shutdown().expect("a shutdown");
    target.stop();
    drop(guest.provider);
    let all = packets(guest.capture.path());
    assert_eq!(classes(&all), [200], "both ways");
    let sent = all.iter().filter(|seen| seen.destination != guest.address);
    assert!(sent.clone().count() > 10);
    for seen in sent {
        assert_eq!(seen.hop_limit, 5, "{seen:?}");
    }
    if can_run() {
        let rows = dissect(
            guest.capture.path(),
            &["ip.dsfield.dscp", "infiniband.bth.opcode"],
        );
        assert_eq!(rows.len(), all.len());
        for row in rows {
            assert_eq!(row.number("ip.dsfield.dscp"), Some(50), "{row:?}");
        }
    }
}

#[test]
fn refusals_carry_the_rule_too() {
    let guest = Guest::new("refused");
    let rule = format!("tclass=120,dst_ip={}/32", guest.address);
    let target = TestTarget::start_on_soft(Soft::default(), &configuration(&[rule]));
    let local = Some(guest.address.into());
    let device = guest.provider.device_for(target.remote(), local);
    let mut endpoint = device.expect("a device").open(&SMALL).expect("an endpoint");
    let options = ConnectOptions {
        remote: target.remote(),
        local,
        pkey: PKey::DEFAULT,
        qp: QpOptions::default(),
        timeout: PATIENCE,
    };
    endpoint.connect(&options, b"not NVMe").expect("a request");
    let mut events = Vec::new();
    let start = Instant::now();
    while !events
        .iter()
        .any(|event| matches!(event, Event::Rejected { .. }))
    {
        assert!(start.elapsed() < PATIENCE, "{events:?}");
        endpoint.poll(&mut []);
        endpoint.poll_events(&mut events);
    }
    drop(endpoint);
    target.stop();
    let of_target = guest.packets();
    assert_eq!(classes(&of_target), [120]);
}
