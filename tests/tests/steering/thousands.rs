use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_initiator::{Data, Event, Host, Notice, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Nature, Op, Rule};
use cairn_tests::harness::host_nqn;
use cairn_tests::process::program;
use nvme_proto::wire::feature::AsyncEventConfig;
use serde_json::json;

use crate::target::{NQN, Steered};

const NULL: u32 = 4_200;
const MEMORY: u32 = 300;
/// Number of namespaces in the second subsystem; both subsystems together have about ten thousand.
const BESIDE: u32 = 5_499;
const LAST: u32 = 10_240;
const CLIENTS: u32 = 100;
const OF_EACH: u32 = 10;
/// Maximum time of a change with thousands of namespaces, divided by the time with a few.
const RATIO_MAX: u32 = 20;
const OTHER: &str = "nqn.2024-01.com.example:steered-too";

fn put(text: &mut String, nsid: u32, export: &str) {
    writeln!(
        text,
        "[[subsystem.namespace]]\nnsid = {nsid}\nexport = \"{export}\""
    )
    .unwrap();
}

fn files() -> u32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let room = limit.map_or(u64::MAX, |limit| limit / 2 - 300);
    BESIDE.min((room - u64::from(CLIENTS * OF_EACH)) as u32)
}

fn file(folder: &Path, number: u32) -> String {
    let path = folder.join(format!("disk{number}"));
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    path.display().to_string()
}

/// Starts a target. The first subsystem has null and memory disks. The second has `files` file
/// disks, or null disks for `None`.
fn start(files: Option<u32>) -> Steered {
    Steered::start_after(|folder, _| {
        let mut text = String::new();
        (2..=NULL).for_each(|nsid| put(&mut text, nsid, "null:1MiB"));
        (NULL + 1..=NULL + MEMORY).for_each(|nsid| put(&mut text, nsid, "mem:64KiB"));
        put(&mut text, LAST, "mem:64KiB");
        write!(
            text,
            "[[subsystem]]\nnqn = \"{OTHER}\"\nallow_any_host = true\n"
        )
        .unwrap();
        for nsid in 1..=files.unwrap_or(BESIDE) {
            match files {
                Some(_) => put(&mut text, nsid, &file(folder, nsid)),
                None => put(&mut text, nsid, "null:1MiB"),
            }
        }
        text
    })
}

fn host(target: &Steered) -> Host {
    let mut options = target.options("lister");
    options.events = AsyncEventConfig(0).with_namespace_attribute(true);
    Host::connect(&Soft::default(), options).unwrap()
}

fn assert_holds_data(host: &mut Host, nsid: u32) {
    let namespace = host.open_namespace(nsid).unwrap();
    let length = namespace.block_bytes as usize;
    let mut buffer = host.buffer(2 * length).unwrap();
    let pattern: Vec<u8> = (0..length).map(|at| (at as u32 + nsid) as u8).collect();
    buffer.write(0, &pattern);
    let written = Data::part_of(&mut buffer, 0, length as u32);
    host.run(command::write(nsid, 3, 1), written).unwrap();
    let read = Data::part_of(&mut buffer, length, length as u32);
    host.run(command::read(nsid, 3, 1), read).unwrap();
    assert_eq!(buffer.bytes(length, length), pattern);
}

#[test]
fn thousands_of_namespaces_are_listed_and_served_and_more_are_added() {
    let files = files();
    let target = start(Some(files));
    let mut host = host(&target);
    let expected: Vec<u32> = (1..=NULL + MEMORY).chain([LAST]).collect();
    assert_eq!(host.active_namespaces().unwrap(), expected);
    for nsid in [1, NULL + MEMORY, LAST] {
        assert_holds_data(&mut host, nsid);
    }
    target.connect("second").disconnect().unwrap();

    let ended = AtomicU32::new(0);
    let begin = Instant::now();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (target, ended) = (&target, &ended);
            scope.spawn(move || {
                let mut socket = target.client();
                for number in 0..OF_EACH {
                    let (nqn, export) = if client % 2 == 0 {
                        (NQN, "null:1MiB".to_owned())
                    } else {
                        let number = LAST + client * OF_EACH + number;
                        (OTHER, file(target.folder.path(), number))
                    };
                    let add = json!({"nqn": nqn, "export": export});
                    socket.call("cairn_namespace_add", &add).unwrap();
                }
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        while ended.load(Ordering::Relaxed) < CLIENTS {
            host.poll();
            thread::sleep(Duration::from_millis(1));
        }
    });
    let taken = begin.elapsed();
    let many = CLIENTS * OF_EACH;
    println!(
        "{many} additions at once: {taken:?}, {:?} each",
        taken / many
    );
    let all = expected.len() as u32 + files + many;
    let status = target.done("cairn_status", json!({}));
    assert_eq!(status["namespaces"], all);
    let added = CLIENTS / 2 * OF_EACH;
    assert_eq!(
        host.active_namespaces().unwrap().len() as u32,
        expected.len() as u32 + added
    );
    let event = host.wait_until("the event", |host| host.take_event());
    assert!(matches!(
        event.unwrap(),
        Event::Notice(Notice::NamespacesChanged)
    ));
    let changed = host.changed_namespaces().unwrap().unwrap();
    assert_eq!(changed.len() as u32, added);
    host.disconnect().unwrap();
}

#[test]
fn a_change_among_thousands_costs_little_more_than_beside_one() {
    let (few, many) = (Steered::start_with(""), start(None));
    let mut clients = [few.client(), many.client()];
    let add = json!({"nqn": NQN, "export": "null:1MiB"});
    let mut taken = [const { [Vec::new(), Vec::new()] }; 2];
    for _ in 0..21 {
        for (client, taken) in clients.iter_mut().zip(&mut taken) {
            let mut timed = |kind: usize, method, params| {
                let begin = Instant::now();
                let answer = client.call(method, params).unwrap();
                taken[kind].push(begin.elapsed());
                answer
            };
            let nsid = timed(0, "cairn_namespace_add", &add)["nsid"].clone();
            timed(
                1,
                "cairn_namespace_remove",
                &json!({"nqn": NQN, "nsid": nsid}),
            );
            client.call("cairn_namespace_add", &add).unwrap();
        }
    }
    let [beside_few, among_many] = taken.map(|kinds| {
        kinds.map(|mut taken| {
            taken.sort_unstable();
            taken[taken.len() / 2]
        })
    });
    for (what, (few, many)) in ["add", "remove"]
        .iter()
        .zip(beside_few.iter().zip(among_many))
    {
        println!("{what}: {many:?} among thousands, {few:?} beside one");
        assert!(
            many < *few * RATIO_MAX,
            "{what}: {many:?} among thousands, {few:?} beside one"
        );
    }
    many.done("cairn_reload", json!({}));
    let notices = json!({"id": 0, "max": 100_000});
    assert_eq!(
        many.done("notify_get_notifications", notices)
            .as_array()
            .unwrap()
            .len(),
        3,
        "disks of one size and kind have one name, which comes once"
    );
}

#[test]
fn a_change_looks_at_no_disk_that_stays() {
    let Some(disk) = FaultyDisk::mount_as(Nature::FileSystem, "steered", 1 << 20) else {
        return;
    };
    let target = Steered::start_after(|_, _| {
        let mut text = String::new();
        put(&mut text, 2, &disk.path().display().to_string());
        text
    });
    target.done("cairn_reload", json!({}));
    disk.begin(Rule::new(Op::Look, Fault::Hold));
    disk.begin(Rule::new(Op::Open, Fault::Hold));
    let host = host_nqn("another");
    target.done("cairn_host_any", json!({"nqn": NQN, "allow": false}));
    target.done("cairn_host_add", json!({"nqn": NQN, "host": host.raw()}));
    target.done(
        "cairn_namespace_add",
        json!({"nqn": NQN, "export": "mem:64KiB"}),
    );
    target.done("cairn_namespace_remove", json!({"nqn": NQN, "nsid": 3}));
    target.done("cairn_host_remove", json!({"nqn": NQN, "host": host.raw()}));
    assert_eq!(disk.waiting(Op::Look) + disk.waiting(Op::Open), 0);
    thread::scope(|scope| {
        scope.spawn(|| target.done("cairn_reload", json!({})));
        disk.wait_until_waiting(Op::Look, 1);
        disk.heal();
    });
}

#[test]
fn what_there_is_no_room_for_is_refused_when_it_is_configured() {
    let target = Steered::start_with("");
    let whole = target.text();
    let refused = |text: &str| {
        std::fs::write(target.config(), text).unwrap();
        let output = target.command(&["check", "--offline", target.config().to_str().unwrap()]);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let mut long = whole.clone();
    put(&mut long, LAST + 1, "null:1MiB");
    let said = refused(&long);
    assert!(said.contains("from 1 to 10240"), "{said}");
    let mut short = whole.replace("[target]", "[target]\nmdts = \"16KiB\"");
    put(&mut short, 4000, "null:1MiB");
    let said = refused(&short);
    assert!(said.contains("mdts = \"64KiB\""), "{said}");

    let mut memory = whole;
    for subsystem in 0..2 {
        writeln!(memory, "[[subsystem]]\nnqn = \"{OTHER}{subsystem}\"").unwrap();
        (1..=3073).for_each(|nsid| put(&mut memory, nsid, "mem:64KiB"));
    }
    let said = refused(&memory);
    assert!(said.contains("at most 6144"), "{said}");
}

#[test]
fn more_disks_than_the_process_may_open_are_refused_when_they_are_configured() {
    let most = 37;
    let mut more = String::new();
    let target = Steered::start_limited_after(256 + 2 * most, |folder, _| {
        let mut text = String::new();
        for index in 0..=most {
            more = file(folder, index);
            if index < most {
                put(&mut text, 2 + index, &more);
            }
        }
        text
    });
    let new = json!({"nqn": NQN, "export": more});
    let said = target
        .call("cairn_namespace_add", new)
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("at most 37 can be") && said.contains("LimitNOFILE"),
        "{said}"
    );
    let mut host = host(&target);
    assert_eq!(host.active_namespaces().unwrap().len(), 1 + most as usize);
    let mut text = target.text();
    put(&mut text, 2 + most, &more);
    let config = target.folder.path().join("more.toml");
    std::fs::write(&config, text).unwrap();
    let limited = format!("ulimit -n {}; exec \"$0\" check \"$1\"", 256 + 2 * most);
    let mut check = Command::new("sh");
    check
        .arg("-c")
        .arg(limited)
        .arg(program("cairn-target-process"));
    let output = check.arg(&config).output().unwrap();
    let said = [output.stderr, output.stdout].map(|said| String::from_utf8(said).unwrap());
    let said = said.concat();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("at most 37 can be"), "{said}");
}
