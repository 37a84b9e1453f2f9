use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, command};
use cairn_tests::exposition::{Exposition, ask, get};
use cairn_tests::harness::{METRICS, NQN, Scratch, TestTarget, host_nqn, namespace, subsystem};
use nvme_proto::wire::{Sqe, Status};

use crate::verified::status;

const BLOCK: u32 = 512;
const KIB: u32 = 1 << 10;
const PATIENCE: Duration = Duration::from_secs(20);
const ROUNDING: f64 = 1e-6;

fn target_with(exports: &[&str]) -> TestTarget {
    TestTarget::start(&format!("{METRICS}{}", subsystem(NQN, exports)))
}

fn connect(target: &TestTarget, name: &str) -> Host {
    let mut options = target.options(name);
    options.io_queues = 2;
    target.try_connect(options).unwrap()
}

fn repeat(times: u32, host: &mut Host, queue: usize, sqe: Sqe, length: u32) {
    let queue = host.io_queue(queue);
    let mut buffer = host.buffer(length.max(BLOCK) as usize).unwrap();
    for _ in 0..times {
        let data = match length {
            0 => Data::None,
            _ => Data::start_of(&mut buffer, length),
        };
        host.run_on(queue, sqe, data).unwrap();
    }
}

fn known_commands(host: &mut Host) {
    repeat(5, host, 0, command::read(1, 0, 8), 4 * KIB);
    repeat(3, host, 1, command::write(2, 8, 16), 8 * KIB);
    let second = host.io_queue(1);
    for _ in 0..2 {
        let data = Data::InCapsule(&[7; 1024]);
        host.run_on(second, command::write(2, 0, 2), data).unwrap();
    }
    repeat(1, host, 0, command::flush(2), 0);
    repeat(1, host, 0, command::compare(1, 0, 8), 4 * KIB);
    repeat(1, host, 0, command::verify(1, 0, 16), 0);
    repeat(1, host, 0, command::write_zeroes(1, 0, 4, false), 0);
    let mut buffer = host.buffer(4 * KIB as usize).unwrap();
    let beyond = host.run(
        command::read(1, 1 << 40, 8),
        Data::start_of(&mut buffer, 4 * KIB),
    );
    assert_eq!(status(beyond).code(), Status::LBA_OUT_OF_RANGE);
    let nowhere = host.run(command::flush(9), Data::None);
    assert_eq!(status(nowhere).code(), Status::INVALID_NAMESPACE_OR_FORMAT);
}

#[test]
fn what_was_done_is_counted_by_namespace_host_and_queue() {
    let disk = Scratch::new("counted", 16 << 20);
    let target = target_with(&["mem:16MiB block_size = 512", &disk.export(BLOCK)]);
    let mut host = connect(&target, "counted");
    known_commands(&mut host);

    let page = target.scrape();
    let (host_name, disk_name) = (host_nqn("counted"), disk.path().display().to_string());
    for (op, nsid, ios, bytes) in [
        ("read", "1", 5, 5 * 4 * KIB),
        ("compare", "1", 1, 4 * KIB),
        ("verify", "1", 1, 8 * KIB),
        ("write_zeroes", "1", 1, 2 * KIB),
        ("write", "1", 0, 0),
        ("write", "2", 5, 3 * 8 * KIB + 2 * KIB),
        ("flush", "2", 1, 0),
        ("read", "2", 0, 0),
    ] {
        let labels = [("subsystem", NQN), ("nsid", nsid), ("op", op)];
        let counted = page.count("cairn_namespace_ios_total", &labels);
        assert_eq!(counted, ios, "{op} on {nsid}");
        let counted = page.count("cairn_namespace_bytes_total", &labels);
        assert_eq!(counted, u64::from(bytes), "bytes of {op} on {nsid}");
    }
    for (qid, op, ios, bytes) in [
        ("1", "read", 5, 20 * KIB),
        ("1", "write", 0, 0),
        ("1", "other", 4, 14 * KIB),
        ("2", "write", 5, 26 * KIB),
        ("2", "read", 0, 0),
    ] {
        let labels = [("host_nqn", host_name.raw()), ("qid", qid), ("op", op)];
        let counted = page.count("cairn_queue_ios_total", &labels);
        assert_eq!(counted, ios, "{op} by {qid}");
        let counted = page.count("cairn_queue_bytes_total", &labels);
        assert_eq!(counted, u64::from(bytes), "bytes of {op} by {qid}");
    }
    for (op, ios, bytes) in [("read", 5, 20 * KIB), ("write", 5, 26 * KIB)] {
        let labels = [("host_nqn", host_name.raw()), ("op", op)];
        assert_eq!(page.count("cairn_host_ios_total", &labels), ios);
        let counted = page.count("cairn_host_bytes_total", &labels);
        assert_eq!(counted, u64::from(bytes));
    }
    let smart = [("subsystem", NQN), ("op", "read")];
    assert_eq!(page.count("cairn_subsystem_ios_total", &smart), 7);
    let beyond = [("nsid", "1"), ("status", "LBA Out of Range")];
    assert_eq!(page.count("cairn_namespace_errors_total", &beyond), 1);
    let of_host = ("host_nqn", host_name.raw());
    let errors = page.count("cairn_host_errors_total", &[of_host]);
    assert_eq!(errors, 2, "the namespace that is not there included");
    let backing = [("nsid", "2"), ("backing", disk_name.as_str())];
    assert_eq!(page.count("cairn_namespace_info", &backing), 1);
    assert_eq!(
        page.count("cairn_namespace_size_bytes", &[("nsid", "1")]),
        16 << 20
    );
    assert_eq!(page.count("cairn_queue_depth", &[of_host]), 0);
    assert_eq!(page.count("cairn_host_queues", &[of_host]), 3);
    let live = page.count("cairn_connection_info", &[of_host, ("qid", "2")]);
    assert_eq!(live, 1);
    if page.values("provider").contains("soft") {
        assert_eq!(page.values("tos"), BTreeSet::from(["0"]));
    }
    host.shutdown().unwrap();
    target.stop();
}

fn eventually(target: &TestTarget, what: &str, right: impl Fn(&Exposition) -> bool) -> Exposition {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = target.scrape();
        if right(&page) {
            return page;
        }
        assert!(Instant::now() < deadline, "{what}: {page:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn each_command_is_in_the_histograms_once_and_its_stages_add_up() {
    let disk = Scratch::new("staged", 16 << 20);
    let target = target_with(&["mem:16MiB block_size = 512", &disk.export(BLOCK)]);
    let mut host = connect(&target, "staged");
    known_commands(&mut host);
    let count = "cairn_namespace_io_seconds_count";
    let all = |page: &Exposition| page.count(count, &[("stage", "whole")]) == 14;
    let page = eventually(&target, "14 commands in the histograms", all);
    for (nsid, op, ios, fetched) in [
        ("1", "read", 5, 0),
        ("2", "write", 5, 3),
        ("1", "other", 3, 1),
        ("2", "other", 1, 0),
    ] {
        for (stage, expected) in [
            ("buffer", ios),
            ("data_in", fetched),
            ("backend", ios),
            ("data_out", ios),
            ("whole", ios),
        ] {
            let labels = [("nsid", nsid), ("op", op), ("stage", stage)];
            assert_eq!(
                page.count(count, &labels),
                expected,
                "{op} on {nsid}: {stage}"
            );
        }
        let sum = |stage| {
            let labels = [("nsid", nsid), ("op", op), ("stage", stage)];
            page.get("cairn_namespace_io_seconds_sum", &labels)
                .unwrap_or(0.0)
        };
        let stages = ["buffer", "data_in", "backend", "data_out"].map(sum);
        let (parts, whole) = (stages.iter().sum::<f64>(), sum("whole"));
        assert!(whole > 0.0, "{op} on {nsid}");
        assert!(
            (parts - whole).abs() <= whole * ROUNDING,
            "{op} on {nsid}: {stages:?}"
        );
    }
    let of_host = |op| page.count("cairn_host_io_seconds_count", &[("op", op)]);
    assert_eq!(["read", "write", "other"].map(of_host), [5, 5, 4]);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn who_goes_takes_its_series_along() {
    let target = target_with(&["mem:1MiB block_size = 512"]);
    let (mut stays, mut goes) = (connect(&target, "stays"), connect(&target, "goes"));
    repeat(2, &mut stays, 0, command::read(1, 0, 8), 4 * KIB);
    repeat(3, &mut stays, 1, command::read(1, 0, 8), 4 * KIB);
    repeat(4, &mut goes, 0, command::read(1, 0, 8), 4 * KIB);
    let name = host_nqn("goes");
    assert!(target.scrape().values("host_nqn").contains(name.raw()));

    goes.shutdown().unwrap();
    let gone = |page: &Exposition| !page.values("host_nqn").contains(name.raw());
    let page = eventually(&target, "no series of the host that went", gone);
    let reads = [("nsid", "1"), ("op", "read")];
    assert_eq!(page.count("cairn_namespace_ios_total", &reads), 9);
    assert_eq!(
        page.count("cairn_subsystem_controllers", &[("subsystem", NQN)]),
        1
    );

    let second = stays.io_queue(1);
    stays.close_queue(second).unwrap();
    let gone = |page: &Exposition| page.get("cairn_queue_depth", &[("qid", "2")]).is_none();
    let page = eventually(&target, "no series of the queue that went", gone);
    let labels = [("op", "read")];
    assert_eq!(page.count("cairn_host_ios_total", &labels), 5);
    assert_eq!(page.count("cairn_queue_ios_total", &labels), 2);
    assert_eq!(
        page.count("cairn_disconnects_total", &[("kind", "orderly")]),
        4
    );
    stays.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_host_that_is_refused_leaves_a_reason_and_no_name() {
    let target = TestTarget::start(&format!(
        "{METRICS}[[subsystem]]\nnqn = \"{NQN}\"\nallowed_hosts = [\"{}\"]\n{}",
        host_nqn("welcome"),
        namespace(1, "mem:1MiB")
    ));
    let refused = |page: &Exposition| {
        let labels = [("step", "connect"), ("reason", "Connect Invalid Host")];
        page.count("cairn_connects_refused_total", &labels)
    };
    assert_eq!(refused(&target.scrape()), 0);
    for number in 0..10 {
        let options = target.options(&format!("stranger-{number}"));
        assert!(target.try_connect(options).is_err());
    }
    let page = target.scrape();
    assert_eq!(refused(&page), 10);
    assert!(
        page.values("host_nqn").is_empty(),
        "{:?}",
        page.values("host_nqn")
    );
    target.stop();
}

#[test]
fn waits_for_buffers_are_counted() {
    let disk = Scratch::new("waits", 16 << 20);
    let target = TestTarget::start(&format!(
        "[target]\nreactors = 1\ndata_buffers = \"2MiB\"\n{METRICS}{}",
        subsystem(NQN, &[&disk.export(BLOCK)])
    ));
    let mut host = connect(&target, "hungry");
    let tickets: Vec<_> = (0..16)
        .map(|_| {
            let data = Data::whole(host.buffer(1 << 20).unwrap());
            host.submit(command::read(1, 0, 2048), data).unwrap()
        })
        .collect();
    for ticket in tickets {
        host.wait(ticket).answer.unwrap();
    }
    let page = target.scrape();
    let of_host = page.count("cairn_host_buffer_waits_total", &[]);
    assert!(of_host > 0, "two transfers fit at a time");
    let of_queue = |qid| page.count("cairn_queue_buffer_waits_total", &[("qid", qid)]);
    assert_eq!((of_queue("0"), of_queue("1")), (0, of_host));
    let waits = |cause| page.count("cairn_reactor_waits_total", &[("cause", cause)]);
    assert_eq!(waits("share") + waits("pool"), of_host);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn waits_for_a_queue_pairs_own_work_are_counted() {
    let target = target_with(&["mem:16MiB block_size = 512"]);
    let mut host = connect(&target, "many");
    let length = 16 * KIB;
    let blocks = length / BLOCK;
    let mut round = || {
        let tickets: Vec<_> = (0..64)
            .map(|at| {
                let data = Data::whole(host.buffer(length as usize).unwrap());
                let write = command::write(1, at * u64::from(blocks), blocks);
                host.submit(write, data).unwrap()
            })
            .collect();
        for ticket in tickets {
            host.wait(ticket).answer.unwrap();
        }
        target.scrape()
    };
    let waits =
        |page: &Exposition, cause| page.get("cairn_reactor_waits_total", &[("cause", cause)]);
    let waited = (0..100)
        .map(|_| round())
        .find(|page| waits(page, "read") > Some(0.0));
    let page = waited.expect("64 WRITEs at a time wait for READs");
    assert!(waits(&page, "send").is_some());
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn reading_metrics_disturbs_no_host() {
    let target = target_with(&["mem:16MiB block_size = 512"]);
    let mut host = connect(&target, "undisturbed");
    let over = AtomicBool::new(false);
    let scrapes = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut scrapes, mut before) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                let reads = target
                    .scrape()
                    .count("cairn_namespace_ios_total", &[("op", "read")]);
                assert!(reads >= before, "{before} reads have become {reads}");
                (scrapes, before) = (scrapes + 1, reads);
            }
            scrapes
        });
        repeat(2000, &mut host, 0, command::read(1, 0, 8), 4 * KIB);
        over.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(scrapes > 0);
    let reads = target
        .scrape()
        .count("cairn_namespace_ios_total", &[("op", "read")]);
    assert_eq!(reads, 2000);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn reactors_devices_and_the_process_are_reported() {
    let target = target_with(&["mem:1MiB block_size = 512"]);
    let mut host = connect(&target, "present");
    repeat(1, &mut host, 0, command::read(1, 0, 8), 4 * KIB);
    let page = target.scrape();
    let reactor = ("reactor", "0");
    assert!(page.count("cairn_reactor_capsules_total", &[reactor]) > 0);
    assert!(page.get("cairn_reactor_seconds_total", &[reactor, ("state", "busy")]) > Some(0.0));
    assert_eq!(page.count("cairn_reactor_queue_pairs", &[reactor]), 3);
    assert!(page.count("cairn_reactor_buffer_bytes", &[reactor]) >= 16 << 20);
    let accepted = page.count("cairn_rdma_qp_events_total", &[("event", "accepted")]);
    assert_eq!(accepted, 3);
    assert_eq!(page.count("cairn_rdma_device_info", &[]), 1);
    assert_eq!(page.count("cairn_build_info", &[]), 1);
    assert!(!page.values("commit").is_empty());
    assert!(page.count("process_resident_memory_bytes", &[]) > 1 << 20);
    assert!(page.count("process_open_fds", &[]) > 3);
    assert!(page.count("process_threads", &[]) >= 3);
    assert!(page.get("process_start_time_seconds", &[]) > Some(1.6e9));
    if page.values("provider").contains("soft") {
        let sent = page.count("cairn_rdma_hw_counter_total", &[("counter", "sent_pkts")]);
        let packets = [("direction", "transmit"), ("port", "1")];
        assert!(sent > 0);
        assert_eq!(page.count("cairn_rdma_port_packets_total", &packets), sent);
    }
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn the_port_answers_requests_and_nothing_else() {
    let target = target_with(&["mem:1MiB"]);
    let address = target.metrics_address();
    let code = |head: &str| head.split(' ').nth(1).unwrap().to_owned();
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", "200"),
        ("GET /metrics?buckets=fine HTTP/1.0\n\n", "200"),
        ("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
        ("GET /secret HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "405"),
        ("GET /metrics HTTP/2\r\n\r\n", "400"),
        ("GET /metrics\r\n\r\n", "400"),
        ("\u{0}\u{1}\u{ffff}\r\n\r\n", "400"),
        ("\r\n\r\nGET / HTTP/1.1\r\n\r\n", "200"),
    ] {
        let (head, body) = ask(address, request);
        assert_eq!(code(&head), expected, "{request:?}");
        let is_empty = request.starts_with("HEAD") || expected == "400";
        assert_eq!(body.is_empty(), is_empty, "{request:?}");
    }
    let long = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(8 * 1024 - 19));
    assert_eq!(code(&ask(address, &long).0), "431");
    let page = target.scrape();
    let answers = |code| page.count("cairn_metrics_requests_total", &[("code", code)]);
    assert_eq!(["200", "400", "404", "431"].map(answers), [4, 3, 1, 1]);
    target.stop();
}

#[test]
fn silent_clients_keep_no_other_out() {
    let target = target_with(&["mem:1MiB"]);
    let connect = || std::net::TcpStream::connect(target.metrics_address()).unwrap();
    let mut silent: Vec<_> = (0..64).map(|_| connect()).collect();
    let (head, _) = get(target.metrics_address(), "/metrics");
    assert!(head.contains("200 OK"), "{head}");
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut silent[0], &mut rest);
    assert_eq!(rest, b"", "it asked for nothing");
    target.stop();
}

#[test]
fn a_reload_moves_the_port_and_closes_it() {
    let disks = subsystem(NQN, &["mem:1MiB"]);
    let target = TestTarget::start(&format!("{METRICS}{disks}"));
    let first = target.metrics_address();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let second = free.local_addr().unwrap();
    drop(free);
    target.reload(&format!("[metrics]\nlisten = \"{second}\"\n{disks}"));
    assert!(get(second, "/metrics").0.contains("200 OK"));
    assert!(std::net::TcpStream::connect(first).is_err());
    target.reload(&disks);
    assert!(std::net::TcpStream::connect(second).is_err());
    target.stop();
}

pub(crate) struct Documented {
    pub(crate) is_histogram: bool,
    pub(crate) labels: BTreeSet<String>,
}

pub(crate) fn documented() -> BTreeMap<String, Documented> {
    let page = include_str!("../../../docs/metrics.md");
    let mut documented = BTreeMap::new();
    for row in page.lines().filter(|row| row.starts_with("| `")) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, names, of, labels, ..] = columns[..] else {
            continue;
        };
        let parts = labels.split(';');
        let names_of = parts.filter_map(|part| part.split(" = ").next());
        let labels: BTreeSet<String> = names_of
            .flat_map(|names| names.split(','))
            .map(|label| label.trim().to_owned())
            .filter(|label| !label.is_empty())
            .collect();
        for name in names.split('`').skip(1).step_by(2) {
            let metric = Documented {
                is_histogram: of == "histogram",
                labels: labels.clone(),
            };
            documented.insert(name.to_owned(), metric);
        }
    }
    documented
}

#[test]
fn all_metrics_are_documented() {
    let manual = include_str!("../../../docs/metrics.md");
    let target = target_with(&["mem:1MiB block_size = 512"]);
    let mut host = connect(&target, "documented");
    repeat(1, &mut host, 0, command::read(1, 0, 8), 4 * KIB);
    let page = target.scrape();
    assert!(page.types().len() > 40);
    for (name, of) in page.types() {
        let row = manual
            .lines()
            .find(|row| row.contains(&format!("`{name}`")));
        let row = row.unwrap_or_else(|| panic!("{name} has no row"));
        assert!(row.contains(&format!("| {of}")), "{row} is not a {of}");
    }
    let documented = documented();
    let mut seen = BTreeSet::new();
    for (series, labels) in page.labels() {
        let known = |name: &str| page.types().contains_key(name);
        let parts = ["", "_bucket", "_sum", "_count"];
        let stems = parts.iter().filter_map(|part| series.strip_suffix(part));
        let name = { stems }.find(|stem| known(stem)).expect("it has a type");
        let labels: BTreeSet<String> = labels.keys().cloned().collect();
        let named: BTreeSet<String> = labels.into_iter().filter(|name| name != "le").collect();
        assert_eq!(named, documented[name].labels, "{series}");
        seen.insert(name);
    }
    assert!(seen.len() > 40, "{seen:?}");
    host.shutdown().unwrap();
    target.stop();
}
