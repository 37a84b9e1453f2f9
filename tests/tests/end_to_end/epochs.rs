//! After a reload, the new configuration must apply to all commands, even to commands that wait for
//! a rate limit or for the disk.

use std::fs::File;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_disk::{Operation, SimulatedDisk};
use cairn_initiator::{Data, Host, Ticket, command};
use cairn_target::ReloadError;
use cairn_tests::harness::{NQN, Scratch, TestTarget, namespace, subsystem};
use nvme_proto::wire::Status;

const BLOCK: usize = 4096;
const DISK_BYTES: u64 = 1 << 20;
const LAST: u64 = DISK_BYTES / BLOCK as u64 - 1;
const COMMANDS: usize = 40;
const LIMIT: &str = "limits = { iops = 20 }";
const PATIENCE: Duration = Duration::from_secs(30);

fn write(host: &mut Host, lba: u64) -> Ticket {
    let data = Data::InCapsule(&[7; BLOCK]);
    host.submit(command::write(1, lba, 1), data).unwrap()
}

fn read(host: &mut Host, lba: u64) -> Status {
    let data = Data::whole(host.buffer(BLOCK).unwrap());
    let ticket = host.submit(command::read(1, lba, 1), data).unwrap();
    host.wait(ticket).answer.unwrap().cqe.status()
}

fn until_the_first_ends(host: &mut Host, tickets: &mut Vec<Ticket>) {
    let first = tickets.remove(0);
    assert_eq!(
        host.wait(first).answer.unwrap().cqe.status(),
        Status::SUCCESS
    );
}

struct Limited {
    file: Scratch,
    target: TestTarget,
    host: Host,
}

impl Limited {
    fn new(name: &str) -> Self {
        let file = Scratch::written(name, DISK_BYTES);
        let toml = Self::toml(&file, "");
        let target = TestTarget::start(&toml);
        let host = target.connect("host");
        Self { file, target, host }
    }

    fn toml(file: &Scratch, more: &str) -> String {
        let export = format!("{}\n{LIMIT}\n{more}", file.export(BLOCK as u32));
        subsystem(NQN, &[&export, "mem:1MiB"])
    }

    fn statuses(&mut self, tickets: Vec<Ticket>) -> Vec<Status> {
        let statuses = tickets.into_iter();
        let status = |ticket| self.host.wait(ticket).answer.unwrap().cqe.status().code();
        statuses.map(status).collect()
    }

    fn shrink(&self) {
        let file = File::options().write(true).open(self.file.path()).unwrap();
        file.set_len(DISK_BYTES / 2).unwrap();
        self.target.reload(&Self::toml(&self.file, ""));
    }

    fn stays_after(mut self, reload_to: &str, expected: Status) {
        let mut tickets: Vec<Ticket> = (0..COMMANDS as u64)
            .map(|lba| write(&mut self.host, lba))
            .collect();
        until_the_first_ends(&mut self.host, &mut tickets);
        self.target.reload(reload_to);
        let before = std::fs::read(self.file.path()).unwrap();
        let statuses = self.statuses(tickets);
        let refused = statuses.iter().filter(|status| **status == expected);
        assert!(refused.count() > COMMANDS / 2, "{statuses:?}");
        let after = std::fs::read(self.file.path()).unwrap();
        assert!(before == after, "the file has changed after the reload");
        self.host.shutdown().unwrap();
        self.target.stop();
    }
}

#[test]
fn a_namespace_that_a_reload_removed_does_not_change() {
    let toml = subsystem(NQN, &[]) + &namespace(2, "mem:1MiB");
    let expected = Status::INVALID_NAMESPACE_OR_FORMAT;
    Limited::new("epoch-removed").stays_after(&toml, expected);
}

#[test]
fn a_namespace_that_a_reload_made_read_only_does_not_change() {
    let limited = Limited::new("epoch-read-only");
    let toml = Limited::toml(&limited.file, "read_only = true");
    limited.stays_after(&toml, Status::INVALID_NAMESPACE_OR_FORMAT);
}

#[test]
fn a_file_that_lost_data_before_a_reload_does_not_grow() {
    let mut limited = Limited::new("epoch-grow");
    let mut tickets: Vec<Ticket> = (0..COMMANDS)
        .map(|_| write(&mut limited.host, LAST))
        .collect();
    until_the_first_ends(&mut limited.host, &mut tickets);
    limited.shrink();
    let statuses = limited.statuses(tickets);
    let refused = statuses.iter().filter(|it| **it == Status::WRITE_FAULT);
    assert!(refused.count() > COMMANDS / 2, "{statuses:?}");
    let length = std::fs::metadata(limited.file.path()).unwrap().len();
    assert_eq!(length, DISK_BYTES / 2, "the file has grown");
    let status = read(&mut limited.host, 0);
    assert_eq!(status.code(), Status::UNRECOVERED_READ_ERROR);
    drop(limited.host);
    limited.target.stop();
}

#[test]
fn a_reload_says_that_a_hung_disk_has_commands_from_before_it() {
    let file = Scratch::in_memory("epoch-hung", DISK_BYTES);
    let disk = SimulatedDisk::register(file.path(), &Clock::default(), 1).unwrap();
    let toml = subsystem(NQN, &[&file.export(BLOCK as u32), "mem:1MiB"]);
    let target = TestTarget::start(&toml);
    let mut host = target.connect("host");
    host.run(command::flush(1), Data::None).unwrap();
    disk.hold(Operation::Write);
    let ticket = write(&mut host, 0);
    let deadline = Instant::now() + PATIENCE;
    while disk.waiting(Operation::Write) == 0 {
        host.poll();
        assert!(Instant::now() < deadline, "the disk does not get the write");
    }
    let removed = subsystem(NQN, &[]) + &namespace(2, "mem:1MiB");
    let ended = target.try_reload_beside(&mut host, &removed);
    let error = ended.expect_err("a write from before it is at the disk");
    assert!(matches!(error, ReloadError::Unsettled { .. }), "{error}");
    assert!(error.to_string().contains("namespace 1"), "{error}");
    disk.release(Operation::Write);
    assert_eq!(
        host.wait(ticket).answer.unwrap().cqe.status(),
        Status::SUCCESS
    );
    target.reload(&removed);
    host.shutdown().unwrap();
    target.stop();
}
