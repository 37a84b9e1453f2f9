use std::collections::HashSet;

use anyhow::{Context, Result, bail, ensure};
use cairn_initiator::command;
use cairn_rdma::QpId;
use nvme_proto::limits::NAMESPACES_MAX;
use nvme_proto::wire::sqe::SQE_BYTES;
use nvme_proto::wire::{
    AdminOpcode, FromBytes, IntoBytes, NvmOpcode, SglDescriptor, Sqe, Status, U16, U32,
};

use super::peer::{Answer, BUFFER_LEN, ENTRIES, Peer};
use super::{BLOCK_BYTES, Setting};
use crate::case::suite;
use crate::node::SLOT;
use cairn_sim::Random;

suite! {
    short_capsule: "a capsule shorter than an SQE closes the queue",
    oversized_capsule: "a capsule longer than IOCCSZ closes the queue",
    duplicate_cid: "a command whose CID is in use already is answered once, or closes the queue",
    every_opcode: "each opcode without meaning fails with Invalid Command Opcode",
    reserved_flags: "fused Reads, fused admin commands and PRPs fail with Invalid Field",
    random_capsules: "random capsules are each answered once, or close the queue",
}

fn short_capsule(setting: &Setting) -> Result<()> {
    for length in [0, 1, 16, 63] {
        for on_admin in [false, true] {
            let (mut peer, admin, io) = Peer::with_io_queue(setting)?;
            let qp = if on_admin { admin } else { io };
            let flush = plain(&mut peer, command::flush(setting.nsid));
            peer.say(qp, &flush.as_bytes()[..length])?;
            peer.expect_closed(qp)
                .with_context(|| format!("a capsule of {length} bytes"))?;
        }
    }
    let mut peer = Peer::open(setting)?;
    let qp = peer.dial_queue(0, ENTRIES)?;
    peer.say(qp, &[0x7f; 63])?;
    peer.expect_closed(qp)
}

fn oversized_capsule(setting: &Setting) -> Result<()> {
    for on_admin in [false, true] {
        let (mut peer, admin, io) = Peer::with_io_queue(setting)?;
        let qp = if on_admin { admin } else { io };
        let mut capsule = plain(&mut peer, command::flush(setting.nsid))
            .as_bytes()
            .to_vec();
        capsule.resize(SLOT, 0x5a);
        peer.say(qp, &capsule)?;
        peer.expect_closed(qp)?;
    }
    Ok(())
}

fn duplicate_cid(setting: &Setting) -> Result<()> {
    let (mut peer, admin) = Peer::with_controller(setting)?;
    let waiting = plain(&mut peer, command::async_event_request());
    peer.say(admin, waiting.as_bytes())?;
    let mut second = plain(&mut peer, command::keep_alive());
    second.cid = waiting.cid;
    peer.say(admin, second.as_bytes())?;
    // The target may accept the second command: it need not detect a CID conflict (Base, figure
    // 94).
    match peer.receive(admin)? {
        Answer::Closed => Ok(()),
        Answer::Response(cqe) => {
            let status = cqe.status().code();
            ensure!(
                matches!(status, Status::COMMAND_ID_CONFLICT | Status::SUCCESS),
                "it ended in {status}"
            );
            Ok(())
        }
    }
}

fn every_opcode(setting: &Setting) -> Result<()> {
    let (mut peer, admin, io) = Peer::with_io_queue(setting)?;
    let (admin_known, io_known) = (known_admin(), known_io());
    for opcode in 0..=u8::MAX {
        for (qp, known) in [(admin, &admin_known), (io, &io_known)] {
            if known.contains(&opcode) {
                continue;
            }
            let sqe = plain(&mut peer, command::plain(opcode, setting.nsid));
            peer.expect(qp, sqe, Status::INVALID_OPCODE)
                .with_context(|| format!("opcode {opcode:#04x}"))?;
            let mut sqe = plain(&mut peer, command::plain(opcode, setting.nsid));
            sqe.flags = 0;
            peer.expect(qp, sqe, Status::INVALID_OPCODE)
                .with_context(|| format!("opcode {opcode:#04x} without an SGL"))?;
        }
    }
    Ok(())
}

fn reserved_flags(setting: &Setting) -> Result<()> {
    let (mut peer, admin, io) = Peer::with_io_queue(setting)?;
    for flags in [0x00, 0x41, 0x42, 0xc0] {
        let mut sqe = plain(&mut peer, command::keep_alive());
        sqe.flags = flags;
        peer.expect(admin, sqe, Status::INVALID_FIELD)
            .with_context(|| format!("flags {flags:#04x} on the admin queue"))?;
        let mut sqe = plain(&mut peer, command::read(setting.nsid, 0, 1));
        sqe.dptr = peer.keyed(BLOCK_BYTES);
        sqe.flags = flags;
        peer.expect(io, sqe, Status::INVALID_FIELD)
            .with_context(|| format!("flags {flags:#04x} on an I/O queue"))?;
    }
    Ok(())
}

fn random_capsules(setting: &Setting) -> Result<()> {
    const BATCH: u32 = 16;
    let mut noise = Noise(Random::new(setting.seed));
    let mut seat: Option<(Peer, QpId, QpId)> = None;
    for batch in 0..setting.random_capsules.div_ceil(BATCH) {
        let (mut peer, admin, io) = match seat.take() {
            Some(seat) => seat,
            None => Peer::with_io_queue(setting)?,
        };
        let on_admin = batch % 2 == 0;
        let qp = if on_admin { admin } else { io };
        let survived = one_batch(&mut peer, qp, on_admin, BATCH, &mut noise)
            .with_context(|| format!("batch {batch} of seed {}", setting.seed))?;
        if survived {
            seat = Some((peer, admin, io));
        }
    }
    Ok(())
}

fn one_batch(
    peer: &mut Peer,
    qp: QpId,
    on_admin: bool,
    count: u32,
    noise: &mut Noise,
) -> Result<bool> {
    let mut unanswered = HashSet::new();
    let mut capsules = Vec::new();
    for _ in 0..count {
        let cid = peer.new_cid();
        capsules.push(noise.capsule(peer, cid, on_admin));
        unanswered.insert(cid);
    }
    let last = if on_admin {
        plain(peer, command::keep_alive())
    } else {
        plain(peer, command::flush(peer.nsid))
    };
    capsules.push(last.as_bytes().to_vec());
    unanswered.insert(last.cid.get());
    let slices: Vec<&[u8]> = capsules.iter().map(Vec::as_slice).collect();
    peer.say_all(qp, &slices)?;
    let waits = |capsule: &Vec<u8>| on_admin && capsule[0] == AdminOpcode::ASYNC_EVENT_REQUEST.0;
    let may_wait: HashSet<u16> = capsules
        .iter()
        .filter(|capsule| waits(capsule))
        .map(|capsule| u16::from_le_bytes([capsule[2], capsule[3]]))
        .collect();
    while unanswered.iter().any(|cid| !may_wait.contains(cid)) {
        match peer.receive(qp)? {
            Answer::Closed => return Ok(false),
            Answer::Response(cqe) => {
                let cid = cqe.cid.get();
                ensure!(
                    unanswered.remove(&cid),
                    "command {cid:#x} was answered twice"
                );
            }
        }
    }
    Ok(unanswered.is_empty() && is_ready(peer, qp, on_admin)?)
}

fn is_ready(peer: &mut Peer, qp: QpId, on_admin: bool) -> Result<bool> {
    if on_admin {
        return Ok(false);
    }
    let flush = plain(peer, command::flush(peer.nsid));
    peer.say(qp, flush.as_bytes())?;
    match peer.receive(qp)? {
        Answer::Closed => Ok(false),
        Answer::Response(cqe) if cqe.cid == flush.cid => Ok(cqe.status().is_success()),
        Answer::Response(cqe) => bail!("{cqe:?} answers nothing"),
    }
}

struct Noise(Random);

impl Noise {
    fn capsule(&mut self, peer: &Peer, cid: u16, on_admin: bool) -> Vec<u8> {
        let mut bytes = self.0.bytes(SQE_BYTES);
        if self.0.below(4) > 0 {
            // Most capsules have only one random byte: the target's first checks reject almost all
            // capsules of random bytes.
            let keep = self.0.below(SQE_BYTES as u64) as usize;
            for (index, byte) in bytes.iter_mut().enumerate() {
                if index != keep {
                    *byte = 0;
                }
            }
        }
        let mut sqe = Sqe::read_from_bytes(&bytes).expect("64 bytes");
        sqe.cid = U16::new(cid);
        if self.0.below(8) > 0 {
            sqe.flags = Sqe::FLAGS_SGL;
        }
        if self.0.below(8) == 0 {
            sqe.flags |= self.0.below(4) as u8;
        }
        if self.0.below(8) > 0 {
            sqe.opc = self.opcode(on_admin);
        }
        let in_use = (1..=NAMESPACES_MAX).contains(&sqe.nsid.get());
        if !sqe.is_fabrics() && (in_use || self.0.below(2) > 0) {
            sqe.nsid = U32::new(peer.nsid);
        }
        let mut data = Vec::new();
        match self.0.below(8) {
            0 => {}
            1 => sqe.dptr = SglDescriptor::none(),
            2 => {
                let length = self.0.below(1024) as u32;
                sqe.dptr = SglDescriptor::in_capsule(self.0.below(8), length);
                data = self.0.bytes(length as usize);
            }
            _ => {
                let blocks = 1 + self.0.below(u64::from(BUFFER_LEN / 512)) as u32;
                sqe.dptr = peer.keyed(blocks * 512);
                sqe.cdw12 = U32::new(blocks - 1);
            }
        }
        let mut capsule = sqe.as_bytes().to_vec();
        capsule.extend(data);
        capsule
    }

    fn opcode(&mut self, on_admin: bool) -> u8 {
        let known = if on_admin { known_admin() } else { known_io() };
        known[self.0.below(known.len() as u64) as usize]
    }
}

pub(super) fn plain(peer: &mut Peer, mut sqe: Sqe) -> Sqe {
    sqe.flags = Sqe::FLAGS_SGL;
    sqe.cid = U16::new(peer.new_cid());
    sqe.dptr = SglDescriptor::none();
    sqe
}

fn known_admin() -> Vec<u8> {
    let codes = [
        AdminOpcode::GET_LOG_PAGE,
        AdminOpcode::IDENTIFY,
        AdminOpcode::ABORT,
        AdminOpcode::SET_FEATURES,
        AdminOpcode::GET_FEATURES,
        AdminOpcode::ASYNC_EVENT_REQUEST,
        AdminOpcode::KEEP_ALIVE,
        AdminOpcode::CROSS_CONTROLLER_RESET,
        AdminOpcode::FABRICS,
    ];
    codes.map(|code| code.0).to_vec()
}

fn known_io() -> Vec<u8> {
    let codes = [
        NvmOpcode::FLUSH,
        NvmOpcode::WRITE,
        NvmOpcode::READ,
        NvmOpcode::COMPARE,
        NvmOpcode::WRITE_ZEROES,
        NvmOpcode::WRITE_UNCORRECTABLE,
        NvmOpcode::DATASET_MANAGEMENT,
        NvmOpcode::VERIFY,
        NvmOpcode::CANCEL,
        NvmOpcode::RESERVATION_REGISTER,
        NvmOpcode::RESERVATION_REPORT,
        NvmOpcode::RESERVATION_ACQUIRE,
        NvmOpcode::RESERVATION_RELEASE,
        NvmOpcode::COPY,
        NvmOpcode::FABRICS,
    ];
    codes.map(|code| code.0).to_vec()
}
