//! One controller of a host that takes part in reservations.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use cairn_initiator::{
    Buffer, Controller, Data, Ended, Event, HostOptions, Identity, Notice, Recovery, Ticket,
    command,
};
use cairn_rdma::Provider;
use cairn_roce::Soft;
use cairn_tests::harness::{NQN, host_nqn, nqn};
use nvme_proto::host::AssociationState;
use nvme_proto::wire::aen::AsyncEvent;
use nvme_proto::wire::feature::{Feature, Select};
use nvme_proto::wire::identify::Cns;
use nvme_proto::wire::log::LogPage;
use nvme_proto::wire::{NvmOpcode, Sqe};

use super::spec::{Answer, CONTROLLERS, Command, HOSTS, Io, Keys, Report, Shown};
use crate::crowd::stage::Stage;

pub(super) const BLOCK_BYTES: usize = 512;
const BUFFER_BYTES: usize = 4096;
const BUFFERS: usize = 24;
const IO_QUEUES: u16 = 2;
const HEADER_BYTES: usize = 64;
const REGISTRANT_BYTES: usize = 64;
const LOG_BYTES: usize = 64;

pub(super) struct Member {
    index: usize,
    soft: Soft,
    association: Option<Association>,
    lost: Vec<usize>,
    /// True if the controller was connected or reset since the end of the last batch.
    pub(super) is_new: bool,
    /// Reports of an available notification since the end of the last batch.
    pub(super) events: u32,
    last_count: u64,
}

struct Association {
    controller: Controller,
    buffers: Vec<Buffer>,
    open: Vec<Open>,
    is_live: bool,
}

struct Open {
    ticket: Ticket,
    number: usize,
    command: Command,
}

impl Member {
    pub(super) fn new(index: usize, stage: &mut Stage) -> Self {
        Self {
            index,
            soft: stage.soft(),
            association: None,
            lost: Vec::new(),
            is_new: true,
            events: 0,
            last_count: 0,
        }
    }

    fn address(&self) -> IpAddr {
        IpAddr::from([10, 0, 1, 1 + self.index as u8])
    }

    pub(super) fn is_live(&self) -> bool {
        self.association.as_ref().is_some_and(|it| it.is_live)
    }

    pub(super) fn is_idle(&self) -> bool {
        let busy = |it: &Association| !it.open.is_empty();
        self.lost.is_empty() && !self.association.as_ref().is_some_and(busy)
    }

    pub(super) fn connect(&mut self, stage: &Stage) {
        if self.association.is_some() {
            return;
        }
        let remote = stage.remote(0);
        let local = self.address();
        let device = self.soft.device_for(remote, Some(local));
        let device = device.expect("the address is free");
        let host = CONTROLLERS[self.index];
        let options = HostOptions {
            local: Some(local),
            io_queues: IO_QUEUES,
            queue_entries: 16,
            kato_ms: 5000,
            timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(60),
            recovery: Recovery::NONE,
            requeue: false,
            hostid: [host; 16],
            ..HostOptions::new(
                remote,
                nqn(NQN),
                Identity::named(host_nqn(&host.to_string())),
            )
        };
        let controller = Controller::begin(&device, options, stage.now());
        let controller = controller.expect("there is memory");
        let buffers = controller.buffer(BUFFERS * BUFFER_BYTES);
        self.is_new = true;
        self.association = Some(Association {
            buffers: buffers.expect("there is memory").split(BUFFER_BYTES),
            controller,
            open: Vec::new(),
            is_live: false,
        });
    }

    /// Polls, and adds ended commands to `answered`. Returns the time of the next necessary poll.
    pub(super) fn poll(&mut self, stage: &Stage, answered: &mut Vec<Ending>) -> Option<Instant> {
        let before = self.soft.step();
        let own = self.poll_association(stage, answered);
        answered.extend(self.lost.drain(..).map(|number| (number, None)));
        let after = self.soft.step();
        [before, own, after].into_iter().flatten().min()
    }

    fn poll_association(&mut self, stage: &Stage, answered: &mut Vec<Ending>) -> Option<Instant> {
        let mut busy = true;
        while busy {
            busy = self.association.as_mut()?.controller.poll(stage.now());
            self.collect(answered);
            self.take_events(stage);
            let endpoint = self.association.as_mut()?.controller.endpoint();
            busy |= endpoint.arm().unwrap_or(false);
        }
        self.association.as_ref()?.controller.next_deadline()
    }

    fn take_events(&mut self, stage: &Stage) {
        let Some(association) = &mut self.association else {
            return;
        };
        while let Some(event) = association.controller.take_event() {
            stage.note(|| format!("controller {}: {event:?}", self.index));
            match event {
                Event::Live { .. } => (association.is_live, self.last_count) = (true, 0),
                Event::Lost(_) | Event::Gone(_) => association.is_live = false,
                Event::Notice(Notice::Other(AsyncEvent::RESERVATION_LOG_AVAILABLE)) => {
                    self.events += 1;
                }
                _ => {}
            }
        }
        if association.controller.state() == AssociationState::Gone {
            self.let_go();
        }
    }

    fn let_go(&mut self) {
        if let Some(association) = self.association.take() {
            let open = association.open.iter();
            self.lost.extend(open.map(|open| open.number));
            self.is_new = true;
        }
    }

    pub(super) fn die(&mut self, stage: &mut Stage) {
        let soft = stage.soft();
        let old = std::mem::replace(&mut self.soft, soft);
        let association = self.association.take();
        let Some(association) = association else {
            return;
        };
        let open = association.open.iter();
        self.lost.extend(open.map(|open| open.number));
        self.is_new = true;
        stage.silently(self.address(), || {
            drop(association);
            let _ = old.step();
        });
    }

    pub(super) fn forget_lost(&mut self) {
        self.lost.clear();
    }

    pub(super) fn reset(&mut self) {
        if let Some(association) = self.association.as_mut().filter(|it| it.is_live) {
            association.is_live = false;
            association.controller.reset();
            self.is_new = true;
        }
    }

    pub(super) fn leave(&mut self) {
        if let Some(association) = &mut self.association {
            association.is_live = false;
            association.controller.shutdown();
            self.is_new = true;
        }
    }

    /// Returns false if the controller is not live, or has no room.
    pub(super) fn send(&mut self, queue: usize, nsid: u32, what: Command, number: usize) -> bool {
        let Some(association) = self.association.as_mut().filter(|it| it.is_live) else {
            return false;
        };
        let Some(mut buffer) = association.buffers.pop() else {
            return false;
        };
        let (sqe, out, length) = encode(nsid, &what);
        let controller = &mut association.controller;
        buffer.write(0, &out);
        let in_capsule = number.is_multiple_of(2) && !out.is_empty();
        let (data, spare) = match length {
            0 => (Data::None, Some(buffer)),
            _ if in_capsule => (Data::InCapsule(&out), Some(buffer)),
            _ => (Data::start_of(buffer, length as u32), None),
        };
        let sent = match is_admin(&what) {
            true => controller.submit_admin(sqe, data),
            false => controller.submit_on(controller.io_queue(queue), sqe, data),
        };
        association.buffers.extend(spare);
        match sent {
            Ok(ticket) => association.open.push(Open {
                ticket,
                number,
                command: what,
            }),
            Err(unsent) => {
                association.buffers.extend(unsent.buffer);
                return false;
            }
        }
        true
    }

    fn collect(&mut self, answered: &mut Vec<Ending>) {
        let Some(association) = &mut self.association else {
            return;
        };
        let mut at = 0;
        while let Some(open) = association.open.get(at) {
            let Some(ended) = association.controller.take(open.ticket) else {
                at += 1;
                continue;
            };
            let open = association.open.swap_remove(at);
            let answer = read(&open.command, &ended, &mut self.last_count);
            association.buffers.extend(ended.buffer);
            answered.push((open.number, answer));
        }
    }
}

pub(super) type Ending = (usize, Option<Answer>);

fn is_admin(what: &Command) -> bool {
    matches!(
        what,
        Command::SetMask(_)
            | Command::GetMask
            | Command::SetPersistence(_)
            | Command::GetPersistence
            | Command::Log
            | Command::Identify
    )
}

/// Returns the command, its data to the controller, and the length of all data.
fn encode(nsid: u32, what: &Command) -> (Sqe, Vec<u8>, usize) {
    let to_host = |sqe, length| (sqe, Vec::new(), length);
    let from_host = |sqe, data: Vec<u8>| {
        let length = data.len();
        (sqe, data, length)
    };
    let two = |first: u64, second: u64| [first.to_le_bytes(), second.to_le_bytes()].concat();
    let feature = |fid: Feature, value| command::set_features(fid.0, nsid, value);
    let get = |fid: Feature| command::get_features(fid.0, Select::CURRENT, nsid, 0);
    match *what {
        Command::Register { keys, cptpl } => {
            let keys = Keys { rtype: 0, ..keys };
            let mut sqe = with_keys(NvmOpcode::RESERVATION_REGISTER, nsid, &keys);
            sqe.cdw10.set(sqe.cdw10.get() | u32::from(cptpl) << 30);
            from_host(sqe, two(keys.current, keys.other))
        }
        Command::Acquire(keys) => from_host(
            with_keys(NvmOpcode::RESERVATION_ACQUIRE, nsid, &keys),
            two(keys.current, keys.other),
        ),
        Command::Release(keys) => from_host(
            with_keys(NvmOpcode::RESERVATION_RELEASE, nsid, &keys),
            keys.current.to_le_bytes().to_vec(),
        ),
        Command::Report { extended } => {
            let length = HEADER_BYTES + usize::from(HOSTS + 1) * REGISTRANT_BYTES;
            let mut sqe = command::plain(NvmOpcode::RESERVATION_REPORT.0, nsid);
            sqe.cdw10.set(length as u32 / 4 - 1);
            sqe.cdw11.set(extended.into());
            to_host(sqe, length)
        }
        Command::Io { io, block } => encode_io(nsid, io, block as u64),
        Command::Flush => to_host(command::flush(nsid), 0),
        Command::SetMask(mask) => to_host(
            feature(Feature::RESERVATION_NOTIFICATION_MASK, mask.into()),
            0,
        ),
        Command::GetMask => to_host(get(Feature::RESERVATION_NOTIFICATION_MASK), 0),
        Command::SetPersistence(ptpl) => {
            to_host(feature(Feature::RESERVATION_PERSISTENCE, ptpl.into()), 0)
        }
        Command::GetPersistence => to_host(get(Feature::RESERVATION_PERSISTENCE), 0),
        Command::Log => {
            let page = LogPage::RESERVATION_NOTIFICATION;
            let sqe = command::get_log_page(page, 0, 0, LOG_BYTES as u32, false);
            to_host(sqe, LOG_BYTES)
        }
        Command::Identify => to_host(command::identify(Cns::NAMESPACE, nsid), 4096),
    }
}

fn encode_io(nsid: u32, io: Io, block: u64) -> (Sqe, Vec<u8>, usize) {
    let filled = |sqe, value: u8| (sqe, vec![value; BLOCK_BYTES], BLOCK_BYTES);
    match io {
        Io::Read => (command::read(nsid, block, 1), Vec::new(), BLOCK_BYTES),
        Io::Verify => (command::verify(nsid, block, 1), Vec::new(), 0),
        Io::Compare(value) => filled(command::compare(nsid, block, 1), value),
        Io::Write(value) => filled(command::write(nsid, block, 1), value),
        Io::WriteZeroes => {
            let sqe = command::write_zeroes(nsid, block, 1, false);
            (sqe, Vec::new(), 0)
        }
        Io::Deallocate => {
            let mut range = vec![0; 16];
            range[4] = 1;
            range[8..].copy_from_slice(&block.to_le_bytes());
            (command::deallocate(nsid, 1), range, 16)
        }
        Io::Copy => {
            let mut range = vec![0; 32];
            range[8..16].copy_from_slice(&(1 - block).to_le_bytes());
            (command::copy(nsid, block, 1), range, 32)
        }
    }
}

fn with_keys(opcode: NvmOpcode, nsid: u32, keys: &Keys) -> Sqe {
    let mut sqe = command::plain(opcode.0, nsid);
    let (action, rtype) = (u32::from(keys.action), u32::from(keys.rtype));
    let iekey = u32::from(keys.iekey);
    sqe.cdw10.set(action | iekey << 3 | rtype << 8);
    sqe
}

fn read(what: &Command, ended: &Ended, last_count: &mut u64) -> Option<Answer> {
    let response = ended.answer.as_ref().ok()?;
    let status = response.cqe.status().code();
    let bytes = |length| {
        let buffer = ended.buffer.as_ref().expect("the data is in a buffer");
        buffer.bytes(0, length)
    };
    let shown = match what {
        _ if !status.is_success() => Shown::Nothing,
        Command::Report { .. } => {
            let length = HEADER_BYTES + usize::from(HOSTS + 1) * REGISTRANT_BYTES;
            Shown::Report(parse_report(&bytes(length)))
        }
        Command::Io { io: Io::Read, .. } => {
            let block = bytes(BLOCK_BYTES);
            assert!(block.iter().all(|byte| *byte == block[0]), "a torn block");
            Shown::Block(block[0])
        }
        Command::GetMask | Command::GetPersistence => Shown::Dword(response.cqe.dw0.get()),
        Command::Log => parse_log(&bytes(LOG_BYTES), last_count),
        _ => Shown::Nothing,
    };
    Some(Answer { status, shown })
}

fn number(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn parse_report(bytes: &[u8]) -> Report {
    let (header, rest) = bytes.split_at(HEADER_BYTES);
    let count = number(&header[5..7]) as usize;
    let (entries, unused) = rest.split_at(count * REGISTRANT_BYTES);
    assert!(unused.iter().all(|byte| *byte == 0), "{unused:?}");
    let registrants = entries.chunks_exact(REGISTRANT_BYTES).map(|entry| {
        assert_eq!(number(&entry[..2]), 0xffff, "the controllers are dynamic");
        let host = entry[16];
        assert_eq!(entry[16..32], [host; 16]);
        (host, (number(&entry[8..16]), entry[2]))
    });
    let registrants: BTreeMap<u8, (u64, u8)> = registrants.collect();
    assert_eq!(registrants.len(), count, "a host is reported twice");
    Report {
        generation: number(&header[..4]) as u32,
        rtype: header[4],
        ptpls: header[9],
        registrants,
    }
}

fn parse_log(bytes: &[u8], last_count: &mut u64) -> Shown {
    let count = number(&bytes[..8]);
    let (kind, others, nsid) = (bytes[8], bytes[9], number(&bytes[12..16]) as u32);
    assert_eq!(count == 0, kind == 0, "a count of {count} of type {kind}");
    if count > 0 {
        assert!(count != *last_count, "a notification is reported twice");
        *last_count = count;
    }
    Shown::Notice(nsid, kind, others)
}
