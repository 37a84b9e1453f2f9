use anyhow::{Context, Result, ensure};
use cairn_initiator::command;
use cairn_rdma::QpId;
use nvme_proto::wire::identify::{Cns, IdentifyNamespace};
use nvme_proto::wire::sgl::{SUBTYPE_OFFSET, SglType};
use nvme_proto::wire::{FromBytes, IntoBytes, SglDescriptor, Sqe, Status, U16};

use super::peer::{BUFFER, Peer};
use super::{BLOCK_BYTES, Setting};
use crate::case::suite;

suite! {
    sgl_length_disagrees: "an SGL longer or shorter than the command's data fails with Data SGL Length Invalid",
    keyed_without_length: "a keyed SGL of no length on a command with data fails with Data SGL Length Invalid",
    data_without_use: "data on a command that takes none fails with Data SGL Length Invalid",
    bad_sgl_types: "unknown and unsupported descriptors fail with SGL Descriptor Type Invalid",
    in_capsule_beyond_the_capsule: "in-capsule data beyond what came fail with SGL Offset Invalid",
    in_capsule_for_a_read: "a read into the capsule fails with Invalid Field",
    address_wraps: "a keyed SGL that wraps around the address space fails",
    wrong_rkey_on_read: "a read with a wrong key closes the queue",
    wrong_rkey_on_write: "a write with a wrong key closes the queue",
    write_only_memory: "a key that ends in the middle of the data closes the queue",
    lba_out_of_range: "blocks beyond the namespace fail with LBA Out of Range",
    too_large: "a transfer beyond MDTS fails with Invalid Field",
}

struct Bench {
    peer: Peer,
    admin: QpId,
    io: QpId,
    nsze: u64,
}

impl Bench {
    fn open(setting: &Setting) -> Result<Self> {
        let (mut peer, admin, io) = Peer::with_io_queue(setting)?;
        let mut identify = command::identify(Cns::NAMESPACE, setting.nsid);
        identify.dptr = peer.keyed(4096);
        let identify = ready(&mut peer, identify);
        peer.expect(admin, identify, Status::SUCCESS)?;
        let bytes = peer.node.bytes(BUFFER, 4096);
        let namespace = IdentifyNamespace::read_from_bytes(&bytes).ok();
        let namespace = namespace.context("Identify Namespace has 4096 bytes")?;
        Ok(Self {
            peer,
            admin,
            io,
            nsze: namespace.nsze.get(),
        })
    }

    fn expect(&mut self, sqe: Sqe, dptr: SglDescriptor, status: Status) -> Result<()> {
        let mut sqe = ready(&mut self.peer, sqe);
        sqe.dptr = dptr;
        self.peer
            .expect(self.io, sqe, status)
            .with_context(|| format!("opcode {:#x} with {dptr:?}", sqe.opc))?;
        Ok(())
    }
}

fn sgl_length_disagrees(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    for length in [
        1,
        BLOCK_BYTES - 1,
        BLOCK_BYTES,
        BLOCK_BYTES * 2 - 1,
        BLOCK_BYTES * 2 + 1,
        BLOCK_BYTES * 4,
    ] {
        let dptr = bench.peer.keyed(length);
        for sqe in [
            command::read(setting.nsid, 0, 2),
            command::write(setting.nsid, 0, 2),
            command::compare(setting.nsid, 0, 2),
        ] {
            bench.expect(sqe, dptr, Status::DATA_SGL_LENGTH_INVALID)?;
        }
    }
    let mut identify = command::identify(Cns::CONTROLLER, 0);
    for length in [512, 4095, 4097] {
        identify.dptr = bench.peer.keyed(length);
        let identify = ready(&mut bench.peer, identify);
        bench
            .peer
            .expect(bench.admin, identify, Status::DATA_SGL_LENGTH_INVALID)?;
    }
    Ok(())
}

fn keyed_without_length(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    for dptr in [bench.peer.keyed(0), SglDescriptor::none()] {
        for sqe in [
            command::read(setting.nsid, 0, 1),
            command::write(setting.nsid, 0, 1),
            command::compare(setting.nsid, 0, 1),
            command::deallocate(setting.nsid, 1),
        ] {
            bench.expect(sqe, dptr, Status::DATA_SGL_LENGTH_INVALID)?;
        }
        let mut identify = command::identify(Cns::CONTROLLER, 0);
        identify.dptr = dptr;
        let identify = ready(&mut bench.peer, identify);
        bench
            .peer
            .expect(bench.admin, identify, Status::DATA_SGL_LENGTH_INVALID)?;
    }
    Ok(())
}

fn data_without_use(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let dptr = bench.peer.keyed(BLOCK_BYTES);
    for sqe in [
        command::flush(setting.nsid),
        command::write_zeroes(setting.nsid, 0, 1, false),
        command::verify(setting.nsid, 0, 1),
    ] {
        bench.expect(sqe, dptr, Status::DATA_SGL_LENGTH_INVALID)?;
    }
    Ok(())
}

fn bad_sgl_types(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let good = bench.peer.keyed(BLOCK_BYTES);
    for identifier in 0..=u8::MAX {
        if matches!(identifier, 0x01 | 0x31 | 0x40 | 0x4f) {
            continue;
        }
        let mut dptr = good;
        dptr.0[15] = identifier;
        for sqe in [
            command::read(setting.nsid, 0, 1),
            command::write(setting.nsid, 0, 1),
        ] {
            bench.expect(sqe, dptr, Status::SGL_DESCRIPTOR_TYPE_INVALID)?;
        }
    }
    Ok(())
}

fn in_capsule_beyond_the_capsule(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    for (offset, came) in [
        (0, 0),
        (0, BLOCK_BYTES - 1),
        (1, BLOCK_BYTES),
        (4096, 64),
        (u64::MAX, BLOCK_BYTES),
        (u64::MAX - 511, BLOCK_BYTES),
        (1 << 40, BLOCK_BYTES),
    ] {
        let mut sqe = ready(&mut bench.peer, command::write(setting.nsid, 0, 1));
        sqe.dptr = SglDescriptor::in_capsule(offset, BLOCK_BYTES);
        let mut capsule = sqe.as_bytes().to_vec();
        capsule.resize(capsule.len() + came as usize, 0xee);
        bench
            .peer
            .expect_capsule(bench.io, &capsule, Status::SGL_OFFSET_INVALID)
            .with_context(|| format!("offset {offset:#x}, {came} bytes came"))?;
    }
    Ok(())
}

fn in_capsule_for_a_read(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let dptr = SglDescriptor::in_capsule(0, BLOCK_BYTES);
    ensure!(
        dptr.sgl_type() == SglType::DATA_BLOCK && dptr.subtype() == SUBTYPE_OFFSET,
        "the descriptor is not the one that is meant"
    );
    bench.expect(
        command::read(setting.nsid, 0, 1),
        dptr,
        Status::INVALID_FIELD,
    )
}

fn address_wraps(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let rkey = bench.peer.node.rkey();
    let dptr = SglDescriptor::keyed(u64::MAX - 16, BLOCK_BYTES, rkey, false);
    for sqe in [
        command::read(setting.nsid, 0, 1),
        command::write(setting.nsid, 0, 1),
    ] {
        bench.expect(sqe, dptr, Status::DATA_SGL_LENGTH_INVALID)?;
    }
    Ok(())
}

fn wrong_rkey_on_read(setting: &Setting) -> Result<()> {
    wrong_key(setting, command::read(setting.nsid, 0, 1))
}

fn wrong_rkey_on_write(setting: &Setting) -> Result<()> {
    wrong_key(setting, command::write(setting.nsid, 0, 1))
}

fn wrong_key(setting: &Setting, sqe: Sqe) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let there = bench.peer.node.remote(BUFFER);
    let mut sqe = ready(&mut bench.peer, sqe);
    sqe.dptr = SglDescriptor::keyed(there.addr, BLOCK_BYTES, there.rkey ^ 0x5a5a_5a00, false);
    bench.peer.say(bench.io, sqe.as_bytes())?;
    bench.peer.expect_closed(bench.io)
}

fn write_only_memory(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let end = bench.peer.node.region.mapping().len();
    let there = bench.peer.node.remote(end - 256);
    let mut sqe = ready(&mut bench.peer, command::read(setting.nsid, 0, 1));
    sqe.dptr = SglDescriptor::keyed(there.addr, BLOCK_BYTES, there.rkey, false);
    bench.peer.say(bench.io, sqe.as_bytes())?;
    bench.peer.expect_closed(bench.io)
}

fn lba_out_of_range(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let dptr = bench.peer.keyed(2 * BLOCK_BYTES);
    let nsze = bench.nsze;
    for slba in [
        nsze - 1,
        nsze,
        nsze + 1,
        u64::MAX / 512,
        u64::MAX - 1,
        u64::MAX,
    ] {
        for sqe in [
            command::read(setting.nsid, slba, 2),
            command::write(setting.nsid, slba, 2),
            command::compare(setting.nsid, slba, 2),
        ] {
            bench.expect(sqe, dptr, Status::LBA_OUT_OF_RANGE)?;
        }
        let zeroes = command::write_zeroes(setting.nsid, slba, 2, true);
        bench.expect(zeroes, SglDescriptor::none(), Status::LBA_OUT_OF_RANGE)?;
    }
    Ok(())
}

fn too_large(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let blocks = 0x1_0000;
    let dptr = bench.peer.keyed(0x00ff_ffff);
    for sqe in [
        command::read(setting.nsid, 0, blocks),
        command::write(setting.nsid, 0, blocks),
    ] {
        bench.expect(sqe, dptr, Status::INVALID_FIELD)?;
    }
    Ok(())
}

fn ready(peer: &mut Peer, mut sqe: Sqe) -> Sqe {
    sqe.flags = Sqe::FLAGS_SGL;
    sqe.cid = U16::new(peer.new_cid());
    sqe
}
