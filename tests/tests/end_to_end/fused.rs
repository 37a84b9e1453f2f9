//! Fused Compare and Write commands, from one or several hosts.

use std::time::Duration;

use cairn_initiator::reservation::ReservationType;
use cairn_initiator::wire::reservation::{AcquireCdw10, RegisterCdw10, ReleaseCdw10};
use cairn_initiator::{Data, Host, HostError, HostOptions, IoQueue, Ticket, command};
use cairn_sim::Random;
use cairn_tests::harness::{NQN, Scratch, TestTarget, namespace, subsystem};
use nvme_proto::wire::{Sqe, Status};

use crate::verified::{Disk, Transfer, bytes};

type Statuses = [Status; 2];

const DONE: Statuses = [Status::SUCCESS; 2];
const DIFFERENT: Statuses = [Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED];

fn data<'a>(host: &Host, bytes: &'a [u8], transfer: Transfer) -> Data<'a> {
    if transfer == Transfer::InCapsule {
        return Data::InCapsule(bytes);
    }
    let mut buffer = host.buffer(bytes.len()).unwrap();
    buffer.write(0, bytes);
    Data::whole(buffer)
}

fn submit(
    host: &mut Host,
    queue: IoQueue,
    sqes: [Sqe; 2],
    [old, new]: [(&[u8], Transfer); 2],
) -> [Ticket; 2] {
    let [compare, write] = command::fused(sqes[0], sqes[1]);
    let (old, new) = (data(host, old.0, old.1), data(host, new.0, new.1));
    let compare = host.submit_on(queue, compare, old).unwrap();
    [compare, host.submit_on(queue, write, new).unwrap()]
}

fn wait(host: &mut Host, pair: [Ticket; 2]) -> Result<Statuses, HostError> {
    let [compare, write] = pair.map(|ticket| host.wait(ticket).answer);
    Ok([compare?, write?].map(|response| response.cqe.status().code()))
}

fn run(host: &mut Host, sqes: [Sqe; 2], old: &[u8], new: &[u8]) -> Statuses {
    let data = [(old, Transfer::Keyed), (new, Transfer::Keyed)];
    let pair = submit(host, IoQueue::FIRST, sqes, data);
    wait(host, pair).unwrap()
}

fn sqes(nsid: u32, slba: u64) -> [Sqe; 2] {
    [
        command::compare(nsid, slba, 1),
        command::write(nsid, slba, 1),
    ]
}

#[test]
fn a_block_is_written_only_if_it_is_as_expected() {
    let small = Scratch::new("fused-512", 1 << 20);
    let large = Scratch::new("fused-4096", 1 << 20);
    let limit = "limits = { iops = 2000, outstanding = 1 }";
    let target = TestTarget::with_namespaces(&[
        "mem:1MiB block_size = 512",
        "mem:1MiB block_size = 4096",
        &small.export(512),
        &large.export(4096),
        &format!("mem:2MiB block_size = 512\n{limit}"),
    ]);
    let mut host = target.connect("a");
    let kinds = [Transfer::Keyed, Transfer::InCapsule];
    for nsid in 1..=5 {
        let block = Disk::new(&mut host, nsid).block_bytes as usize;
        for (round, (old, new)) in [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().enumerate() {
            let slba = 5 + round as u64;
            let [before, after, other] = [1, 2, 3].map(|seed| bytes(seed, block));
            Disk::new(&mut host, nsid).write(slba, &before, Transfer::Keyed);
            let (old, new) = (kinds[old], kinds[new]);
            for (expected, statuses) in [(&other, DIFFERENT), (&before, DONE), (&before, DIFFERENT)]
            {
                let data = [(&expected[..], old), (&after[..], new)];
                let pair = submit(&mut host, IoQueue::FIRST, sqes(nsid, slba), data);
                assert_eq!(wait(&mut host, pair).unwrap(), statuses, "{nsid} {old:?}");
                let found = Disk::new(&mut host, nsid).read(slba, block, Transfer::Keyed);
                let is_new = expected == &before;
                assert!(found == if is_new { &after[..] } else { &before[..] });
            }
            for neighbour in [slba - 1, slba + 1] {
                let found = Disk::new(&mut host, nsid).read(neighbour, block, Transfer::Keyed);
                assert!(
                    found == vec![0; block] || found == after,
                    "a neighbour changed"
                );
            }
        }
    }
    let namespace = host.open_namespace(1).unwrap();
    let (zeroes, ones) = ([0; 512], [1; 512]);
    assert!(
        namespace
            .compare_and_write(&mut host, 90, &zeroes, &ones)
            .unwrap()
    );
    assert!(
        !namespace
            .compare_and_write(&mut host, 90, &zeroes, &ones)
            .unwrap()
    );
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn both_commands_complete_in_order() {
    let target = TestTarget::with_namespaces(&["mem:1MiB block_size = 512"]);
    let mut host = target.connect("a");
    for expected in [0, 1] {
        let (old, new) = ([expected; 512], [0; 512]);
        let data = [(&old[..], Transfer::Keyed), (&new[..], Transfer::InCapsule)];
        let pair = submit(&mut host, IoQueue::FIRST, sqes(1, 0), data);
        let mut ended = Vec::new();
        while ended.len() < 2 {
            let next = host.wait_any(IoQueue::FIRST, Duration::from_secs(20));
            ended.push(next.unwrap().expect("an answer").0);
        }
        assert_eq!(ended, pair);
    }
    host.shutdown().unwrap();
}

#[test]
fn a_pair_that_is_none_is_aborted() {
    let shared = Scratch::new("fused-shared", 1 << 20);
    let shared = format!("{}\nshared = true", shared.export(512));
    let protected = "mem:1MiB block_size = 512\nread_only = true";
    let target = TestTarget::with_namespaces(&["mem:1MiB block_size = 512", &shared, protected]);
    let mut host = target.connect("a");
    let (zeroes, ones) = ([0; 1024], [1; 1024]);
    let both = |status| [status; 2];
    let refused = Status::ABORTED_FAILED_FUSED;
    let two = [command::compare(1, 0, 2), command::write(1, 0, 2)];
    for (sqes, bytes, statuses) in [
        (
            [sqes(1, 0)[0], sqes(1, 1)[1]],
            512,
            both(Status::INVALID_FIELD),
        ),
        (
            [sqes(1, 0)[0], sqes(2, 0)[1]],
            512,
            both(Status::INVALID_FIELD),
        ),
        (two, 1024, both(Status::ATOMIC_WRITE_UNIT_EXCEEDED)),
        (sqes(2, 0), 512, both(Status::INVALID_FIELD)),
        (
            sqes(3, 0),
            512,
            [refused, Status::NAMESPACE_WRITE_PROTECTED],
        ),
        (sqes(1, 9000), 512, [Status::LBA_OUT_OF_RANGE, refused]),
        (
            sqes(9, 0),
            512,
            [Status::INVALID_NAMESPACE_OR_FORMAT, refused],
        ),
    ] {
        assert_eq!(
            run(&mut host, sqes, &zeroes[..bytes], &ones[..bytes]),
            statuses
        );
    }
    let [compare, write] = command::fused(sqes(1, 0)[0], sqes(1, 0)[1]);
    let plain = command::write(1, 7, 1);
    let missing = Status::ABORTED_MISSING_FUSED;
    for (commands, statuses) in [
        ([compare, compare], both(missing)),
        ([write, compare], both(missing)),
        ([compare, plain], [missing, Status::SUCCESS]),
        ([plain, write], [Status::SUCCESS, missing]),
    ] {
        let tickets = commands.map(|sqe| host.submit(sqe, Data::InCapsule(&ones[..512])).unwrap());
        assert_eq!(wait(&mut host, tickets).unwrap(), statuses);
    }
    let untouched = Disk::new(&mut host, 1).read(0, 1024, Transfer::Keyed);
    assert!(
        untouched == zeroes,
        "a command without its partner was executed"
    );
    assert_eq!(
        run(&mut host, sqes(1, 0), &zeroes[..512], &ones[..512]),
        DONE
    );
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_reservation_and_an_inaccessible_group_refuse_pairs() {
    let disk = Scratch::new("fused-reserved", 1 << 20);
    let toml = subsystem(NQN, &[])
        + &namespace(1, &disk.export(512))
        + &namespace(2, "mem:1MiB block_size = 512\nana_group = 2");
    let group = "[[listener.ana_group]]\nid = 2\nstate = \"inaccessible\"\n";
    let target = TestTarget::start_as(&toml, group);
    let [mut holder, mut other] = ["a", "b"].map(|name| target.connect(name));
    let namespace = holder.open_namespace(1).unwrap();
    let register = RegisterCdw10(0);
    namespace.register(&mut holder, register, 0, 7).unwrap();
    let refused = Status::ABORTED_FAILED_FUSED;
    let conflict = Status::RESERVATION_CONFLICT;
    for (rtype, statuses) in [
        (ReservationType::WriteExclusive, [refused, conflict]),
        (ReservationType::ExclusiveAccess, [conflict, refused]),
    ] {
        let code = rtype.code();
        let acquire = AcquireCdw10(0).with_rtype(code);
        namespace.acquire(&mut holder, acquire, 7, 0).unwrap();
        let (old, new) = ([0; BLOCK], [1; BLOCK]);
        let found = run(&mut other, sqes(1, 3), &old, &new);
        assert_eq!(found, statuses, "{rtype:?}");
        assert_eq!(run(&mut holder, sqes(1, 3), &old, &new), DONE);
        assert_eq!(run(&mut holder, sqes(1, 3), &new, &old), DONE);
        let release = ReleaseCdw10(0).with_rtype(code);
        namespace.release(&mut holder, release, 7).unwrap();
    }
    let inaccessible = [Status::ANA_INACCESSIBLE, refused];
    let found = run(&mut other, sqes(2, 3), &[0; BLOCK], &[1; BLOCK]);
    assert_eq!(found, inaccessible);
    target.reload_as(&toml, "");
    let found = run(&mut other, sqes(2, 3), &[0; BLOCK], &[1; BLOCK]);
    assert_eq!(found, DONE, "a refused pair wrote");
    holder.shutdown().unwrap();
    other.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_reset_leaves_each_pair_executed_or_not_begun() {
    const ROUNDS: u8 = 20;
    const PAIRS: u64 = 8;
    let file = Scratch::new("fused-reset", 1 << 20);
    let target = TestTarget::with_namespaces(&[&file.export(512)]);
    let mut host = target.connect("a");
    for round in 0..ROUNDS {
        let (old, new) = ([round; BLOCK], [round + 1; BLOCK]);
        let pairs: Vec<[Ticket; 2]> = (0..PAIRS)
            .map(|slba| {
                let kinds = [Transfer::Keyed, Transfer::InCapsule];
                let data = [&old, &new].map(|bytes| (&bytes[..], kinds[slba as usize % 2]));
                submit(&mut host, IoQueue::FIRST, sqes(1, slba), data)
            })
            .collect();
        host.reset().unwrap();
        for (slba, pair) in (0..PAIRS).zip(pairs) {
            let ended = wait(&mut host, pair);
            let later = run(&mut host, sqes(1, slba), &old, &new);
            assert!([DONE, DIFFERENT].contains(&later), "{later:?}");
            if let Ok(ended) = ended {
                assert_eq!((ended, later), (DONE, DIFFERENT));
            }
            let found = Disk::new(&mut host, 1).read(slba, BLOCK, Transfer::Keyed);
            assert!(found == new, "round {round}, block {slba}");
        }
    }
    host.shutdown().unwrap();
    target.stop();
}

/// Contents of a block: a counter for each worker, then their sum. The sum also fills the rest of
/// the block, so that a torn write is visible.
#[derive(Clone, Copy)]
struct Tally([u64; WORKERS + 1]);

const WORKERS: usize = 8;
const BLOCK: usize = 512;

impl Tally {
    fn block(&self) -> Vec<u8> {
        let mut block: Vec<u8> = self
            .0
            .iter()
            .flat_map(|count| count.to_le_bytes())
            .collect();
        block.resize(BLOCK, self.0[WORKERS] as u8);
        block
    }

    fn parse(block: &[u8]) -> Self {
        let mut counts = [0; WORKERS + 1];
        for (count, bytes) in counts.iter_mut().zip(block.chunks(8)) {
            *count = u64::from_le_bytes(bytes.try_into().unwrap());
        }
        let tally = Self(counts);
        assert!(tally.block() == block, "a torn block");
        assert_eq!(
            counts[..WORKERS].iter().sum::<u64>(),
            counts[WORKERS],
            "lost"
        );
        tally
    }

    fn next(mut self, worker: usize) -> Self {
        self.0[worker] += 1;
        self.0[WORKERS] += 1;
        self
    }
}

struct Incrementer<'a> {
    target: &'a TestTarget,
    options: HostOptions,
    host: Host,
    first_worker: usize,
    done: [u64; QUEUES],
    random: Random,
}

const QUEUES: usize = WORKERS / 2;

impl<'a> Incrementer<'a> {
    fn new(target: &'a TestTarget, name: &str, first_worker: usize) -> Self {
        let mut options = HostOptions {
            io_queues: QUEUES as u16,
            ..target.options(name)
        };
        if target.loopback().is_some() {
            // The address selects a device that no other host uses, so that it can be removed.
            options.local = Some([192, 0, 2, 10 + first_worker as u8].into());
        }
        Self {
            host: target.try_connect(options.clone()).unwrap(),
            target,
            options,
            first_worker,
            done: [0; QUEUES],
            random: Random::new(first_worker as u64),
        }
    }

    fn found(&mut self) -> Tally {
        let mut disk = Disk {
            host: &mut self.host,
            queue: IoQueue::FIRST,
            nsid: 1,
            block_bytes: BLOCK as u32,
        };
        Tally::parse(&disk.read(1, BLOCK, Transfer::Keyed))
    }

    fn run(mut self, each: u64, losses: u64) {
        let mut tally = self.found();
        while self.done.iter().any(|&done| done < each) {
            let loses = self.random.below(1000) < losses;
            let left: Vec<usize> = (0..QUEUES).filter(|&own| self.done[own] < each).collect();
            let attempts = self.attempts(left, tally);
            if loses {
                let before = self.done;
                self.lose(&attempts);
                tally = self.found();
                let counts = &tally.0[self.first_worker..][..QUEUES];
                for (own, found) in counts.iter().enumerate() {
                    let tried = attempts.iter().any(|(tried, _)| *tried == own);
                    let possible = self.done[own]..=before[own] + u64::from(tried);
                    assert!(possible.contains(found), "{found} is not in {possible:?}");
                }
                self.done.copy_from_slice(counts);
                continue;
            }
            for (own, pair) in attempts {
                let statuses = wait(&mut self.host, pair).unwrap();
                self.count(own, statuses);
            }
            tally = self.found();
            let counts = &tally.0[self.first_worker..];
            assert_eq!(self.done, counts[..QUEUES], "an increment was lost");
        }
        self.host.shutdown().unwrap();
    }

    fn count(&mut self, own: usize, statuses: Statuses) {
        match statuses {
            DONE => self.done[own] += 1,
            DIFFERENT => {}
            other => panic!("{other:?}"),
        }
    }

    /// Submits a pair for each worker. All pairs expect the same tally, or each expects the result
    /// of the previous pair.
    fn attempts(&mut self, workers: Vec<usize>, mut tally: Tally) -> Vec<(usize, [Ticket; 2])> {
        let is_chain = self.random.below(4) > 0;
        let mut attempts = Vec::new();
        for own in workers {
            attempts.push((own, self.attempt(own, &tally)));
            if is_chain {
                tally = tally.next(self.first_worker + own);
            }
        }
        attempts
    }

    fn attempt(&mut self, own: usize, tally: &Tally) -> [Ticket; 2] {
        let queue = self.host.io_queue(own);
        let (old, new) = (tally.block(), tally.next(self.first_worker + own).block());
        let kinds = [Transfer::Keyed, Transfer::InCapsule];
        let mut kind = || kinds[self.random.below(2) as usize];
        let data = [(&old[..], kind()), (&new[..], kind())];
        submit(&mut self.host, queue, sqes(1, 1), data)
    }

    /// Replaces the connection while pairs are in flight. In half of the calls, it breaks first.
    fn lose(&mut self, attempts: &[(usize, [Ticket; 2])]) {
        let breaks = self.random.below(2) == 0;
        if let (true, Some(loopback)) = (breaks, self.target.loopback()) {
            let local = self.options.local.expect("the address of the device");
            loopback.unplug(local);
            for (own, pair) in attempts {
                match wait(&mut self.host, *pair) {
                    Ok(statuses) => self.count(*own, statuses),
                    Err(HostError::Lost { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            loopback.plug(local);
        }
        self.reconnect();
    }

    /// Connects the host again without a shutdown. The target executes the new association's
    /// Compare after all commands of the old association have ended.
    fn reconnect(&mut self) {
        self.host = self.target.try_connect(self.options.clone()).unwrap();
        let compare = command::compare(1, 1, 1);
        let data = Data::InCapsule(&[0xff; BLOCK]);
        let compared = self.host.submit(compare, data).unwrap();
        let status = self.host.wait(compared).answer.unwrap().cqe.status();
        assert_eq!(status.code(), Status::COMPARE_FAILURE);
    }
}

fn increments(export: &str, more: &str, each: u64, losses: u64) {
    let toml = format!(
        "[target]\nreactors = 2\n{more}\n{}",
        subsystem(NQN, &[export])
    );
    let target = TestTarget::start(&toml);
    let mut writer = target.connect("writes-beside");
    std::thread::scope(|scope| {
        let hosts = [("a", 0), ("b", QUEUES)].map(|(name, first)| {
            let target = &target;
            scope.spawn(move || Incrementer::new(target, name, first).run(each, losses))
        });
        while !hosts.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            Disk::new(&mut writer, 1).write(2, &[7; 2 * BLOCK], Transfer::Keyed);
            std::thread::sleep(Duration::from_millis(1));
        }
        hosts.into_iter().for_each(|host| host.join().unwrap());
    });
    let found = Disk::new(&mut writer, 1).read(1, BLOCK, Transfer::Keyed);
    assert_eq!(Tally::parse(&found).0[WORKERS], each * WORKERS as u64);
    writer.shutdown().unwrap();
    target.stop();
}

#[test]
fn no_increment_of_two_hosts_with_four_queues_is_lost() {
    increments("mem:1MiB block_size = 512", "", 100, 0);
    let file = Scratch::new("fused-increments", 1 << 20);
    increments(&file.export(512), "", 100, 0);
}

#[test]
fn no_increment_is_lost_while_paths_fail() {
    let file = Scratch::new("fused-losses", 1 << 20);
    increments(&file.export(512), "", 60, 50);
}

#[test]
#[ignore = "takes a quarter of an hour"]
fn none_of_a_million_increments_is_lost() {
    increments("mem:1MiB block_size = 512", "", 120_000, 0);
    let file = Scratch::new("fused-million", 1 << 20);
    increments(&file.export(512), "", 5_000, 1);
}
