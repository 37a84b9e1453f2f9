use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, HostError, HostOptions, Notice, Recovery, Response, command};
use cairn_roce::Soft;
use cairn_tests::harness::{NQN, Scratch, TestTarget, namespace, subsystem};
use cairn_tests::process::TargetProcess;
use nvme_proto::wire::Status;
use nvme_proto::wire::feature::{AsyncEventConfig, Feature, Select, WriteProtectionState as State};
use nvme_proto::wire::identify::IdentifyNamespace;

use crate::verified::{Disk, Transfer, bytes, next_notice, status};

fn toml(allowed: bool) -> String {
    let first = format!("mem:1MiB write_protection = {allowed}");
    subsystem(NQN, &[]) + &namespace(1, &first) + &namespace(2, "mem:1MiB")
}

fn connect(target: &TestTarget, name: &str) -> Host {
    let mut options = target.options(name);
    options.events = AsyncEventConfig(0).with_namespace_attribute(true);
    target.try_connect(options).unwrap()
}

fn protect(host: &mut Host, nsid: u32, state: State) -> Result<Response, HostError> {
    let fid = Feature::NAMESPACE_WRITE_PROTECTION.0;
    let sqe = command::set_features(fid, nsid, u32::from(state.0));
    host.run_admin(sqe, Data::None)
}

fn reported(host: &mut Host, nsid: u32) -> (u32, bool) {
    let fid = Feature::NAMESPACE_WRITE_PROTECTION.0;
    let get = command::get_features(fid, Select::CURRENT, nsid, 0);
    let state = host.run_admin(get, Data::None).unwrap().cqe.dw0.get();
    let nsattr = host.namespace(nsid).unwrap().nsattr;
    (
        state,
        nsattr & IdentifyNamespace::NSATTR_WRITE_PROTECTED != 0,
    )
}

fn notice(host: &mut Host) {
    assert_eq!(next_notice(host), Notice::NamespacesChanged);
    assert_eq!(host.changed_namespaces().unwrap(), Some(vec![1]));
}

fn can_be_read_alone(host: &mut Host) {
    let [mut one, mut two, mut three] = [(); 3].map(|()| host.buffer(4096).unwrap());
    for (sqe, data) in [
        (command::write(1, 0, 8), Data::start_of(&mut one, 4096)),
        (command::write(1, 0, 1), Data::InCapsule(&[0; 512])),
        (command::write_zeroes(1, 0, 1, false), Data::None),
        (command::deallocate(1, 1), Data::start_of(&mut two, 16)),
        (command::copy(1, 1, 1), Data::start_of(&mut three, 32)),
    ] {
        let refused = status(host.run(sqe, data));
        assert_eq!(refused.code(), Status::NAMESPACE_WRITE_PROTECTED, "{sqe:?}");
        assert!(refused.dnr());
    }
    host.run(command::flush(1), Data::None).unwrap();
    Disk::new(host, 1).read(0, 4096, Transfer::Keyed);
    Disk::new(host, 2).write(0, &bytes(3, 4096), Transfer::Keyed);
}

#[test]
fn a_host_protects_a_namespace_and_another_lifts_that() {
    let target = TestTarget::start(&toml(true));
    let (mut a, mut b) = (connect(&target, "a"), connect(&target, "b"));
    assert_eq!(a.identity().nwpc, 0b011);
    Disk::new(&mut a, 1).write(0, &bytes(1, 4096), Transfer::Keyed);
    protect(&mut a, 1, State::PROTECTED).unwrap();
    for host in [&mut a, &mut b] {
        notice(host);
        assert_eq!(reported(host, 1), (1, true));
        can_be_read_alone(host);
        assert_eq!(
            Disk::new(host, 1).read(0, 4096, Transfer::Keyed),
            bytes(1, 4096)
        );
    }
    a.shutdown().unwrap();
    let mut a = connect(&target, "a");
    can_be_read_alone(&mut a);
    protect(&mut b, 1, State::NONE).unwrap();
    for host in [&mut a, &mut b] {
        notice(host);
        assert_eq!(reported(host, 1), (0, false));
        Disk::new(host, 1).write(0, &bytes(2, 4096), Transfer::InCapsule);
    }
    for host in [a, b] {
        host.shutdown().unwrap();
    }
    target.stop();
}

#[test]
fn a_protection_until_the_target_ends_is_lifted_by_the_administrator_alone() {
    let target = TestTarget::start(&toml(true));
    let mut host = connect(&target, "a");
    protect(&mut host, 1, State::UNTIL_POWER_CYCLE).unwrap();
    notice(&mut host);
    let lifted = status(protect(&mut host, 1, State::NONE));
    assert_eq!(lifted.code(), Status::FEATURE_NOT_CHANGEABLE);
    can_be_read_alone(&mut host);
    target.reload(&(toml(true) + &namespace(3, "mem:1MiB")));
    assert_eq!(next_notice(&mut host), Notice::NamespacesChanged);
    host.changed_namespaces().unwrap();
    can_be_read_alone(&mut host);
    target.reload(&(toml(false) + &namespace(3, "mem:1MiB")));
    notice(&mut host);
    assert_eq!(reported(&mut host, 1), (0, false));
    Disk::new(&mut host, 1).write(0, &bytes(2, 4096), Transfer::Keyed);
    for (nsid, state) in [
        (1, State::PROTECTED),
        (2, State::PROTECTED),
        (2, State::UNTIL_POWER_CYCLE),
    ] {
        let refused = status(protect(&mut host, nsid, state));
        assert_eq!(refused.code(), Status::FEATURE_NOT_CHANGEABLE);
    }
    let refused = status(protect(&mut host, 1, State::PERMANENT));
    assert_eq!(refused.code(), Status::INVALID_FIELD);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_write_that_is_sent_after_protection_is_complete_is_refused_on_every_queue() {
    let target = TestTarget::start(&format!("[target]\nreactors = 2\n{}", toml(true)));
    let states = || [State::PROTECTED, State::NONE].repeat(20).into_iter();
    let (complete, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut host = target.connect("a");
            for (before, state) in states().enumerate() {
                protect(&mut host, 1, state).unwrap();
                complete.store(before + 1, Ordering::SeqCst);
                let deadline = Instant::now() + Duration::from_secs(30);
                while seen.load(Ordering::SeqCst) == before {
                    assert!(Instant::now() < deadline, "the writer has stopped");
                    thread::yield_now();
                }
            }
            host.shutdown().unwrap();
        });
        let mut options = target.options("writer");
        options.io_queues = 4;
        let mut writer = target.try_connect(options).unwrap();
        assert_eq!(writer.io_queues().len(), 4);
        for (before, state) in states().enumerate() {
            loop {
                let is_complete = complete.load(Ordering::SeqCst) > before;
                for queue in writer.io_queues() {
                    let data = Data::InCapsule(&[7; 512]);
                    let ended = writer.run_on(queue, command::write(1, 0, 1), data);
                    let is_protected = state == State::PROTECTED;
                    assert!(!is_complete || ended.is_err() == is_protected, "{queue:?}");
                }
                if is_complete {
                    break;
                }
            }
            seen.store(before + 1, Ordering::SeqCst);
        }
        writer.shutdown().unwrap();
    });
    target.stop();
}

#[test]
fn a_protection_outlasts_a_target_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk.protected");
    let disk = Scratch::new("kept-disk", 1 << 20);
    let more = format!(
        "write_protection = true\nwrite_protection_file = \"{}\"",
        file.display()
    );
    let export = format!("{}\n{more}", disk.export(512));
    let mut target = TargetProcess::start_alone(&namespace(1, &export));
    let soft = Soft::default();
    let connect = |target: &TargetProcess| {
        let options = HostOptions {
            recovery: Recovery::NONE,
            kato_ms: 0,
            ..target.options("a")
        };
        Host::connect(&soft, options).unwrap()
    };
    let write = |host: &mut Host| {
        let data = Data::InCapsule(&[7; 512]);
        host.run(command::write(1, 0, 1), data).map(drop)
    };
    let mut host = connect(&target);
    assert_eq!(host.identity().nwpc, 0b111);
    for (state, then) in [
        (State::PROTECTED, State::PROTECTED),
        (State::NONE, State::NONE),
        (State::UNTIL_POWER_CYCLE, State::NONE),
        (State::PROTECTED, State::PROTECTED),
        (State::PERMANENT, State::PERMANENT),
    ] {
        protect(&mut host, 1, state).unwrap();
        target.kill();
        drop(host);
        target.restart();
        host = connect(&target);
        let is_protected = then != State::NONE;
        assert_eq!(reported(&mut host, 1), (then.0.into(), is_protected));
        assert_eq!(write(&mut host).is_err(), is_protected, "{state:?}");
    }
    for state in [State::NONE, State::PROTECTED, State::UNTIL_POWER_CYCLE] {
        let refused = status(protect(&mut host, 1, state));
        assert_eq!(refused.code(), Status::FEATURE_NOT_CHANGEABLE);
    }
    target.kill();
    drop(host);
    std::fs::remove_file(&file).unwrap();
    target.restart();
    let mut host = connect(&target);
    write(&mut host).unwrap();
    drop(folder);
    let refused = status(protect(&mut host, 1, State::PROTECTED));
    assert_eq!(refused.code(), Status::WRITE_FAULT);
    assert_eq!(reported(&mut host, 1), (0, false));
    write(&mut host).unwrap();
    host.shutdown().unwrap();
}
