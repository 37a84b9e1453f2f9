use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, HostOptions, command};
use cairn_roce::Soft;
use cairn_sim::Random;
use cairn_tests::faulty_disk::{Fault, FaultyDisk, Nature, Op, Rule};
use cairn_tests::harness::{METRICS, NQN, Scratch, TestTarget, subsystem};

use crate::freezer::Freezer;
use crate::until;

const BLOCK: usize = 4096;
const BOUND: Duration = Duration::from_secs(8);

#[derive(Debug, Clone, Copy)]
enum Transfer {
    Fetched,
    InCapsule,
}

fn flood(target: &TestTarget, name: &str, queues: u16, transfer: Transfer) -> Host {
    let options = HostOptions {
        io_queues: queues,
        ..target.options(name)
    };
    let mut host = target.try_connect(options).unwrap();
    for queue in host.io_queues() {
        for place in 0..100 {
            let data = match transfer {
                Transfer::Fetched => Data::whole(host.buffer(BLOCK).unwrap()),
                Transfer::InCapsule => Data::InCapsule(&[7; BLOCK]),
            };
            let write = command::write(1, place, 1);
            host.submit_on(queue, write, data).unwrap();
        }
        for _ in 0..12 {
            host.submit_on(queue, command::flush(1), Data::None)
                .unwrap();
        }
    }
    let end = Instant::now() + Duration::from_millis(500);
    while Instant::now() < end {
        host.poll();
    }
    host
}

fn check_bystander(host: &mut Host, random: &mut Random) -> Duration {
    let mut buffer = host.buffer(BLOCK).unwrap();
    let mut slowest = Duration::ZERO;
    for _ in 0..16 {
        let place = random.below(64);
        let bytes = random.bytes(BLOCK);
        buffer.write(0, &bytes);
        let commands = [
            (command::write(2, place, 1), true),
            (command::flush(2), false),
            (command::read(2, place, 1), true),
        ];
        for (sqe, has_data) in commands {
            let data = match has_data {
                true => Data::whole(&mut buffer),
                false => Data::None,
            };
            let before = Instant::now();
            host.run(sqe, data).unwrap();
            slowest = slowest.max(before.elapsed());
        }
        assert_eq!(buffer.bytes(0, BLOCK), bytes);
    }
    slowest
}

trait Hanging {
    fn export(&self) -> String;
    fn hang(&self);
    fn wait(&self);
    fn heal(&self);
}

impl Hanging for FaultyDisk {
    fn export(&self) -> String {
        FaultyDisk::export(self, 4096)
    }

    fn hang(&self) {
        self.begin(Rule::new(Op::Write, Fault::Hold));
        self.begin(Rule::new(Op::Sync, Fault::Hold));
    }

    fn wait(&self) {
        self.wait_until_waiting(Op::Write, 1);
    }

    fn heal(&self) {
        FaultyDisk::heal(self);
        until("all that was held to end", || {
            self.waiting(Op::Write) + self.waiting(Op::Sync) == 0
        });
    }
}

impl Hanging for Freezer {
    fn export(&self) -> String {
        self.disk.clone()
    }

    fn hang(&self) {
        self.freeze();
    }

    fn wait(&self) {}

    fn heal(&self) {
        self.thaw();
    }
}

fn one_disk_hangs(disk: &impl Hanging, name: &str, transfer: Transfer) {
    let healthy = Scratch::new(name, 1 << 20);
    let toml = subsystem(NQN, &[&disk.export(), &healthy.export(4096)]);
    let target = TestTarget::start_on_soft(Soft::default(), &toml);
    let mut random = Random::new(9);
    let bystander = HostOptions {
        kato_ms: 4000,
        timeout: BOUND,
        ..target.options("bystander")
    };
    let mut bystander = target.try_connect(bystander).unwrap();
    check_bystander(&mut bystander, &mut random);
    disk.hang();
    let greedy: Vec<_> = ["b", "c"]
        .map(|name| flood(&target, name, 6, transfer))
        .into();
    disk.wait();
    check_bystander(&mut bystander, &mut random);
    let before = Instant::now();
    bystander
        .run_admin(command::keep_alive(), Data::None)
        .unwrap();
    let late = target.connect("late");
    assert!(before.elapsed() < BOUND, "{:?}", before.elapsed());
    // The hosts are dropped without a shutdown, which would flush all namespaces and hang.
    drop(late);
    drop(greedy);
    for _ in 0..3 {
        drop(flood(&target, "d", 1, transfer));
        check_bystander(&mut bystander, &mut random);
    }
    disk.heal();
    check_bystander(&mut bystander, &mut random);
    bystander.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_disk_that_hangs_stalls_no_other_disks_hosts() {
    if let Some(disk) = FaultyDisk::mount_as(Nature::Disk, "hung", 1 << 20) {
        one_disk_hangs(&disk, "healthy-beside-hung", Transfer::Fetched);
    }
}

#[test]
fn in_capsule_writes_to_a_disk_that_hangs_leave_others_their_receives() {
    if let Some(disk) = FaultyDisk::mount_as(Nature::Disk, "capsules", 1 << 20) {
        one_disk_hangs(&disk, "healthy-beside-capsules", Transfer::InCapsule);
    }
}

#[test]
fn a_file_system_that_hangs_stalls_no_other_disks_hosts() {
    if let Some(disk) = FaultyDisk::mount_as(Nature::FileSystem, "stuck", 1 << 20) {
        one_disk_hangs(&disk, "healthy-beside-stuck", Transfer::Fetched);
    }
}

#[test]
fn a_frozen_file_system_stalls_no_other_disks_hosts() {
    if let Some(disk) = Freezer::mount("frozen") {
        one_disk_hangs(&disk, "healthy-beside-frozen", Transfer::Fetched);
    }
}

struct Layered {
    system: Freezer,
    disk: FaultyDisk,
}

impl Drop for Layered {
    fn drop(&mut self) {
        self.disk.heal();
    }
}

#[test]
fn a_disk_that_hangs_under_a_file_system_stalls_no_other_disks_hosts() {
    let Some(disk) = FaultyDisk::mount("layered", 32 << 20) else {
        return;
    };
    let Some(system) = Freezer::mount_on(disk.path()) else {
        return;
    };
    let layered = Layered { system, disk };
    let healthy = Scratch::new("healthy-beside-layered", 1 << 20);
    let toml = subsystem(NQN, &[&layered.system.disk, &healthy.export(4096)]);
    let target = TestTarget::start_on_soft(Soft::default(), &toml);
    let mut random = Random::new(5);
    let mut bystander = target.connect("bystander");
    check_bystander(&mut bystander, &mut random);
    let mut host = target.connect("a");
    layered.system.sync();
    layered.disk.begin(Rule::new(Op::Write, Fault::Hold));
    layered.disk.begin(Rule::new(Op::Sync, Fault::Hold));
    let (began, mut slowest) = (Instant::now(), Duration::ZERO);
    let mut written = Vec::new();
    while began.elapsed() < Duration::from_secs(8) {
        if written.len() < 100 {
            let data = Data::whole(host.buffer(BLOCK).unwrap());
            let write = command::write(1, written.len() as u64, 1);
            written.push(host.submit(write, data).unwrap());
        }
        host.poll();
        slowest = slowest.max(check_bystander(&mut bystander, &mut random));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    assert!(layered.disk.waiting(Op::Write) > 0, "it hangs");
    layered.disk.heal();
    for ticket in written {
        assert!(host.wait(ticket).answer.unwrap().cqe.status().is_success());
    }
    bystander.shutdown().unwrap();
    host.shutdown().unwrap();
    target.stop();
}

fn oldest(target: &TestTarget) -> [f64; 2] {
    let page = target.scrape();
    ["1", "2"].map(|nsid| {
        let labels = [("nsid", nsid)];
        let age = page.get("cairn_namespace_oldest_seconds", &labels);
        age.expect("each namespace has an age")
    })
}

#[test]
fn the_age_of_the_oldest_command_at_a_hung_disk_is_shown() {
    let Some(disk) = FaultyDisk::mount("aging", 1 << 20) else {
        return;
    };
    let healthy = Scratch::new("healthy-beside-aging", 1 << 20);
    let toml = METRICS.to_owned() + &subsystem(NQN, &[&disk.export(4096), &healthy.export(4096)]);
    let target = TestTarget::start_on_soft(Soft::default(), &toml);
    let mut host = target.connect("a");
    check_bystander(&mut host, &mut Random::new(3));
    until("a page of before", || oldest(&target) == [0.0, 0.0]);
    disk.begin(Rule::new(Op::Write, Fault::Hold));
    let data = Data::whole(host.buffer(BLOCK).unwrap());
    let before = Instant::now();
    let write = host.submit(command::write(1, 0, 1), data).unwrap();
    let mut last = 0.0;
    for age in [0.5, 1.0, 1.5] {
        until("a greater age", || {
            host.poll();
            let [hung, other] = oldest(&target);
            assert!(hung >= last, "{hung} after {last}");
            assert_eq!(other, 0.0, "the other disk has nothing");
            last = hung;
            hung >= age
        });
        assert!(last <= before.elapsed().as_secs_f64(), "{last}");
    }
    disk.heal();
    until("no age", || {
        host.poll();
        oldest(&target) == [0.0, 0.0]
    });
    assert!(host.wait(write).answer.unwrap().cqe.status().is_success());
    host.shutdown().unwrap();
    target.stop();
}
