use cairn_initiator::{Buffer, Data, Host, HostError, IoQueue, Ticket, command};
use cairn_sim::Random;
use cairn_tests::harness::TestTarget;
use nvme_proto::wire::Cqe;

use crate::verified::bytes;

const BLOCK: usize = 512;

struct InFlight {
    ticket: Ticket,
    lane: usize,
    write: bool,
}

/// Load with `depth` outstanding commands on each queue. A lane is a block with one outstanding
/// command.
struct Storm<'a> {
    host: &'a mut Host,
    first_block: u64,
    buffers: Vec<Option<Buffer>>,
    seeds: Vec<u64>,
    in_flight: Vec<InFlight>,
    depth: usize,
    random: Random,
}

impl<'a> Storm<'a> {
    fn new(host: &'a mut Host, depth: usize, first_block: u64, seed: u64) -> Self {
        let lanes = depth * host.io_queues().len();
        let buffers = host.buffer(lanes * BLOCK).unwrap().split(BLOCK);
        Self {
            buffers: buffers.into_iter().map(Some).collect(),
            host,
            first_block,
            seeds: vec![0; lanes],
            in_flight: Vec::new(),
            depth,
            random: Random::new(seed),
        }
    }

    fn run(&mut self, commands: usize) {
        for lane in 0..self.seeds.len() {
            self.start(lane);
        }
        for queue in self.host.io_queues() {
            assert!(self.host.controller().outstanding(queue) <= self.depth);
        }
        for _ in 0..commands {
            let lane = self.finish_one();
            self.start(lane);
        }
        while !self.in_flight.is_empty() {
            self.finish_one();
        }
    }

    fn start(&mut self, lane: usize) {
        let queue = self.host.io_queue(lane / self.depth);
        let slba = self.first_block + lane as u64;
        let mut buffer = self.buffers[lane].take().unwrap();
        let write = self.seeds[lane] == 0 || self.random.below(2) == 0;
        let sqe = if write {
            self.seeds[lane] = self.random.bits() | 1;
            buffer.write(0, &bytes(self.seeds[lane], BLOCK));
            command::write(1, slba, 1)
        } else {
            buffer.write(0, &[0; BLOCK]);
            command::read(1, slba, 1)
        };
        let ticket = self
            .host
            .submit_on(queue, sqe, Data::whole(buffer))
            .unwrap();
        self.in_flight.push(InFlight {
            ticket,
            lane,
            write,
        });
    }

    fn finish_one(&mut self) -> usize {
        let in_flight = &mut self.in_flight;
        let (at, ended) = self
            .host
            .wait_until("any answer", |host| {
                (0..in_flight.len())
                    .find_map(|at| host.take(in_flight[at].ticket).map(|ended| (at, ended)))
            })
            .unwrap();
        let done = self.in_flight.swap_remove(at);
        let buffer = ended.buffer.unwrap();
        let status = ended.answer.unwrap().cqe.status();
        assert!(status.is_success(), "{status}");
        if !done.write {
            let found = buffer.bytes(0, BLOCK);
            assert!(
                found == bytes(self.seeds[done.lane], BLOCK),
                "lane {} read what was not written",
                done.lane
            );
        }
        self.buffers[done.lane] = Some(buffer);
        done.lane
    }
}

#[test]
fn a_queue_takes_as_many_as_it_has_entries_less_one() {
    let target = TestTarget::with_namespaces(&["mem:16MiB block_size = 512"]);
    let mut host = target.connect("a");
    Storm::new(&mut host, 127, 0, 1).run(2000);
    let tickets: Vec<Ticket> = (0..127)
        .map(|_| host.submit(command::flush(1), Data::None).unwrap())
        .collect();
    let more = host.submit(command::flush(1), Data::None);
    let more = more.unwrap_err().error;
    assert!(matches!(more, HostError::QueueFull { qid: 1 }));
    for ticket in tickets {
        host.wait(ticket).answer.unwrap();
    }
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn deep_queues() {
    let target = TestTarget::start(&format!(
        "[target]\nqueue_depth = 1024\nreactors = 1\n{}",
        cairn_tests::harness::subsystem(cairn_tests::harness::NQN, &["mem:16MiB block_size = 512"])
    ));
    let mut options = target.options("deep");
    options.queue_entries = 1024;
    let mut host = target.try_connect(options).unwrap();
    Storm::new(&mut host, 1023, 0, 2).run(3000);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn many_queues_on_several_reactors() {
    let target = TestTarget::start(&format!(
        "[target]\nreactors = 2\n{}",
        cairn_tests::harness::subsystem(cairn_tests::harness::NQN, &["mem:16MiB block_size = 512"])
    ));
    let mut options = target.options("wide");
    options.io_queues = 16;
    options.queue_entries = 32;
    let mut host = target.try_connect(options).unwrap();
    assert_eq!(host.io_queues().len(), 16);
    Storm::new(&mut host, 31, 0, 3).run(3000);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn several_hosts_at_once() {
    let target = TestTarget::start(&format!(
        "[target]\nreactors = 2\n{}",
        cairn_tests::harness::subsystem(cairn_tests::harness::NQN, &["mem:16MiB block_size = 512"])
    ));
    std::thread::scope(|scope| {
        for number in 0..6_u64 {
            let target = &target;
            scope.spawn(move || {
                let mut options = target.options(&format!("{number}"));
                options.io_queues = 2;
                options.queue_entries = 64;
                let mut host = target.try_connect(options).unwrap();
                Storm::new(&mut host, 63, number * 1000, number).run(1500);
                host.shutdown().unwrap();
            });
        }
    });
    target.stop();
}

#[test]
fn sqhd_is_sent_unless_the_host_disables_it() {
    let target = TestTarget::with_namespaces(&["null:1GiB"]);
    for disable in [false, true] {
        let mut options = target.options("a");
        options.disable_sq_flow_control = disable;
        let mut host = target.try_connect(options).unwrap();
        let mut heads = Vec::new();
        for _ in 0..3 {
            let answer = host.run(command::flush(1), Data::None).unwrap();
            heads.push(answer.cqe.sqhd.get());
        }
        if disable {
            assert_eq!(heads, [Cqe::SQHD_NO_FLOW_CONTROL; 3]);
        } else {
            assert_eq!([heads[0] + 1, heads[1] + 1], [heads[1], heads[2]]);
        }
        host.shutdown().unwrap();
    }
    target.stop();
}

#[test]
fn a_handle_leads_to_its_queue() {
    let target = TestTarget::with_namespaces(&["mem:1MiB block_size = 512"]);
    let mut options = target.options("a");
    options.io_queues = 3;
    let mut host = target.try_connect(options.clone()).unwrap();
    let queues: Vec<IoQueue> = host.io_queues().collect();
    assert_eq!(queues, [0, 1, 2].map(|turn| host.io_queue(turn)));
    assert_eq!((host.io_queue(3), queues[0]), (queues[0], IoQueue::FIRST));
    for queue in queues.iter().copied() {
        let ticket = host.submit_on(queue, command::flush(1), Data::None);
        let ticket = ticket.unwrap();
        assert_eq!(ticket.qid(), queue.qid());
        let (reaped, ended) = host.wait_until("a flush", |host| host.reap(queue)).unwrap();
        assert_eq!(reaped, ticket);
        ended.answer.unwrap();
    }
    let keep_alive = host.submit_admin(command::keep_alive(), Data::None);
    assert_eq!(keep_alive.unwrap().qid(), 0);
    host.shutdown().unwrap();

    options.io_queues = 0;
    let mut host = target.try_connect(options).unwrap();
    assert_eq!((host.io_queues().len(), host.io_queue(7)), (0, queues[0]));
    for queue in queues {
        let refused = host.submit_on(queue, command::flush(1), Data::None);
        let refused = refused.unwrap_err().error;
        assert!(matches!(refused, HostError::NoQueue { qid } if qid == queue.qid()));
    }
    host.shutdown().unwrap();
    target.stop();
}
