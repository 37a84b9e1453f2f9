//! Reservations over user-space RoCE.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cairn_initiator::reservation::{Notice as Told, Registrant, ReservationType as Type};
use cairn_initiator::wire::reservation::{
    AcquireCdw10, NotificationLog, RegisterCdw10, ReleaseCdw10,
};
use cairn_initiator::{
    Data, Host, HostError, HostOptions, Namespace, Notice, Recovery, ReservationReport, Response,
    command,
};
use cairn_roce::Soft;
use cairn_tests::harness::{NQN, Scratch, TestTarget, namespace, subsystem};
use cairn_tests::process::TargetProcess;
use nvme_proto::wire::aen::AsyncEvent;
use nvme_proto::wire::feature::{Feature, Select};
use nvme_proto::wire::log::LogPage;
use nvme_proto::wire::{FromBytes, Sqe, Status};

use crate::verified::{next_notice, status, wait_until};

const KEEP: RegisterCdw10 = RegisterCdw10(0);

fn soft_target(exports: &[&str]) -> TestTarget {
    TestTarget::start_on_soft(Soft::default(), &subsystem(NQN, exports))
}

struct Member {
    host: Host,
    namespace: Namespace,
    key: u64,
}

impl Member {
    fn new(target: &TestTarget, name: &str, key: u64) -> Self {
        let mut host = target.connect(name);
        let namespace = host.open_namespace(1).unwrap();
        Self {
            host,
            namespace,
            key,
        }
    }

    fn id(&self) -> [u8; 16] {
        self.host.options().hostid
    }

    fn register(&mut self) -> Result<(), HostError> {
        self.namespace.register(&mut self.host, KEEP, 0, self.key)
    }

    fn acquire(&mut self, rtype: Type) -> Result<(), HostError> {
        let fields = AcquireCdw10(0).with_rtype(rtype.code());
        self.namespace.acquire(&mut self.host, fields, self.key, 0)
    }

    fn preempt(&mut self, action: u8, rtype: Type, key: u64) -> Result<(), HostError> {
        let fields = AcquireCdw10(0).with_racqa(action).with_rtype(rtype.code());
        self.namespace
            .acquire(&mut self.host, fields, self.key, key)
    }

    fn release(&mut self, action: u8, rtype: Type) -> Result<(), HostError> {
        let fields = ReleaseCdw10(0).with_rrela(action).with_rtype(rtype.code());
        self.namespace.release(&mut self.host, fields, self.key)
    }

    fn may(&mut self, sqe: Sqe) -> bool {
        let mut buffer = self.host.buffer(512).unwrap();
        let has_data = sqe.opc & 3 != 0 && ![8, 0x0c].contains(&sqe.opc);
        let data = match (sqe.opc, has_data) {
            (9, _) => Data::start_of(&mut buffer, 16),
            (0x19, _) => Data::start_of(&mut buffer, 32),
            (_, true) => Data::whole(&mut buffer),
            (_, false) => Data::None,
        };
        match self.host.run(sqe, data) {
            Ok(_) => true,
            Err(HostError::Status { status, .. }) => {
                assert_eq!(status.code(), Status::RESERVATION_CONFLICT, "{sqe:?}");
                assert!(status.dnr());
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn access(&mut self) -> (bool, bool) {
        let reads = [
            command::read(1, 0, 1),
            command::compare(1, 0, 1),
            command::verify(1, 0, 1),
        ];
        let writes = [
            command::write(1, 0, 1),
            command::write_zeroes(1, 0, 1, false),
            command::deallocate(1, 1),
            command::copy(1, 1, 1),
            command::flush(1),
            command::flush(u32::MAX),
        ];
        let [reads, writes] = [&reads[..], &writes[..]].map(|of| {
            let all: Vec<bool> = of.iter().map(|sqe| self.may(*sqe)).collect();
            assert!(all.iter().all(|may| *may == all[0]), "{all:?}");
            all[0]
        });
        (reads, writes)
    }

    fn feature(&mut self, fid: Feature) -> u32 {
        let get = command::get_features(fid.0, Select::CURRENT, 1, 0);
        self.host.run_admin(get, Data::None).unwrap().cqe.dw0.get()
    }

    fn set_feature(&mut self, fid: Feature, value: u32) -> Result<Response, HostError> {
        let set = command::set_features(fid.0, 1, value);
        self.host.run_admin(set, Data::None)
    }

    fn log(&mut self) -> (u64, u8, u8, u32) {
        let mut buffer = self.host.buffer(64).unwrap();
        let get = command::get_log_page(LogPage::RESERVATION_NOTIFICATION, 0, 0, 64, false);
        self.host.run_admin(get, Data::whole(&mut buffer)).unwrap();
        let log = NotificationLog::read_from_bytes(&buffer.bytes(0, 64)).unwrap();
        let (count, nsid) = (log.count.get(), log.nsid.get());
        (count, log.notice, log.available, nsid)
    }
}

fn members<const N: usize>(target: &TestTarget) -> [Member; N] {
    std::array::from_fn(|index| {
        let key = index as u64 + 1;
        Member::new(target, &format!("member-{key}"), key)
    })
}

#[test]
fn each_type_permits_the_commands_of_the_table_to_holders_registrants_and_others() {
    let disk = Scratch::new("reserved", 1 << 20);
    let target = soft_target(&[&disk.export(512)]);
    let [mut holder, mut registrant, mut other] = members(&target);
    let (all, read, none) = ((true, true), (true, false), (false, false));
    let oncs = holder.host.identity().oncs.get();
    assert_eq!(
        (oncs >> 5 & 1, holder.host.namespace(1).unwrap().rescap),
        (1, 0xfe)
    );
    let table = [
        (Type::WriteExclusive, read, read),
        (Type::ExclusiveAccess, none, none),
        (Type::WriteExclusiveRegistrantsOnly, all, read),
        (Type::ExclusiveAccessRegistrantsOnly, all, none),
        (Type::WriteExclusiveAllRegistrants, all, read),
        (Type::ExclusiveAccessAllRegistrants, all, none),
    ];
    for (rtype, of_registrant, of_other) in table {
        holder.register().unwrap();
        registrant.register().unwrap();
        assert_eq!(
            status(other.acquire(rtype)).code(),
            Status::RESERVATION_CONFLICT
        );
        for member in [&mut holder, &mut registrant, &mut other] {
            assert_eq!(member.access(), all, "registrations alone forbid nothing");
        }
        holder.acquire(rtype).unwrap();
        assert_eq!(holder.access(), all, "{rtype}");
        assert_eq!(registrant.access(), of_registrant, "{rtype}");
        assert_eq!(other.access(), of_other, "{rtype}");
        let report = other.namespace.reservations(&mut other.host).unwrap();
        assert_eq!((report.rtype, report.persistent), (Some(rtype), false));
        let mut known = [&holder, &registrant].map(|one| Registrant {
            host: one.id(),
            key: one.key,
        });
        known.sort_by_key(|one| one.host);
        assert_eq!(report.registrants, known);
        let holders = if rtype.code() >= 5 { 2 } else { 1 };
        assert_eq!(report.holders.len(), holders);
        registrant.release(ReleaseCdw10::CLEAR, rtype).unwrap();
        let report = other.namespace.reservations(&mut other.host).unwrap();
        assert_eq!((report.rtype, report.registrants.len()), (None, 0));
    }
    assert_eq!(other.access(), all);
    target.stop();
}

#[test]
fn keys_in_the_capsule_and_of_wrong_fields_are_handled() {
    let target = soft_target(&["mem:1MiB"]);
    let [mut member] = members(&target);
    let mut keys = [0; 16];
    keys[8] = 7;
    let mut sqe = command::plain(0x0d, 1);
    member.host.run(sqe, Data::InCapsule(&keys)).unwrap();
    let report = member.namespace.reservations(&mut member.host).unwrap();
    assert_eq!((report.generation, report.registrants[0].key), (1, 7));
    member.key = 7;
    // Linux sends 16 bytes of data with every reservation command, though a release needs only 8.
    sqe.opc = 0x15;
    let mut release = [0; 16];
    release[0] = 7;
    member.host.run(sqe, Data::InCapsule(&release)).unwrap();
    for (opc, cdw10, expected) in [
        (0x0d, 3, Status::INVALID_FIELD),
        (0x0d, 1 << 30, Status::INVALID_FIELD),
        (0x0d, 3 << 30, Status::INVALID_FIELD),
        (0x11, 0, Status::INVALID_FIELD),
        (0x11, 0x0708, Status::INVALID_FIELD),
        (0x11, 0x0103, Status::INVALID_FIELD),
        (0x15, 0x0108, Status::INVALID_FIELD),
        (0x0d, 0, Status::RESERVATION_CONFLICT),
    ] {
        let mut sqe = command::plain(opc, 1);
        sqe.cdw10.set(cdw10);
        let refused = status(member.host.run(sqe, Data::InCapsule(&[8; 16])));
        assert_eq!(refused.code(), expected, "{sqe:?}");
    }
    let mut buffer = member.host.buffer(64).unwrap();
    let mut report = command::plain(0x0e, 1);
    report.cdw10.set(15);
    let refused = status(member.host.run(report, Data::whole(&mut buffer)));
    assert_eq!(refused.code(), Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT);
    report.nsid.set(2);
    report.cdw11.set(1);
    let refused = status(member.host.run(report, Data::whole(&mut buffer)));
    assert_eq!(refused.code(), Status::INVALID_NAMESPACE_OR_FORMAT);
    target.stop();
}

#[test]
fn hosts_are_notified_unless_they_mask_the_event() {
    let target = soft_target(&["mem:1MiB"]);
    let [mut one, mut two] = members(&target);
    let rtype = Type::WriteExclusiveRegistrantsOnly;
    let available = Notice::Other(AsyncEvent::RESERVATION_LOG_AVAILABLE);
    one.register().unwrap();
    two.register().unwrap();
    assert_eq!(two.log(), (0, 0, 0, 0));

    one.acquire(rtype).unwrap();
    one.release(ReleaseCdw10::RELEASE, rtype).unwrap();
    assert_eq!(next_notice(&mut two.host), available);
    one.preempt(AcquireCdw10::PREEMPT, rtype, 2).unwrap();
    two.register().unwrap();
    one.release(ReleaseCdw10::CLEAR, rtype).unwrap();
    assert_eq!(two.log(), (1, Told::ReservationReleased as u8, 2, 1));
    assert_eq!(two.log(), (2, Told::RegistrationPreempted as u8, 1, 1));
    assert_eq!(two.log(), (3, Told::ReservationPreempted as u8, 0, 1));
    assert_eq!(two.log(), (0, 0, 0, 0));

    two.set_feature(Feature::RESERVATION_NOTIFICATION_MASK, 0b100)
        .unwrap();
    assert_eq!(two.feature(Feature::RESERVATION_NOTIFICATION_MASK), 0b100);
    one.register().unwrap();
    two.register().unwrap();
    one.acquire(rtype).unwrap();
    one.release(ReleaseCdw10::RELEASE, rtype).unwrap();
    assert_eq!(two.log(), (0, 0, 0, 0), "masked");
    one.release(ReleaseCdw10::CLEAR, rtype).unwrap();
    assert_eq!(two.log(), (4, Told::ReservationPreempted as u8, 0, 1));
    assert_eq!(one.log(), (0, 0, 0, 0), "its own commands");
    for (fid, value) in [
        (Feature::RESERVATION_NOTIFICATION_MASK, 1),
        (Feature::RESERVATION_PERSISTENCE, 1),
    ] {
        let refused = status(two.set_feature(fid, value));
        assert_eq!(refused.code(), Status::INVALID_FIELD);
    }
    two.set_feature(Feature::RESERVATION_PERSISTENCE, 0)
        .unwrap();
    assert_eq!(two.feature(Feature::RESERVATION_PERSISTENCE), 0);
    target.stop();
}

#[test]
fn no_write_of_a_preempted_host_lands_after_the_answer() {
    const BLOCKS: u64 = 256;
    let disk = Scratch::new("preempted", BLOCKS * 512);
    let config = subsystem(NQN, &[&disk.export(512)]);
    let target = TestTarget::start_on_soft(
        Soft::default(),
        &format!("[target]\nreactors = 2\n{config}"),
    );
    for turn in 0..10 {
        let rtype = Type::ALL[turn % 6];
        let started = AtomicBool::new(false);
        let [mut winner] = members(&target);
        winner.register().unwrap();
        let preempted = if rtype.code() >= 5 { 0 } else { 2 };
        thread::scope(|scope| {
            let last = scope.spawn(|| {
                let mut loser = Member::new(&target, "loser", 2);
                loser.register().unwrap();
                loser.acquire(rtype).unwrap();
                let mut tickets = std::collections::VecDeque::new();
                for block in (0..BLOCKS).cycle() {
                    let data = Data::InCapsule(&[2; 512]);
                    let write = command::write(1, block, 1);
                    tickets.push_back(loser.host.submit(write, data).unwrap());
                    if tickets.len() < 30 {
                        continue;
                    }
                    started.store(true, Ordering::SeqCst);
                    let oldest = tickets.pop_front().expect("a write");
                    let status = loser.host.wait(oldest).answer.unwrap().cqe.status();
                    if status != Status::SUCCESS {
                        return status;
                    }
                }
                unreachable!("the loser stops at a conflict")
            });
            while !started.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            let abort = AcquireCdw10::PREEMPT_AND_ABORT;
            winner.preempt(abort, rtype, preempted).unwrap();
            let whole = vec![1; (BLOCKS * 512) as usize];
            winner.namespace.write(&mut winner.host, 0, &whole).unwrap();
            assert_eq!(last.join().unwrap().code(), Status::RESERVATION_CONFLICT);
            let read = winner
                .namespace
                .read(&mut winner.host, 0, BLOCKS as u32)
                .unwrap();
            assert!(read == whole, "a write of the loser landed: {rtype}");
        });
        winner.release(ReleaseCdw10::CLEAR, rtype).unwrap();
        winner.host.shutdown().unwrap();
    }
    target.stop();
}

#[test]
fn a_host_keeps_its_reservation_when_it_connects_again_and_after_a_reload() {
    let disk = Scratch::new("kept-reservation", 1 << 20);
    let toml = |more: &str| subsystem(NQN, &[&format!("{}{more}", disk.export(512))]);
    let target = TestTarget::start_on_soft(Soft::default(), &toml(""));
    let [mut one, mut two] = members(&target);
    one.register().unwrap();
    one.acquire(Type::ExclusiveAccess).unwrap();
    one.host.shutdown().unwrap();
    let [mut one] = members(&target);
    assert_eq!((one.access(), two.access()), ((true, true), (false, false)));
    target.reload(&toml("\nread_only = true"));
    assert!(!two.may(command::read(1, 0, 1)));
    target.reload(&toml(""));
    assert_eq!((one.access(), two.access()), ((true, true), (false, false)));
    target.stop();
}

struct Cluster {
    target: TargetProcess,
    soft: Soft,
    folder: tempfile::TempDir,
    disk: Scratch,
}

impl Cluster {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Scratch::new(name, 1 << 20);
        let keys = format!("state_directory = \"{}\"", folder.path().display());
        Self {
            target: TargetProcess::start_with(&keys, &namespace(1, &disk.export(512))),
            soft: Soft::default(),
            folder,
            disk,
        }
    }

    fn host(&self, name: &str) -> Host {
        let options = HostOptions {
            recovery: Recovery::NONE,
            kato_ms: 0,
            ..self.target.options(name)
        };
        Host::connect(&self.soft, options).unwrap()
    }

    fn member(&self, name: &str, key: u64) -> Member {
        let mut host = self.host(name);
        let namespace = host.open_namespace(1).unwrap();
        Member {
            host,
            namespace,
            key,
        }
    }

    fn members(&self) -> [Member; 2] {
        [self.member("a", 1), self.member("b", 2)]
    }

    fn reload(&mut self, more: &str, rescap: u8) {
        let export = format!("{}{more}", self.disk.export(512));
        self.target.reload(&namespace(1, &export));
        let mut host = self.host("watcher");
        wait_until("the namespace is replaced", || {
            host.namespace(1).is_ok_and(|one| one.rescap == rescap)
        });
        host.shutdown().unwrap();
    }

    fn restart(&mut self) {
        self.target.kill();
        self.target.restart();
    }
}

impl Member {
    fn report(&mut self) -> ReservationReport {
        self.namespace.reservations(&mut self.host).unwrap()
    }

    fn register_persistently(&mut self) {
        let set = KEEP.with_cptpl(RegisterCdw10::CPTPL_SET);
        self.namespace
            .register(&mut self.host, set, 0, self.key)
            .unwrap();
    }
}

#[test]
fn reservations_that_persist_outlast_a_target_that_is_killed() {
    const RTYPE: Type = Type::WriteExclusive;
    let mut cluster = Cluster::new("persistent-reservation");
    let steps: [fn(&mut [Member; 2]); 6] = [
        |[a, b]| {
            a.register().unwrap();
            b.register().unwrap();
        },
        |[a, _]| a.acquire(RTYPE).unwrap(),
        |[a, b]| {
            let abort = AcquireCdw10::PREEMPT_AND_ABORT;
            b.preempt(abort, RTYPE, a.key).unwrap();
        },
        |[a, _]| a.register().unwrap(),
        |[_, b]| b.release(ReleaseCdw10::RELEASE, RTYPE).unwrap(),
        |[_, b]| b.acquire(Type::ExclusiveAccessAllRegistrants).unwrap(),
    ];
    let mut members = cluster.members();
    assert_eq!(members[0].host.namespace(1).unwrap().rescap, 0xff);
    members[0].register_persistently();
    for (number, step) in steps.iter().enumerate() {
        step(&mut members);
        let before = members[0].report();
        assert!(before.persistent);
        drop(members);
        cluster.restart();
        members = cluster.members();
        assert_eq!(members[1].report(), before, "step {number}");
        if before.rtype == Some(RTYPE) {
            let may = [0, 1].map(|one: usize| members[one].may(command::write(1, 0, 1)));
            assert_ne!(may[0], may[1], "step {number}");
        }
    }
    let [a, _] = &mut members;
    assert_eq!(a.feature(Feature::RESERVATION_PERSISTENCE), 1);
    a.set_feature(Feature::RESERVATION_PERSISTENCE, 0).unwrap();
    drop(members);
    cluster.restart();
    assert_eq!(cluster.member("a", 1).report().registrants, []);
}

#[test]
fn a_disk_that_is_no_longer_shared_has_its_stored_reservations() {
    let mut cluster = Cluster::new("shared-meanwhile");
    let mut a = cluster.member("a", 1);
    a.register_persistently();
    a.acquire(Type::ExclusiveAccess).unwrap();
    drop(a);
    cluster.reload("\nshared = true", 0);
    cluster.reload("", 0xff);
    assert!(!cluster.member("b", 2).may(command::read(1, 0, 1)));
    assert_eq!(cluster.member("a", 1).report().registrants.len(), 1);
}

#[test]
fn a_damaged_file_closes_the_disk_and_a_lost_directory_refuses_changes() {
    let mut cluster = Cluster::new("damaged-reservation");
    cluster.member("a", 1).register_persistently();
    let files = std::fs::read_dir(cluster.folder.path()).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let is_it = |file: &PathBuf| file.extension().is_some_and(|end| end == "reservations");
    let file = files.find(is_it).unwrap();
    let good = std::fs::read(&file).unwrap();
    std::fs::write(&file, &good[1..]).unwrap();
    cluster.restart();
    let mut host = cluster.host("a");
    assert_eq!(host.active_namespaces().unwrap(), [0; 0]);
    host.shutdown().unwrap();
    std::fs::write(&file, &good).unwrap();
    cluster.restart();
    let mut a = cluster.member("a", 1);
    assert_eq!(a.report().registrants.len(), 1);
    std::fs::remove_dir_all(cluster.folder.path()).unwrap();
    let refused = status(a.acquire(Type::WriteExclusive));
    assert_eq!(refused.code(), Status::INTERNAL_ERROR);
    assert_eq!(a.report().rtype, None);
    assert!(cluster.member("b", 2).may(command::write(1, 0, 1)));
}
