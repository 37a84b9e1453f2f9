use std::fs::{self, File};
use std::io::BufRead;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_disk::{Operation, SimulatedDisk};
use cairn_initiator::{Data, Host, HostError, IoQueue, command};
use cairn_tests::harness::{NQN, Scratch, TestTarget, namespace, subsystem};
use nvme_proto::wire::Status;
use nvme_proto::wire::log::{LogPage, SmartLog};
use nvme_proto::wire::property::{Cc, Csts, offset};
use rustix::process::{Pid, Signal, kill_process};

use crate::log_pages::page;
use crate::verified::{Disk, Transfer, bytes, wait_until};

const SIZE: u64 = 1 << 20;

fn identity(toml: &str) -> [u8; 16] {
    let target = TestTarget::start(toml);
    let mut host = target.connect("a");
    let uuid = host.open_namespace(1).unwrap().uuid;
    host.shutdown().unwrap();
    target.stop();
    uuid.expect("a namespace has a UUID")
}

fn on_disk(name: &str) -> Scratch {
    Scratch::new(name, SIZE)
}

#[test]
fn another_disk_behind_an_nsid_is_another_namespace() {
    let (disk, other) = (on_disk("identity"), on_disk("identity-other"));
    let of = |disk: &Scratch| identity(&subsystem(NQN, &[&disk.export(4096)]));
    let known = of(&disk);
    assert_eq!(of(&disk), known, "the same disk after a restart");
    assert_ne!(of(&other), known);
    let elsewhere = subsystem("nqn.2026-01.org.example:else", &[]) + &namespace(7, "null:1MiB");
    let elsewhere = elsewhere + &subsystem(NQN, &[&disk.export(512)]);
    assert_eq!(identity(&elsewhere), known);
    fs::rename(other.path(), disk.path()).unwrap();
    assert_ne!(of(&disk), known);
}

#[test]
fn what_does_not_outlive_the_target_has_another_name_each_time() {
    for export in ["mem:1MiB", "null:1MiB"] {
        let toml = subsystem(NQN, &[export]);
        assert_ne!(identity(&toml), identity(&toml), "{export}");
        let named = toml + "uuid = \"12345678-9abc-4def-8123-456789abcdef\"\n";
        let uuid = identity(&named);
        assert_eq!(uuid[..4], [0x12, 0x34, 0x56, 0x78]);
        assert_eq!(identity(&named), uuid);
    }
}

#[test]
fn one_disk_is_not_shown_as_two() {
    let disk = on_disk("twice");
    let export = format!("{} read_only = true", disk.path().display());
    let target = TestTarget::start(&subsystem(NQN, &[&export]));
    let twice = subsystem(NQN, &[&export, &export]);
    let refused = target.try_reload_as(&twice, "").unwrap_err().to_string();
    assert!(
        refused.contains("namespace 2") && refused.contains("set uuid"),
        "{refused}"
    );
    target.reload(&(twice + "uuid = \"12345678-9abc-4def-8123-456789abcdef\"\n"));
    let both = subsystem(NQN, &[&export]) + &subsystem("nqn.2026-01.org.example:else", &[&export]);
    target.reload(&both);
    target.stop();
}

#[test]
fn a_disk_that_is_cut_short_fails_until_it_is_added_again() {
    let disk = on_disk("cut");
    let toml = subsystem(NQN, &[&disk.export(4096), "mem:1MiB"]);
    let target = TestTarget::start(&toml);
    let mut host = target.connect("a");
    Disk::new(&mut host, 1).write(0, &bytes(1, SIZE as usize), Transfer::Keyed);

    let set_size = |size: u64| {
        let file = File::options().write(true).open(disk.path()).unwrap();
        file.set_len(size).unwrap();
    };
    set_size(SIZE / 2);
    assert_eq!(write(&mut host, 255), Err(Status::WRITE_FAULT));
    assert_eq!(fs::metadata(disk.path()).unwrap().len(), SIZE / 2);
    assert_eq!(read(&mut host, 200), Err(Status::UNRECOVERED_READ_ERROR));
    assert_eq!(read(&mut host, 0), Err(Status::UNRECOVERED_READ_ERROR));
    assert_eq!(flush(&mut host, 1), Err(Status::WRITE_FAULT));
    assert_eq!(warning(&mut host), 1 << 2, "SMART says so");
    assert_eq!(flush(&mut host, 2), Ok(()));

    target.reload(&toml);
    assert_eq!(host.open_namespace(1).unwrap().blocks, 256);
    assert_eq!(read(&mut host, 0), Err(Status::UNRECOVERED_READ_ERROR));
    target.reload(&subsystem(NQN, &[]));
    target.reload(&toml);
    assert_eq!(host.open_namespace(1).unwrap().blocks, 128);
    let mut cut = Disk::new(&mut host, 1);
    assert!(
        cut.read(0, SIZE as usize / 2, Transfer::Keyed)
            == bytes(1, SIZE as usize)[..SIZE as usize / 2]
    );
    assert_eq!(flush(&mut host, 1), Ok(()));
    wait_until("SMART is well", || warning(&mut host) == 0);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_shutdown_says_so_if_a_disk_could_not_be_flushed() {
    let disk = on_disk("shutdown");
    let target = TestTarget::with_namespaces(&[&disk.export(4096), "mem:1MiB"]);
    let mut host = target.connect("a");
    write(&mut host, 0).unwrap();
    File::create(disk.path()).unwrap();
    host.close_queue(IoQueue::FIRST).unwrap();
    let cc = Cc(host.property(offset::CC).unwrap()).with_shn(Cc::SHN_NORMAL);
    host.set_property(offset::CC, cc.0).unwrap();
    wait_until("it is reported", || {
        Csts(host.property(offset::CSTS).unwrap()).cfs()
    });
    host.disconnect().unwrap();
    target.stop();
}

#[test]
fn a_flush_that_hangs_does_not_keep_the_target() {
    let file = Scratch::in_memory("hung-flush", SIZE);
    let disk = SimulatedDisk::register(file.path(), &Clock::default(), 1).unwrap();
    let target = TestTarget::with_namespaces(&[&file.export(4096)]);
    let mut host = target.connect("a");
    write(&mut host, 0).unwrap();
    disk.hold(Operation::Flush);
    host.close_queue(IoQueue::FIRST).unwrap();
    let cc = Cc(host.property(offset::CC).unwrap()).with_shn(Cc::SHN_NORMAL);
    host.set_property(offset::CC, cc.0).unwrap();
    let started = Instant::now();
    let error = target.try_stop().unwrap_err();
    assert!(error.contains("1 flushes have not ended"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(70));
    disk.release(Operation::Flush);
}

#[test]
fn more_disks_than_a_thousand_work() {
    let disk = Scratch::in_memory("many", SIZE);
    let export = format!("{} read_only = true", disk.path().display());
    let mut toml = String::new();
    for (part, count) in [(1, 1024), (2, 40)] {
        toml += &subsystem(&format!("{NQN}-{part}"), &[]);
        for nsid in 1..=count {
            toml += &namespace(nsid, &export);
            toml += &format!("uuid = \"00000000-0000-4000-800{part}-{nsid:012}\"\n");
        }
    }
    let target = TestTarget::start(&toml);
    for (part, last) in [(1, 1024), (2, 40)] {
        let mut options = target.options("a");
        options.subnqn = cairn_tests::harness::nqn(&format!("{NQN}-{part}"));
        let mut host = target.try_connect(options).unwrap();
        let mut buffer = host.buffer(512).unwrap();
        let read = command::read(last, 0, 1);
        host.run(read, Data::start_of(&mut buffer, 512)).unwrap();
        host.shutdown().unwrap();
    }
    target.stop();
}

fn write(host: &mut Host, block: u64) -> Result<(), Status> {
    let mut buffer = host.buffer(4096).unwrap();
    let data = Data::start_of(&mut buffer, 4096);
    status(host.run(command::write(1, block, 1), data))
}

fn read(host: &mut Host, block: u64) -> Result<(), Status> {
    let mut buffer = host.buffer(4096).unwrap();
    let data = Data::start_of(&mut buffer, 4096);
    status(host.run(command::read(1, block, 1), data))
}

fn flush(host: &mut Host, nsid: u32) -> Result<(), Status> {
    status(host.run(command::flush(nsid), Data::None))
}

fn status<T>(result: Result<T, HostError>) -> Result<(), Status> {
    match result {
        Ok(_) => Ok(()),
        Err(HostError::Status { status, .. }) => Err(status.code()),
        Err(other) => panic!("{other}"),
    }
}

fn warning(host: &mut Host) -> u8 {
    let smart: SmartLog = page(host, LogPage::SMART);
    smart.critical_warning
}

#[test]
fn a_disk_behind_the_page_cache_is_not_shared() {
    let folder = tempfile::tempdir().unwrap();
    let mut probe = std::process::Command::new("unshare");
    probe.args(["--mount", "mount", "-t", "ramfs", "none"]);
    if !cairn_skips::can(probe.arg(folder.path())) {
        return;
    }
    let script = format!(
        "mount -t ramfs none {0} && truncate -s 1M {0}/disk && exec \"$1\" serve --config {0}.toml",
        folder.path().display()
    );
    let toml = folder.path().with_extension("toml");
    for (shared, refused) in [("true", true), ("false", false)] {
        let export = format!("{}/disk shared = {shared}", folder.path().display());
        let text = format!(
            "[target]\nreactors = 1\n[[listener]]\naddress = \"127.0.0.1\"\nprovider = \"verbs\"\n{}",
            subsystem(NQN, &[&export])
        );
        fs::write(&toml, text).unwrap();
        let mut target = std::process::Command::new("timeout")
            .args(["60", "unshare", "--mount", "sh", "-c", &script, "sh"])
            .arg(env!("CARGO_BIN_EXE_cairn-target-process"))
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = std::io::BufReader::new(target.stderr.take().unwrap());
        let mut said = String::new();
        for line in stderr.lines() {
            said += &(line.unwrap() + "\n");
            if said.contains("cannot be shared") || said.contains("namespace exported") {
                break;
            }
        }
        let timeout = Pid::from_child(&target);
        kill_process(timeout, Signal::TERM).unwrap();
        target.wait().unwrap();
        assert_eq!(said.contains("cannot be shared"), refused, "{said}");
        assert_eq!(said.contains("namespace exported"), !refused, "{said}");
    }
    let _ = fs::remove_file(&toml);
}

#[test]
fn a_failed_flush_fails_for_all_hosts_until_the_disk_flushes_again() {
    let disk = Scratch::in_memory("flush", SIZE);
    let simulated = SimulatedDisk::register(disk.path(), &Clock::default(), 1).unwrap();
    let toml = format!(
        "[target]\nreactors = 2\n{}",
        subsystem(NQN, &[&disk.export(4096), "mem:1MiB"])
    );
    let target = TestTarget::start(&toml);
    let (mut one, mut other) = (target.connect("one"), target.connect("other"));
    write(&mut one, 0).unwrap();
    simulated.fail(Operation::Flush, libc::EIO, 1);
    assert_eq!(flush(&mut one, 1), Err(Status::WRITE_FAULT));
    for host in [&mut one, &mut other] {
        for _ in 0..2 {
            assert_eq!(flush(host, 1), Err(Status::WRITE_FAULT));
        }
        assert_eq!(warning(host), 1 << 2, "SMART says so");
        write(host, 1).unwrap();
        read(host, 0).unwrap();
        assert_eq!(flush(host, 2), Ok(()));
    }
    simulated.fail(Operation::Flush, libc::EIO, 1);
    target.reload(&toml);
    assert_eq!(flush(&mut other, 1), Err(Status::WRITE_FAULT));
    wait_until("it flushes again", || {
        target.reload(&toml);
        flush(&mut other, 1).is_ok()
    });
    assert_eq!(flush(&mut one, 1), Ok(()));
    wait_until("SMART is well", || warning(&mut one) == 0);
    one.shutdown().unwrap();
    other.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_failed_durable_write_fails_the_next_flush() {
    let disk = Scratch::in_memory("durable", SIZE);
    let simulated = SimulatedDisk::register(disk.path(), &Clock::default(), 1).unwrap();
    let target = TestTarget::with_namespaces(&[&disk.export(4096)]);
    let mut host = target.connect("a");
    write(&mut host, 0).unwrap();
    simulated.fail(Operation::Write, libc::EIO, 1);
    let mut buffer = host.buffer(4096).unwrap();
    let durable = command::with_fua(command::write(1, 1, 1));
    assert_eq!(
        status(host.run(durable, Data::whole(&mut buffer))),
        Err(Status::WRITE_FAULT)
    );
    assert_eq!(flush(&mut host, 1), Err(Status::WRITE_FAULT));
    assert_eq!(
        status(host.run(durable, Data::whole(&mut buffer))),
        Err(Status::WRITE_FAULT)
    );
    let shutdown = host.shutdown();
    assert!(
        matches!(shutdown, Err(HostError::NotShutDown(_))),
        "{shutdown:?}"
    );
    target.stop();
}
