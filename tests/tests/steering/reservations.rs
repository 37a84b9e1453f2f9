//! Reservations at the control socket.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cairn_config::Uuid;
use cairn_initiator::reservation::ReservationType as Type;
use cairn_initiator::wire::reservation::{AcquireCdw10, NotificationLog, RegisterCdw10};
use cairn_initiator::{Data, Host, HostError, HostOptions, Namespace, command};
use cairn_roce::Soft;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};
use cairn_tests::harness::host_nqn;
use nvme_proto::wire::log::LogPage;
use nvme_proto::wire::{FromBytes, NvmOpcode, Sqe, Status};
use serde_json::{Value, json};

use crate::target::{NQN, Steered, until};

pub(crate) struct Member {
    host: Host,
    namespace: Namespace,
    key: u64,
}

impl Member {
    pub(crate) fn registered(target: &Steered, name: &str, key: u64) -> Self {
        let mut member = Self::of(target.connect(name), 1, key);
        member.register(0).unwrap();
        member
    }

    pub(crate) fn of(mut host: Host, nsid: u32, key: u64) -> Self {
        let namespace = host.open_namespace(nsid).unwrap();
        Self {
            host,
            namespace,
            key,
        }
    }

    pub(crate) fn register(&mut self, fields: u32) -> Result<(), HostError> {
        let fields = RegisterCdw10(fields);
        self.namespace.register(&mut self.host, fields, 0, self.key)
    }

    pub(crate) fn acquire(&mut self, rtype: Type) -> Result<(), HostError> {
        let fields = AcquireCdw10(0).with_rtype(rtype.code());
        self.namespace.acquire(&mut self.host, fields, self.key, 0)
    }

    pub(crate) fn may_write(&mut self) -> bool {
        let write = command::write(1, 0, 1);
        match self.host.run(write, Data::InCapsule(&[1; 512])) {
            Ok(_) => true,
            Err(HostError::Status { status, .. }) => {
                assert_eq!(status.code(), Status::RESERVATION_CONFLICT);
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn told(&mut self) -> (u8, u32) {
        let mut buffer = self.host.buffer(64).unwrap();
        let get = command::get_log_page(LogPage::RESERVATION_NOTIFICATION, 0, 0, 64, false);
        self.host.run_admin(get, Data::whole(&mut buffer)).unwrap();
        let log = NotificationLog::read_from_bytes(&buffer.bytes(0, 64)).unwrap();
        (log.notice, log.nsid.get())
    }
}

fn of(nsid: u32) -> Value {
    json!({"nqn": NQN, "nsid": nsid})
}

fn listed(target: &Steered) -> Value {
    target.done("cairn_reservation_list", json!({}))
}

fn text(target: &Steered, args: &[&str]) -> String {
    let output = target.command(args);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn shown(target: &Steered) -> Value {
    target.done("cairn_reservation_get", of(1))
}

#[test]
fn the_status_shows_types_holders_and_registrants() {
    let target = Steered::start();
    assert_eq!(listed(&target), json!([]));
    assert!(!text(&target, &["status"]).contains("REGISTRANTS"));
    assert_eq!(shown(&target)["hosts"], json!([]));
    assert_eq!(target.refused("cairn_reservation_get", of(2)), -2);
    let mut holder = Member::registered(&target, "a", 0xa1);
    let _other = Member::registered(&target, "b", 1 << 63);
    assert_eq!(listed(&target)[0]["rtype"], Value::Null);
    holder.acquire(Type::WriteExclusiveRegistrantsOnly).unwrap();
    let name = |name: &str| host_nqn(name).to_string();
    let hostid = Uuid::from_bytes(holder.host.options().hostid).to_string();
    let row = json!({
        "nqn": NQN, "nsid": 1, "rtype": 3, "rtype_name": "write exclusive, registrants only",
        "holder": name("a"), "holder_hostid": hostid, "registrants": 2, "generation": 2,
        "persistent": false,
    });
    assert_eq!(listed(&target), json!([row]));
    assert_eq!(
        target.done("cairn_status", json!({}))["reservations"],
        json!([row])
    );
    let mut hosts = shown(&target)["hosts"].as_array().unwrap().clone();
    hosts.sort_by_key(|one| one["host"].to_string());
    let [a, b] = &hosts[..] else {
        panic!("{hosts:?}");
    };
    assert_eq!(
        *a,
        json!({"host": name("a"), "hostid": hostid, "key": "0xa1", "holder": true})
    );
    assert_eq!(b["key"], "0x8000000000000000");
    assert_eq!(
        (&b["host"], &b["holder"]),
        (&json!(name("b")), &json!(false))
    );
    for command in [&["status"][..], &["reservation", "list"]] {
        let text = text(&target, command);
        let line = text.lines().find(|line| line.starts_with(NQN)).unwrap();
        for cell in [&*name("a"), &hostid, "registrants only", "  2  "] {
            assert!(line.contains(cell), "{cell}: {text}");
        }
    }
    let all = text(&target, &["reservation", "show", NQN, "1"]);
    assert!(all.contains("0xa1") && all.contains(&name("b")), "{all}");
    let named = text(&target, &["reservation", "list", "-o", "name"]);
    assert_eq!(named, format!("{NQN} 1\n"));

    holder.host.shutdown().unwrap();
    until("the holder has no name", || {
        listed(&target)[0]["holder"].is_null()
    });
    assert!(text(&target, &["status"]).contains(&hostid));
}

#[test]
fn each_registrant_holds_a_reservation_of_all_registrants() {
    let target = Steered::start();
    let mut one = Member::registered(&target, "a", 1);
    let _two = Member::registered(&target, "b", 2);
    one.acquire(Type::ExclusiveAccessAllRegistrants).unwrap();
    let all = shown(&target);
    assert_eq!(
        (&all["rtype"], &all["holder_hostid"]),
        (&json!(6), &Value::Null)
    );
    let hosts = all["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 2);
    assert!(hosts.iter().all(|one| one["holder"] == true));
}

#[test]
fn a_clear_ends_the_reservation_and_notifies_all_registrants() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.json");
    let target = Steered::start_with(&format!("[audit]\nfile = {file:?}\n"));
    let mut members = ["a", "b"].map(|name| Member::registered(&target, name, 7));
    let mut stranger = Member::of(target.connect("c"), 1, 0);
    members[0].acquire(Type::ExclusiveAccess).unwrap();
    assert!(!stranger.may_write());
    let clear = ["reservation", "clear", NQN, "1"];
    assert_eq!(text(&target, &clear), "");
    assert!(stranger.may_write());
    assert_eq!(listed(&target), json!([]));
    for member in &mut members {
        assert_eq!(member.told(), (3, 1), "reservation preempted");
        assert!(member.may_write());
        member.register(0).unwrap();
    }
    target.done("cairn_reservation_clear", of(1));
    let again = target.command(&clear);
    assert!(again.status.success());
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(said.contains("unchanged: namespace 1 of"), "{said}");
    assert_eq!(target.refused("cairn_reservation_clear", of(2)), -2);
    let shared = json!({"nqn": NQN, "export": "null:1MiB", "nsid": 2, "shared": true});
    target.done("cairn_namespace_add", shared);
    assert_eq!(target.refused("cairn_reservation_clear", of(2)), -32602);
    until("the audit log has every clear", || {
        let lines = std::fs::read_to_string(&file).unwrap_or_default();
        let clears = lines
            .lines()
            .filter(|line| line.contains("cairn_reservation_clear") && line.contains("\"uid\""));
        let done = clears.clone().filter(|line| line.contains("\"done\""));
        (done.count(), clears.count()) == (3, 5)
    });
}

#[test]
fn clears_and_commands_of_hosts_take_effect_one_after_the_other() {
    let target = Steered::start();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for name in ["a", "b"] {
            let (target, ended) = (&target, &ended);
            scope.spawn(move || {
                let mut member = Member::of(target.connect(name), 1, 7);
                while !ended.load(Ordering::Relaxed) {
                    member.register(0).unwrap();
                    match member.acquire(Type::WriteExclusive) {
                        Ok(()) => {}
                        Err(HostError::Status { status, .. })
                            if status.code() == Status::RESERVATION_CONFLICT => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let mut cleared = 0;
        until("fifty clears with registrants", || {
            let done = target.done("cairn_reservation_clear", of(1));
            cleared += u32::from(done == true);
            cleared >= 50
        });
        ended.store(true, Ordering::Relaxed);
    });
    target.done("cairn_reservation_clear", of(1));
    assert_eq!(listed(&target), json!([]));
}

#[test]
fn a_clear_persists_or_is_refused() {
    let mut target = Steered::start();
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    let disk = folder.path().join("disk");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let text = target.text();
    let text = text.replace("[target]", &format!("[target]\nstate_directory = {kept:?}"));
    let text = text.replace("\"mem:4MiB\"", &format!("{disk:?}"));
    std::fs::write(target.config(), text).unwrap();
    target.crash();
    let persist = RegisterCdw10(0).with_cptpl(RegisterCdw10::CPTPL_SET).0;
    let mut holder = Member::registered(&target, "a", 7);
    holder.register(persist).unwrap();
    holder.acquire(Type::WriteExclusive).unwrap();
    drop(holder);
    target.crash();
    assert_eq!(listed(&target)[0]["persistent"], true);
    target.done("cairn_reservation_clear", of(1));
    target.crash();
    assert_eq!(listed(&target), json!([]));

    let mut holder = Member::registered(&target, "a", 7);
    holder.acquire(Type::WriteExclusive).unwrap();
    let before = listed(&target);
    let problems = || target.done("cairn_status", json!({}))["problems"].to_string();
    assert_eq!(problems(), "[]");
    std::fs::remove_dir_all(&kept).unwrap();
    let said = problems();
    assert!(said.contains("before this target ends"), "{said}");
    let check = target.command(&["check", target.config().to_str().unwrap()]);
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(said.contains("before this target ends"), "{said}");
    assert_eq!(check.status.code(), Some(1), "{said}");
    let reloaded = target.done("cairn_reload", json!({})).to_string();
    assert!(reloaded.contains("state_directory"), "{reloaded}");
    assert_eq!(target.refused("cairn_reservation_clear", of(1)), -5);
    assert_eq!(listed(&target), before);
    let mut stranger = Member::of(target.connect("c"), 1, 0);
    assert!(!stranger.may_write());
}

#[test]
fn a_clear_behind_a_command_that_waits_for_a_hung_disk_is_given_up() {
    let Some(disk) = FaultyDisk::mount("clear", 1 << 20) else {
        return;
    };
    let target = Steered::start_after(|_, _| {
        format!(
            "[[subsystem.namespace]]\nnsid = 2\nexport = {:?}\n",
            disk.path()
        )
    });
    let patient = |name: &str| {
        let options = HostOptions {
            timeout: crate::target::PATIENCE,
            ..target.options(name)
        };
        Host::connect(&Soft::default(), options).unwrap()
    };
    let mut winner = Member::of(patient("a"), 2, 1);
    let mut loser = Member::of(patient("b"), 2, 2);
    let mut hang = || {
        for (member, rtype) in [
            (&mut winner, None),
            (&mut loser, Some(Type::WriteExclusive)),
        ] {
            member.register(0).unwrap();
            rtype.map_or(Ok(()), |rtype| member.acquire(rtype)).unwrap();
        }
        disk.begin(Rule::new(Op::Write, Fault::Hold));
        let data = Data::InCapsule(&[1; 512]);
        loser.host.submit(command::write(2, 0, 1), data).unwrap();
        loser.host.poll();
        disk.wait_until_waiting(Op::Write, 1);
    };
    hang();
    target.done("cairn_reservation_clear", of(2));
    disk.heal();
    hang();
    let fields = AcquireCdw10(0).with_racqa(AcquireCdw10::PREEMPT_AND_ABORT);
    let preempt = Sqe {
        cdw10: fields.with_rtype(Type::WriteExclusive.code()).0.into(),
        ..command::plain(NvmOpcode::RESERVATION_ACQUIRE.0, 2)
    };
    let mut keys = [0; 16];
    (keys[0], keys[8]) = (1, 2);
    let data = Data::InCapsule(&keys);
    let preempting = winner.host.submit(preempt, data).unwrap();
    let mut buffer = winner.host.buffer(512).unwrap();
    let read = command::read(2, 0, 1);
    winner.host.run(read, Data::whole(&mut buffer)).unwrap();
    assert_eq!(target.refused("cairn_reservation_clear", of(2)), -110);
    assert!(winner.host.take(preempting).is_none(), "answered too early");
    disk.heal();
    let ended = winner.host.wait(preempting).answer.unwrap();
    assert_eq!(ended.cqe.status(), Status::SUCCESS);
    assert_eq!(listed(&target)[0]["registrants"], 1, "cleared after all");
    target.done("cairn_reservation_clear", of(2));
    assert_eq!(listed(&target), json!([]));
}

#[test]
fn the_removal_of_a_namespace_names_the_holder_of_its_reservation() {
    let target = Steered::start();
    let mut holder = Member::registered(&target, "a", 0xa1);
    let _other = Member::registered(&target, "b", 0xb2);
    holder.acquire(Type::WriteExclusiveRegistrantsOnly).unwrap();
    let removed = target.command(&["namespace", "remove", NQN, "1"]);
    assert!(removed.status.success(), "{removed:?}");
    let said = String::from_utf8(removed.stderr).unwrap();
    let name = host_nqn("a").to_string();
    for word in [
        "warning: ",
        &name,
        "with 2 registrants",
        "fenced hosts can write",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    target.done(
        "cairn_namespace_add",
        json!({"nqn": NQN, "nsid": 1, "export": "mem:4MiB"}),
    );
    let removed = target.done("cairn_namespace_remove", of(1));
    let loses = |host| {
        let host = host_nqn(host);
        format!("{host} is connected, and loses namespace 1 of {NQN}")
    };
    let lost = format!("namespace 1 of {NQN} was memory: its contents are lost");
    assert_eq!(removed["warnings"], json!([loses("a"), loses("b"), lost]));
}
