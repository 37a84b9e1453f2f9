use std::fs::File;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_disk::{Operation, SimulatedDisk};
use cairn_initiator::{Data, Ended, Host, Notice, command};
use cairn_tests::harness::{NQN, Scratch, TestTarget, namespace, subsystem};
use nvme_proto::wire::Status;
use nvme_proto::wire::feature::{AsyncEventConfig, Feature, Select, WriteProtectionState};

use crate::verified::{Disk, Transfer, bytes, next_notice, status, wait_until};

const SIZE: u64 = 1 << 20;
const LENGTH: usize = 8192;
const BOUND: Duration = Duration::from_secs(20);

fn listener(target: &TestTarget) -> Host {
    let mut options = target.options("a");
    options.events = AsyncEventConfig(0).with_namespace_attribute(true);
    target.try_connect(options).unwrap()
}

fn changed(host: &mut Host) -> Vec<u32> {
    assert_eq!(next_notice(host), Notice::NamespacesChanged);
    host.changed_namespaces().unwrap().unwrap()
}

fn uuid(host: &mut Host, nsid: u32) -> [u8; 16] {
    let end = Instant::now() + BOUND;
    loop {
        match host.open_namespace(nsid) {
            Ok(namespace) => return namespace.uuid.unwrap(),
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

fn write(host: &mut Host, nsid: u32, seed: u64) {
    Disk::new(host, nsid).write(0, &bytes(seed, LENGTH), Transfer::Keyed);
}

fn read(host: &mut Host, nsid: u32) -> Vec<u8> {
    Disk::new(host, nsid).read(0, LENGTH, Transfer::Keyed)
}

fn is_free(disk: &Scratch) -> bool {
    let file = File::open(disk.path()).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[test]
fn another_disk_takes_the_place_of_one_and_no_other_notices() {
    let [first, second, other] =
        ["first", "second", "other"].map(|name| Scratch::new(&format!("replaced-{name}"), SIZE));
    let toml = |disk: &Scratch| subsystem(NQN, &[&disk.export(4096), &other.export(4096)]);
    let target = TestTarget::start(&toml(&first));
    let mut host = listener(&target);
    let before = [1, 2].map(|nsid| uuid(&mut host, nsid));
    write(&mut host, 1, 1);
    write(&mut host, 2, 2);
    target.reload(&toml(&second));
    assert_eq!(changed(&mut host), [1]);
    assert_ne!(uuid(&mut host, 1), before[0]);
    assert_eq!(uuid(&mut host, 2), before[1]);
    assert_eq!(read(&mut host, 1), [0; LENGTH]);
    assert_eq!(read(&mut host, 2), bytes(2, LENGTH));
    assert!(!is_free(&second));
    wait_until("the first is closed", || is_free(&first));
    write(&mut host, 1, 3);
    target.reload(&toml(&first));
    assert_eq!(changed(&mut host), [1]);
    assert_eq!(uuid(&mut host, 1), before[0]);
    assert_eq!(read(&mut host, 1), bytes(1, LENGTH));
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn two_namespaces_swap_their_disks() {
    let disks = ["one", "two"].map(|name| Scratch::new(&format!("swapped-{name}"), SIZE));
    let [one, two] = disks.each_ref().map(|disk| disk.export(4096));
    let target = TestTarget::start(&subsystem(NQN, &[&one, &two]));
    let mut host = listener(&target);
    let [first, second] = [1, 2].map(|nsid| uuid(&mut host, nsid));
    write(&mut host, 1, 1);
    write(&mut host, 2, 2);
    target.reload(&subsystem(NQN, &[&two, &one]));
    assert_eq!(changed(&mut host), [1, 2]);
    assert_eq!([1, 2].map(|nsid| uuid(&mut host, nsid)), [second, first]);
    assert_eq!(read(&mut host, 1), bytes(2, LENGTH));
    assert_eq!(read(&mut host, 2), bytes(1, LENGTH));
    let moved = subsystem(NQN, &[]) + &namespace(2, &one) + &namespace(3, &two);
    target.reload(&moved);
    assert_eq!(uuid(&mut host, 3), second);
    assert_eq!(read(&mut host, 3), bytes(2, LENGTH));
    assert!(disks.iter().all(|disk| !is_free(disk)), "both are locked");
    host.shutdown().unwrap();
    target.stop();
    wait_until("both are closed", || disks.iter().all(is_free));
}

#[test]
fn a_disk_gets_other_settings_and_stays_the_same_to_hosts() {
    let disk = Scratch::new("settings", SIZE);
    let of = |more: &str| subsystem(NQN, &[&format!("{} {more}", disk.path().display())]);
    let target = TestTarget::start(&of("block_size = 512"));
    let mut host = listener(&target);
    let before = uuid(&mut host, 1);
    write(&mut host, 1, 1);
    target.reload(&of("block_size = 4096"));
    assert_eq!(changed(&mut host), [1]);
    assert_eq!(host.open_namespace(1).unwrap().blocks, SIZE / 4096);
    assert_eq!(uuid(&mut host, 1), before);
    assert_eq!(read(&mut host, 1), bytes(1, LENGTH));
    target.reload(&of("block_size = 4096\nread_only = true"));
    assert_eq!(changed(&mut host), [1]);
    let refused = host.run(command::write_zeroes(1, 0, 1, false), Data::None);
    assert_eq!(status(refused).code(), Status::NAMESPACE_WRITE_PROTECTED);
    assert_eq!(read(&mut host, 1), bytes(1, LENGTH));
    target.reload(&of("block_size = 4096"));
    assert_eq!(changed(&mut host), [1]);
    write(&mut host, 1, 2);
    let named = "uuid = \"12345678-9abc-4def-8123-456789abcdef\"";
    target.reload(&of(named));
    assert_eq!(uuid(&mut host, 1)[..4], [0x12, 0x34, 0x56, 0x78]);
    assert!(!is_free(&disk));
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_new_disk_that_does_not_open_leaves_all_as_it_was() {
    let [one, two] = ["kept-one", "kept-two"].map(|name| Scratch::new(name, SIZE));
    let [first, second] = [&one, &two].map(|disk| disk.export(4096));
    let target = TestTarget::start(&subsystem(NQN, &[&first, &second]));
    let mut host = listener(&target);
    let before = [1, 2].map(|nsid| uuid(&mut host, nsid));
    write(&mut host, 1, 1);
    let wrong = subsystem(NQN, &["/nowhere/disk", &second]);
    let refused = target.try_reload_as(&wrong, "").unwrap_err().to_string();
    assert!(refused.contains("namespace 1"), "{refused}");
    let half = subsystem(NQN, &[&second, "/nowhere/disk"]);
    target.try_reload_as(&half, "").unwrap_err();
    assert_eq!([1, 2].map(|nsid| uuid(&mut host, nsid)), before);
    assert_eq!(read(&mut host, 1), bytes(1, LENGTH));
    assert!(host.take_event().is_none());
    assert!(
        !is_free(&one) && !is_free(&two),
        "both are locked as before"
    );
    host.shutdown().unwrap();
    target.stop();
}

fn reload_while_held(target: &TestTarget, host: &mut Host, toml: &str) {
    let error = target.try_reload_beside(host, toml).unwrap_err();
    assert!(error.is_in_force(), "{error}");
}

#[test]
fn a_command_that_its_disk_holds_ends_after_another_took_its_place() {
    let clock = Clock::default();
    let [file, other] = ["held", "held-other"].map(|name| Scratch::in_memory(name, SIZE));
    let disk = SimulatedDisk::register(file.path(), &clock, 1).unwrap();
    let target = TestTarget::start(&subsystem(NQN, &[&file.export(4096)]));
    let mut host = listener(&target);
    let before = uuid(&mut host, 1);
    disk.hold(Operation::Write);
    let mut buffer = host.buffer(4096).unwrap();
    buffer.write(0, &bytes(1, 4096));
    let data = Data::whole(buffer);
    let held = host.submit(command::write(1, 0, 1), data).unwrap();
    wait_until("the write is at the disk", || {
        host.poll();
        disk.waiting(Operation::Write) == 1
    });
    reload_while_held(&target, &mut host, &subsystem(NQN, &[&other.export(4096)]));
    assert_eq!(changed(&mut host), [1]);
    assert_ne!(uuid(&mut host, 1), before);
    write(&mut host, 1, 2);
    assert!(host.take(held).is_none(), "the disk has it");
    disk.release(Operation::Write);
    let buffer = host.wait(held).into_buffer().unwrap();
    assert_eq!(
        read(&mut host, 1),
        bytes(2, LENGTH),
        "it is not in the new disk"
    );
    target.reload(&subsystem(NQN, &[&file.export(4096)]));
    assert_eq!(uuid(&mut host, 1), before);
    assert_eq!(read(&mut host, 1)[..4096], bytes(1, 4096));
    disk.hold(Operation::Write);
    let data = Data::whole(buffer);
    let held = host.submit(command::write(1, 1, 1), data).unwrap();
    wait_until("the write is at the disk", || {
        host.poll();
        disk.waiting(Operation::Write) == 1
    });
    reload_while_held(&target, &mut host, &subsystem(NQN, &[&file.export(512)]));
    assert_eq!(host.open_namespace(1).unwrap().blocks, SIZE / 512);
    assert_eq!(uuid(&mut host, 1), before);
    disk.release(Operation::Write);
    assert!(host.wait(held).answer.unwrap().cqe.status().is_success());
    assert_eq!(read(&mut host, 1)[4096..], bytes(1, 4096));
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn no_write_for_one_disk_reaches_another() {
    let [first, second] = ["meant", "not-meant"].map(|name| Scratch::new(name, SIZE));
    let target = TestTarget::start(&subsystem(NQN, &[&first.export(4096)]));
    let mut host = listener(&target);
    let send = |host: &mut Host, seed: u64| {
        let data = bytes(seed, 4096);
        let sent = host.run(command::write(1, 0, 1), Data::InCapsule(&data));
        sent.map(drop)
    };
    let until_refused = |host: &mut Host, seed: u64| {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match send(host, seed) {
                Ok(()) => assert!(Instant::now() < end, "the former disk is served for ever"),
                refused => return status(refused).code(),
            }
        }
    };
    send(&mut host, 1).unwrap();
    target.reload(&subsystem(NQN, &[&second.export(4096)]));
    let code = Status::INVALID_NAMESPACE_OR_FORMAT;
    assert_eq!(until_refused(&mut host, 2), code);
    assert_eq!(changed(&mut host), [1]);
    assert_eq!(host.active_namespaces().unwrap(), [] as [u32; 0]);
    assert_eq!(status(send(&mut host, 3)).code(), code);
    assert_eq!(changed(&mut host), [1]);
    assert_eq!(status(send(&mut host, 4)).code(), code);
    assert_eq!(host.active_namespaces().unwrap(), [1]);
    let on_disk = || std::fs::read(second.path()).unwrap();
    assert!(on_disk().iter().all(|byte| *byte == 0));
    send(&mut host, 5).unwrap();
    assert_eq!(on_disk()[..4096], bytes(5, 4096));
    assert!(host.take_event().is_none());
    let mut other = target.connect("b");
    send(&mut other, 6).unwrap();
    target.reload(&subsystem(NQN, &[&first.export(4096)]));
    target.reload(&subsystem(NQN, &[&second.export(4096)]));
    assert_eq!(until_refused(&mut other, 7), code);
    target.reload(&subsystem(NQN, &[]));
    assert_eq!(other.active_namespaces().unwrap(), [] as [u32; 0]);
    for host in [host, other] {
        host.shutdown().unwrap();
    }
    target.stop();
}

#[test]
fn io_goes_on_while_disks_change_places() {
    let disks = ["running-one", "running-two"].map(|name| Scratch::new(name, SIZE));
    let [one, two] = disks.each_ref().map(|disk| disk.export(4096));
    let target = TestTarget::start(&subsystem(NQN, &[&one, &two]));
    let mut host = target.connect("running");
    write(&mut host, 1, 1);
    write(&mut host, 2, 2);
    let known = [bytes(1, 4096), bytes(2, 4096)];
    let mut buffers = host.buffer(16 * 4096).unwrap().split(4096);
    let mut answered = 0;
    for round in 0..20 {
        for _ in 0..2 {
            host.active_namespaces().unwrap();
        }
        let swapped = round % 2;
        let exports = [[&two, &one], [&one, &two]][swapped];
        let toml = subsystem(NQN, &exports.map(|one| &**one));
        std::thread::scope(|scope| {
            let reload = scope.spawn(|| target.reload(&toml));
            while !reload.is_finished() {
                let mut flying = Vec::new();
                for (index, mut buffer) in buffers.drain(..).enumerate() {
                    buffer.write(0, &[0xee; 4096]);
                    let read = command::read(1 + index as u32 % 2, 0, 1);
                    let data = Data::whole(buffer);
                    flying.push((host.submit(read, data).unwrap(), index));
                }
                for (ticket, index) in flying {
                    let Ended { answer, buffer } = host.wait(ticket);
                    let (ended, buffer) = (answer.unwrap().cqe.status(), buffer.unwrap());
                    if ended.is_success() {
                        let meant = (index + swapped) % 2;
                        assert_eq!(buffer.bytes(0, 4096), known[meant], "{round} {index}");
                        answered += 1;
                    } else {
                        assert_eq!(ended.code(), Status::INVALID_NAMESPACE_OR_FORMAT);
                    }
                    buffers.push(buffer);
                }
            }
            reload.join().unwrap();
        });
    }
    assert!(answered > 0);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn what_hosts_protect_stays_with_the_disk_and_does_not_go_to_another() {
    let [one, two] = ["protected-one", "protected-two"].map(|name| Scratch::new(name, SIZE));
    let toml = |disk: &Scratch, more: &str| {
        let export = format!("{} write_protection = true\n{more}", disk.path().display());
        subsystem(NQN, &[&export])
    };
    let target = TestTarget::start(&toml(&one, ""));
    let mut host = target.connect("protects");
    let fid = Feature::NAMESPACE_WRITE_PROTECTION.0;
    let state = |host: &mut Host| {
        let get = command::get_features(fid, Select::CURRENT, 1, 0);
        host.run_admin(get, Data::None).unwrap().cqe.dw0.get()
    };
    let is_refused = |host: &mut Host| {
        let zeroes = command::write_zeroes(1, 0, 1, false);
        host.run(zeroes, Data::None).is_err()
    };
    let wps = WriteProtectionState::PROTECTED.0;
    let set = command::set_features(fid, 1, u32::from(wps));
    host.run_admin(set, Data::None).unwrap();
    target.reload(&toml(&one, "block_size = 4096"));
    assert_eq!(state(&mut host), u32::from(wps));
    assert!(is_refused(&mut host));
    target.reload(&toml(&two, "block_size = 4096"));
    uuid(&mut host, 1);
    assert_eq!(state(&mut host), 0);
    assert!(!is_refused(&mut host));
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn limits_hosts_and_ana_groups_of_the_new_namespace_count() {
    let target = TestTarget::start(&subsystem(NQN, &["mem:1MiB"]));
    let mut host = target.connect("a");
    let hidden = "mem:2MiB allowed_hosts = [\"nqn.2026-01.org.example:host-b\"]\nana_group = 2";
    let hidden = hidden.replace("allowed_hosts", "hosts");
    target.reload(&subsystem(NQN, &[&hidden]));
    assert_eq!(host.active_namespaces().unwrap(), [] as [u32; 0]);
    let mut other = target.connect("b");
    assert_eq!(other.open_namespace(1).unwrap().blocks, (2 << 20) / 512);
    assert_eq!(other.namespace(1).unwrap().anagrpid.get(), 2);
    host.shutdown().unwrap();
    other.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_disk_that_goes_comes_again_in_the_next_reload() {
    let disk = Scratch::new("back", SIZE);
    let shown = subsystem(NQN, &[&disk.export(4096)]);
    let target = TestTarget::start(&shown);
    let mut host = target.connect("a");
    let data = bytes(1, 4096);
    for round in 0..20 {
        let _ = host.run(command::write(1, 0, 1), Data::InCapsule(&data));
        let hidden = match round % 2 {
            0 => subsystem(NQN, &[]),
            _ => subsystem("nqn.2026-01.org.example:another", &["mem:1MiB"]),
        };
        target.reload(&hidden);
        target.reload(&shown);
        if round % 2 == 1 {
            host = target.connect("a");
        }
    }
    assert!(!is_free(&disk));
    target.stop();
    wait_until("it is closed", || is_free(&disk));
}
