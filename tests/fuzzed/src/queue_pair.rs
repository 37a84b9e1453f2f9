//! Queue pair that receives arbitrary packets from its peer.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use cairn_rdma::{
    Access, CompletionKind, Operation, PKey, QpId, RecvWork, RemoteBuffer, SendWork, Sge,
};
use cairn_roce_proto::counters::Counters;
use cairn_roce_proto::qp::memory::{Memory, Refused};
use cairn_roce_proto::qp::work::{CompletionQueue, ReceiveQueue};
use cairn_roce_proto::qp::{Context, Qp, QpConfig};
use cairn_roce_proto::time::Instant;
use cairn_roce_proto::wire::{Aeth, Opcode, Packet, Reth};

use crate::input::Input;

const ID: QpId = QpId::new(0, 1);
const KEY: u32 = 0x100;
const BASE: u64 = 0x10_0000;
const BYTES: usize = 16 << 10;
const FRAME_BYTES: usize = 2048;
const SEND_WORK: u32 = 16;
const RECEIVES: usize = 8;
const STEPS_MAX: usize = 200;
/// Maximum packets in response to one packet; the response to an RDMA READ is the longest.
const SENDS_MAX: usize = 4096;

#[derive(Debug)]
struct Region(RefCell<Vec<u8>>);

impl Region {
    fn place(key: u32, addr: u64, length: u64) -> Result<std::ops::Range<usize>, Refused> {
        let offset = addr.checked_sub(BASE).ok_or(Refused)?;
        let end = offset.checked_add(length).ok_or(Refused)?;
        if key != KEY || end > BYTES as u64 {
            return Err(Refused);
        }
        Ok(offset as usize..end as usize)
    }

    fn each(
        sges: &[Sge],
        offset: u64,
        length: usize,
        mut take: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
    ) -> Result<(), Refused> {
        let (mut skip, mut done) = (offset, 0);
        for sge in sges {
            let own = u64::from(sge.length);
            if skip >= own {
                skip -= own;
                continue;
            }
            let count = ((own - skip) as usize).min(length - done);
            let place = Self::place(sge.lkey, sge.addr + skip, count as u64)?;
            take(place, done..done + count);
            (skip, done) = (0, done + count);
        }
        if done == length { Ok(()) } else { Err(Refused) }
    }
}

impl Memory for Region {
    fn check(&self, rkey: u32, addr: u64, length: u64, _: Access) -> Result<(), Refused> {
        if length == 0 {
            return Ok(());
        }
        Self::place(rkey, addr, length).map(|_| ())
    }

    fn read(&self, rkey: u32, addr: u64, out: &mut [u8], _: Access) -> Result<(), Refused> {
        let place = Self::place(rkey, addr, out.len() as u64)?;
        out.copy_from_slice(&self.0.borrow()[place]);
        Ok(())
    }

    fn prefetch(&self, _: u32, _: u64, _: u64, _: Access) {}

    fn write(&self, rkey: u32, addr: u64, bytes: &[u8], _: Access) -> Result<(), Refused> {
        let place = Self::place(rkey, addr, bytes.len() as u64)?;
        self.0.borrow_mut()[place].copy_from_slice(bytes);
        Ok(())
    }

    fn invalidate(&self, rkey: u32) -> Result<(), Refused> {
        if rkey == KEY { Ok(()) } else { Err(Refused) }
    }

    fn knows(&self, rkey: u32) -> bool {
        rkey == KEY
    }

    fn check_local(&self, sges: &[Sge], _: Access) -> Result<(), Refused> {
        let mut places = sges
            .iter()
            .map(|sge| Self::place(sge.lkey, sge.addr, sge.length.into()));
        places.try_for_each(|place| place.map(|_| ()))
    }

    fn gather(&self, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), Refused> {
        let own = self.0.borrow();
        Self::each(sges, offset, out.len(), |place, at| {
            out[at].copy_from_slice(&own[place]);
        })
    }

    fn prefetch_gather(&self, _: &[Sge], _: u64, _: u64) {}

    fn scatter(&self, sges: &[Sge], offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let mut own = self.0.borrow_mut();
        Self::each(sges, offset, bytes.len(), |place, at| {
            own[place].copy_from_slice(&bytes[at]);
        })
    }
}

struct Rig {
    qp: Qp,
    memory: Region,
    receives: ReceiveQueue,
    completions: CompletionQueue,
    counters: Counters,
    now: Instant,
    sends: BTreeSet<u64>,
    receiving: BTreeSet<u64>,
    next_id: u64,
}

pub(crate) fn run(bytes: &[u8]) {
    let mut rig = Rig::new();
    let mut input = Input::new(bytes);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        rig.step(&mut input);
        rig.transmit();
        rig.take_completions();
    }
    rig.with(|qp, _, cx| qp.flush(cx));
    rig.take_completions();
    assert!(rig.sends.is_empty(), "{:?}", rig.sends);
}

impl Rig {
    fn new() -> Self {
        let config = QpConfig {
            dest_qpn: 9,
            pkey: PKey::DEFAULT,
            mtu: 256,
            long_send: None,
            send_psn: 0x00ff_fff0,
            receive_psn: 0x00ff_fffa,
            send_work: SEND_WORK,
            initiator_depth: 2,
            responder_resources: 2,
            retry_count: 3,
            rnr_retry_count: 3,
            min_rnr_timer: 1,
            ack_timeout: Some(Duration::from_millis(1)),
        };
        let mut qp = Qp::new(&config, Instant::START);
        qp.release();
        Self {
            qp,
            memory: Region(RefCell::new(vec![0; BYTES])),
            receives: ReceiveQueue::new(RECEIVES),
            completions: CompletionQueue::new(1024, 1),
            counters: Counters::default(),
            now: Instant::START,
            sends: BTreeSet::new(),
            receiving: BTreeSet::new(),
            next_id: 1,
        }
    }

    fn with<T>(&mut self, call: impl FnOnce(&mut Qp, Instant, &mut Context<'_>) -> T) -> T {
        let mut cx = Context {
            qp: ID,
            memory: &self.memory,
            receives: &mut self.receives,
            completions: &mut self.completions,
            counters: &mut self.counters,
        };
        call(&mut self.qp, self.now, &mut cx)
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0..3 => self.likely_packet(input),
            3 => {
                let length = usize::from(input.byte()) + 12;
                if let Ok(packet) = Packet::parse(input.bytes(length)) {
                    self.with(|qp, now, cx| qp.handle_packet(&packet, true, now, cx));
                }
            }
            4 | 5 => self.post(input),
            6 => {
                let work = RecvWork {
                    id: self.id(),
                    sges: bytes_of(input).into(),
                };
                if self.receives.post(&[work]) {
                    self.receiving.insert(work.id);
                }
            }
            _ => {
                self.now += Duration::from_micros(input.short().into());
                if self.qp.poll_timeout().is_some_and(|at| at <= self.now) {
                    self.with(|qp, now, cx| qp.handle_timeout(now, cx));
                }
            }
        }
    }

    fn likely_packet(&mut self, input: &mut Input<'_>) {
        let opcode = Opcode::ALL[usize::from(input.byte()) % Opcode::ALL.len()];
        let psn = 0x00ff_ffe8 + u32::from(input.byte() % 64);
        let mut packet = Packet::new(opcode, 3, psn & 0x00ff_ffff);
        let flags = input.byte();
        packet.bth.ack_req = flags & 1 != 0;
        packet.bth.solicited = flags & 2 != 0;
        if opcode.has_reth() {
            packet.reth = Some(Reth {
                va: BASE + u64::from(input.short()),
                rkey: KEY + u32::from(flags >> 7),
                dma_len: input.short().into(),
            });
        }
        if opcode.has_aeth() {
            packet.aeth = Some(Aeth {
                syndrome: input.byte(),
                msn: input.byte().into(),
            });
        }
        let mut bytes = [0; FRAME_BYTES];
        let headers = packet.emit(&mut bytes);
        let length = usize::from(input.short() % 300);
        let rest = input.bytes(length);
        bytes[headers..headers + rest.len()].copy_from_slice(rest);
        let Ok(packet) = Packet::parse(&bytes[..headers + rest.len()]) else {
            return;
        };
        self.with(|qp, now, cx| qp.handle_packet(&packet, false, now, cx));
    }

    fn post(&mut self, input: &mut Input<'_>) {
        let remote = RemoteBuffer {
            addr: 0x77,
            rkey: 5,
        };
        let op = match input.byte() % 4 {
            0 => Operation::Send,
            1 => Operation::SendWithInvalidate { rkey: 5 },
            2 => Operation::Write(remote),
            _ => Operation::Read(remote),
        };
        let work = SendWork {
            id: self.id(),
            op,
            sges: bytes_of(input).into(),
            signaled: true,
        };
        let posted = self.with(|qp, _, cx| qp.post(std::iter::once(work), cx));
        if posted.is_ok() {
            self.sends.insert(work.id);
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn transmit(&mut self) {
        let mut out = [0; FRAME_BYTES];
        for _ in 0..SENDS_MAX {
            let length = self.with(|qp, now, cx| qp.poll_transmit(now, &mut out, cx));
            let Some(length) = length else { return };
            Packet::parse(&out[..length]).expect("its own packet");
        }
        panic!("it sends without end");
    }

    fn take_completions(&mut self) {
        while let Some(completion) = self.completions.pop() {
            assert_eq!(completion.qp, ID);
            let known = match completion.kind {
                CompletionKind::Recv => &mut self.receiving,
                _ => &mut self.sends,
            };
            assert!(known.remove(&completion.id), "{completion:?} ended twice");
        }
    }
}

fn bytes_of(input: &mut Input<'_>) -> Sge {
    Sge {
        addr: BASE + u64::from(input.short()),
        length: input.short().into(),
        lkey: KEY,
    }
}
