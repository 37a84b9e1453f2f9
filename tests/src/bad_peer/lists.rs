use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use cairn_base::Mapping;
use cairn_initiator::command;
use cairn_rdma::{Access, QpId};
use cairn_sim::Random;
use nvme_proto::transfer::DATA_BLOCKS_MAX;
use nvme_proto::wire::identify::{Cns, IdentifyController, Sgls};
use nvme_proto::wire::sgl::{SGL_DESCRIPTOR_BYTES, SglType};
use nvme_proto::wire::{
    Cqe, FromBytes, IntoBytes, NvmOpcode, Sgl, SglDescriptor, Sqe, Status, U16, U32,
};

use super::peer::{Answer, BUFFER, ENTRIES, Peer};
use super::{BLOCK_BYTES, Setting};
use crate::case::{Outcome, suite};

suite! {
    lists_announced: "MSDBD is 16, and SGLS has bit buckets",
    list_moves_data: "reads, writes and compares move data by up to 16 keyed descriptors of any length",
    list_bit_buckets: "a bit bucket discards data of a read, and has no effect in a write",
    list_malformed: "each malformed list of descriptors fails with its status",
    list_of_ranges: "Copy and Dataset Management take their ranges by a list",
    list_of_a_report: "a Reservation Report goes to the pieces of a list",
    list_of_a_pair: "a fused Compare and Write takes its data by lists",
    list_on_admin_queue: "a list on the admin queue fails with SGL Descriptor Type Invalid",
    list_with_a_wrong_key: "a wrong key in the second of three descriptors closes the queue",
    list_invalidates_a_key: "the response to a list invalidates the last key that the host marks",
    list_on_a_small_queue: "a queue of two entries and few RDMA READs takes lists of 16 descriptors",
    lists_at_once: "a full queue of lists of 16 descriptors moves all data",
}

const ROOM: usize = 32 * 1024;
const GAP: usize = 3;

/// Pieces of data, each with a gap before it, the last piece first.
struct Scattered {
    at: usize,
    lengths: Vec<u32>,
}

impl Scattered {
    fn new(slice: usize, lengths: &[u32]) -> Self {
        Self {
            at: BUFFER + slice * ROOM,
            lengths: lengths.to_vec(),
        }
    }

    /// Splits `bytes` into `count` pieces of random lengths, at least 1.
    fn split(slice: usize, bytes: u32, count: u32, random: &mut Random) -> Self {
        let mut lengths = vec![1; count as usize];
        let mut rest = bytes - count;
        for length in &mut lengths[1..] {
            let more = random.below(u64::from(rest) / 2 + 1) as u32;
            *length += more;
            rest -= more;
        }
        lengths[0] += rest;
        Self::new(slice, &lengths)
    }

    fn places(&self) -> Vec<(usize, usize)> {
        let mut at = self.at;
        let mut places = Vec::new();
        for &length in self.lengths.iter().rev() {
            at += GAP;
            places.insert(0, (at, length as usize));
            at += length as usize;
        }
        assert!(at <= self.at + ROOM, "{} bytes", at - self.at);
        places
    }

    fn fill(&self, peer: &Peer, bytes: &[u8]) {
        let mut bytes = bytes;
        peer.node.fill(self.at, &[0; ROOM]);
        for (at, length) in self.places() {
            let (piece, rest) = bytes.split_at(length);
            peer.node.fill(at, piece);
            bytes = rest;
        }
    }

    fn bytes(&self, peer: &Peer) -> Vec<u8> {
        let pieces = self.places().into_iter();
        pieces
            .flat_map(|(at, length)| peer.node.bytes(at, length))
            .collect()
    }

    fn descriptors(&self, peer: &Peer) -> Vec<SglDescriptor> {
        let keyed = |(at, length)| {
            let there = peer.node.remote(at);
            SglDescriptor::keyed(there.addr, length as u32, there.rkey, false)
        };
        self.places().into_iter().map(keyed).collect()
    }
}

struct Bench {
    peer: Peer,
    admin: QpId,
    io: QpId,
    random: Random,
}

impl Bench {
    fn open(setting: &Setting) -> Result<Self> {
        let (peer, admin, io) = Peer::with_io_queue(setting)?;
        Ok(Self {
            peer,
            admin,
            io,
            random: Random::new(setting.seed),
        })
    }

    fn capsule(&mut self, mut sqe: Sqe, offset: usize, list: &[SglDescriptor]) -> Vec<u8> {
        sqe.flags |= Sqe::FLAGS_SGL;
        sqe.cid = U16::new(self.peer.new_cid());
        let bytes = list.len() * SGL_DESCRIPTOR_BYTES;
        sqe.dptr = SglDescriptor::last_segment(offset as u64, bytes as u32);
        let mut capsule = sqe.as_bytes().to_vec();
        capsule.resize(capsule.len() + offset, 0xee);
        capsule.extend_from_slice(list.as_bytes());
        capsule
    }

    fn run(&mut self, sqe: Sqe, list: &[SglDescriptor], status: Status) -> Result<Cqe> {
        self.run_at(sqe, 0, list, status)
    }

    fn run_at(
        &mut self,
        sqe: Sqe,
        offset: usize,
        list: &[SglDescriptor],
        status: Status,
    ) -> Result<Cqe> {
        let capsule = self.capsule(sqe, offset, list);
        let cqe = self.peer.expect_capsule(self.io, &capsule, status);
        cqe.with_context(|| format!("opcode {:#x} with {} descriptors", sqe.opc, list.len()))
    }

    fn read(&mut self, slba: u64, blocks: u32) -> Result<Vec<u8>> {
        let read = command::read(self.peer.nsid, slba, blocks);
        self.whole(read, blocks * BLOCK_BYTES)
    }

    fn whole(&mut self, mut sqe: Sqe, length: u32) -> Result<Vec<u8>> {
        let all = Scattered::new(20, &[length]);
        sqe.flags |= Sqe::FLAGS_SGL;
        sqe.cid = U16::new(self.peer.new_cid());
        sqe.dptr = all.descriptors(&self.peer)[0];
        self.peer.expect(self.io, sqe, Status::SUCCESS)?;
        Ok(all.bytes(&self.peer))
    }
}

fn lists_announced(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let mut identify = command::identify(Cns::CONTROLLER, 0);
    identify.flags |= Sqe::FLAGS_SGL;
    identify.cid = U16::new(bench.peer.new_cid());
    identify.dptr = bench.peer.keyed(4096);
    bench.peer.expect(bench.admin, identify, Status::SUCCESS)?;
    let bytes = bench.peer.node.bytes(BUFFER, 4096);
    let id = IdentifyController::read_from_bytes(&bytes).ok();
    let id = id.context("Identify Controller has 4096 bytes")?;
    ensure!(
        usize::from(id.msdbd) == DATA_BLOCKS_MAX,
        "MSDBD {}",
        id.msdbd
    );
    let sgls = Sgls(id.sgls.get());
    ensure!(sgls.keyed() && sgls.bit_bucket() && sgls.in_capsule_offset());
    let room = id.ioccsz.get() as usize * 16 - size_of::<Sqe>();
    ensure!(
        room >= DATA_BLOCKS_MAX * SGL_DESCRIPTOR_BYTES,
        "capsules of {room} bytes"
    );
    Ok(())
}

fn list_moves_data(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let nsid = setting.nsid;
    for (count, blocks, offset) in [
        (1, 1, 0),
        (2, 1, 0),
        (2, 3, 16),
        (3, 5, 1),
        (16, 1, 0),
        (16, 13, 512),
        (16, 40, 4096 - 256),
    ] {
        let (length, slba) = (blocks * BLOCK_BYTES, 64);
        let bytes = bench.random.bytes(length as usize);
        let from = Scattered::split(0, length, count, &mut bench.random);
        from.fill(&bench.peer, &bytes);
        let mut list = from.descriptors(&bench.peer);
        let write = command::write(nsid, slba, blocks);
        bench.run_at(write, offset, &list, Status::SUCCESS)?;
        ensure!(bench.read(slba, blocks)? == bytes, "written by {list:?}");

        let compare = command::compare(nsid, slba, blocks);
        bench.run_at(compare, offset, &list, Status::SUCCESS)?;
        let (last, _) = from.places()[count as usize - 1];
        bench
            .peer
            .node
            .fill(last, &[!bench.peer.node.bytes(last, 1)[0]]);
        bench.run_at(compare, offset, &list, Status::COMPARE_FAILURE)?;

        let to = Scattered::split(1, length, count, &mut bench.random);
        to.fill(&bench.peer, &vec![0xee; length as usize]);
        list = to.descriptors(&bench.peer);
        if count < 16 {
            list.insert(1, SglDescriptor::none());
        }
        let read = command::read(nsid, slba, blocks);
        bench.run_at(read, offset, &list, Status::SUCCESS)?;
        ensure!(to.bytes(&bench.peer) == bytes, "read by {list:?}");
        for (at, _) in to.places() {
            ensure!(
                bench.peer.node.bytes(at - GAP, GAP) == [0; GAP],
                "a gap is written"
            );
        }
    }
    Ok(())
}

fn list_bit_buckets(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let bucket = |length| SglDescriptor::from(Sgl::BitBucket { length });
    let bytes = bench.random.bytes(1024);
    let from = Scattered::new(0, &[1000, 24]);
    from.fill(&bench.peer, &bytes);
    let keyed = from.descriptors(&bench.peer);
    let list = [bucket(512), keyed[0], bucket(u32::MAX), keyed[1]];
    bench.run(command::write(setting.nsid, 8, 2), &list, Status::SUCCESS)?;
    ensure!(bench.read(8, 2)? == bytes, "a bit bucket changes a write");

    let read = command::read(setting.nsid, 8, 2);
    let to = Scattered::new(1, &[511, 3]);
    let keyed = to.descriptors(&bench.peer);
    for (list, expected) in [
        (
            vec![keyed[0], bucket(500), keyed[1], bucket(10)],
            [&bytes[..511], &bytes[1011..1014]].concat(),
        ),
        (
            vec![bucket(500), bucket(10), keyed[0], keyed[1]],
            bytes[510..].to_vec(),
        ),
        (vec![bucket(1024)], vec![0xee; 514]),
    ] {
        to.fill(&bench.peer, &[0xee; 514]);
        bench.run(read, &list, Status::SUCCESS)?;
        ensure!(to.bytes(&bench.peer) == expected, "read by {list:?}");
    }
    Ok(())
}

fn list_malformed(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let half = BLOCK_BYTES / 2;
    let keyed = Scattered::new(0, &[half, half]).descriptors(&bench.peer);
    let (one, rkey) = (keyed[0], bench.peer.node.rkey());
    let of_type = |kind: SglType, subtype: u8| {
        let mut descriptor = one;
        descriptor.0[15] = kind.0 << 4 | subtype;
        descriptor
    };
    let small = SglDescriptor::keyed(0x1000, 16, rkey, false);
    let wraps = SglDescriptor::keyed(u64::MAX - 16, half, rkey, false);
    let (length, number) = (
        Status::DATA_SGL_LENGTH_INVALID,
        Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS,
    );
    let segment = Status::INVALID_SGL_SEGMENT_DESCRIPTOR;
    let kind = Status::SGL_DESCRIPTOR_TYPE_INVALID;
    let huge = SglDescriptor::keyed(0x1000, Sgl::KEYED_LENGTH_MAX, rkey, false);
    let cases = [
        (vec![one], length),
        (vec![one; 3], length),
        (vec![SglDescriptor::none(); 2], length),
        (vec![one, wraps], length),
        (vec![huge; 16], length),
        (vec![small; 17], number),
        (vec![SglDescriptor::none(); 32], number),
        (
            vec![SglDescriptor::from(Sgl::BitBucket { length: 0 }); 33],
            number,
        ),
        (vec![one, of_type(SglType::SEGMENT, 1)], segment),
        (vec![one, of_type(SglType::LAST_SEGMENT, 1)], segment),
        (vec![one, SglDescriptor::in_capsule(0, half)], kind),
        (vec![one, of_type(SglType::KEYED_DATA_BLOCK, 1)], kind),
        (vec![one, of_type(SglType::TRANSPORT_DATA_BLOCK, 0xa)], kind),
        (vec![of_type(SglType::DATA_BLOCK, 0), one], kind),
    ];
    let commands = [
        command::read(setting.nsid, 0, 1),
        command::write(setting.nsid, 0, 1),
        command::compare(setting.nsid, 0, 1),
    ];
    for sqe in commands {
        for (list, status) in &cases {
            bench.run(sqe, list, *status).context(format!("{list:?}"))?;
        }
        bench.run(sqe, &keyed, Status::SUCCESS)?;
    }
    malformed_segments(&mut bench, &keyed, &commands)
}

fn malformed_segments(bench: &mut Bench, keyed: &[SglDescriptor], commands: &[Sqe]) -> Result<()> {
    let segment = Status::INVALID_SGL_SEGMENT_DESCRIPTOR;
    let outside = Status::SGL_OFFSET_INVALID;
    for (offset, length, status) in [
        (0, 0, segment),
        (0, 15, segment),
        (0, 31, segment),
        (0, 48, outside),
        (1, 32, outside),
        (33, 16, outside),
        (u64::MAX, 16, outside),
        (u64::MAX - 15, 16, outside),
        (1 << 32, 16, outside),
        (0, u32::MAX - 15, outside),
    ] {
        for &sqe in commands {
            let mut capsule = bench.capsule(sqe, 0, keyed);
            let (mut sqe, _) = Sqe::read_from_prefix(&capsule).ok().context("an SQE")?;
            sqe.dptr = SglDescriptor::last_segment(offset, length);
            capsule[..size_of::<Sqe>()].copy_from_slice(sqe.as_bytes());
            let cqe = bench.peer.expect_capsule(bench.io, &capsule, status);
            cqe.with_context(|| format!("{length} bytes at {offset:#x}"))?;
        }
    }
    for identifier in [0x30, 0x3f, 0x20, 0x21, 0x10] {
        let mut capsule = bench.capsule(commands[0], 0, keyed);
        capsule[24 + 15] = identifier;
        let status = Status::SGL_DESCRIPTOR_TYPE_INVALID;
        bench.peer.expect_capsule(bench.io, &capsule, status)?;
    }
    Ok(())
}

fn list_of_ranges(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let bytes = bench.random.bytes(2 * BLOCK_BYTES as usize);
    let from = Scattered::split(0, 2 * BLOCK_BYTES, 5, &mut bench.random);
    from.fill(&bench.peer, &bytes);
    let list = from.descriptors(&bench.peer);
    bench.run(command::write(setting.nsid, 100, 2), &list, Status::SUCCESS)?;

    let entry = nvme_proto::io::BlockRange {
        slba: 100,
        blocks: 2,
    }
    .copy_entry();
    let ranges = Scattered::new(1, &[7, 9, 16]);
    ranges.fill(&bench.peer, &entry);
    let list = ranges.descriptors(&bench.peer);
    bench.run(command::copy(setting.nsid, 300, 1), &list, Status::SUCCESS)?;
    ensure!(bench.read(300, 2)? == bytes, "the copy differs");

    let mut range = [0; 16];
    range[4] = 2;
    range[8..10].copy_from_slice(&300u16.to_le_bytes());
    let ranges = Scattered::new(1, &[1, 15, 100]);
    ranges.fill(&bench.peer, &[&range[..], &[0xee; 100]].concat());
    let list = ranges.descriptors(&bench.peer);
    let deallocate = command::deallocate(setting.nsid, 1);
    bench.run(deallocate, &list, Status::SUCCESS)?;
    bench.run(deallocate, &list[..2], Status::SUCCESS)?;
    bench.run(deallocate, &list[..1], Status::DATA_SGL_LENGTH_INVALID)?;
    for sqe in [
        command::flush(setting.nsid),
        command::verify(setting.nsid, 0, 1),
        command::write_zeroes(setting.nsid, 0, 1, false),
    ] {
        bench.run(sqe, &list, Status::DATA_SGL_LENGTH_INVALID)?;
    }
    Ok(())
}

fn list_of_a_report(setting: &Setting) -> Result<()> {
    const EXTENDED: u32 = 1;
    let mut bench = Bench::open(setting)?;
    let to = Scattered::new(0, &[1, 63]);
    to.fill(&bench.peer, &[0xee; 64]);
    let list = to.descriptors(&bench.peer);
    let mut report = Sqe::new(0, NvmOpcode::RESERVATION_REPORT.0, setting.nsid);
    report.cdw10 = U32::new(64 / 4 - 1);
    report.cdw11 = U32::new(EXTENDED);
    bench.run(report, &list, Status::SUCCESS)?;
    let scattered = to.bytes(&bench.peer);
    ensure!(scattered == bench.whole(report, 64)?, "another report");
    let list = [list[1], list[1]];
    bench.run(report, &list, Status::DATA_SGL_LENGTH_INVALID)?;
    Ok(())
}

fn list_of_a_pair(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let (old, new) = (bench.random.bytes(512), bench.random.bytes(512));
    let (first, second) = (
        Scattered::new(0, &[100, 412]),
        Scattered::new(1, &[1, 510, 1]),
    );
    first.fill(&bench.peer, &old);
    second.fill(&bench.peer, &new);
    let lists = [&first, &second].map(|data| data.descriptors(&bench.peer));
    bench.run(
        command::write(setting.nsid, 50, 1),
        &lists[0],
        Status::SUCCESS,
    )?;
    for (status, write_status) in [
        (Status::SUCCESS, Status::SUCCESS),
        (Status::COMPARE_FAILURE, Status::ABORTED_FAILED_FUSED),
    ] {
        let pair = command::fused(
            command::compare(setting.nsid, 50, 1),
            command::write(setting.nsid, 50, 1),
        );
        let capsules = [0, 1].map(|index| bench.capsule(pair[index], 0, &lists[index]));
        bench
            .peer
            .say_all(bench.io, &[&capsules[0], &capsules[1]])?;
        for status in [status, write_status] {
            let answer = bench.peer.receive(bench.io)?;
            let Answer::Response(cqe) = answer else {
                anyhow::bail!("the target closed the queue");
            };
            ensure!(cqe.status().code() == status, "{}", cqe.status());
        }
        ensure!(bench.read(50, 1)? == new, "the pair has not written");
    }
    Ok(())
}

fn list_on_admin_queue(setting: &Setting) -> Result<()> {
    let mut bench = Bench::open(setting)?;
    let list = Scattered::new(0, &[4000, 96]).descriptors(&bench.peer);
    let mut identify = command::identify(Cns::CONTROLLER, 0);
    identify.flags |= Sqe::FLAGS_SGL;
    let capsule = bench.capsule(identify, 0, &list);
    let status = Status::SGL_DESCRIPTOR_TYPE_INVALID;
    bench.peer.expect_capsule(bench.admin, &capsule, status)?;
    Ok(())
}

fn list_with_a_wrong_key(setting: &Setting) -> Result<()> {
    for sqe in [
        command::read(setting.nsid, 0, 1),
        command::write(setting.nsid, 0, 1),
    ] {
        let mut bench = Bench::open(setting)?;
        let mut list = Scattered::new(0, &[100, 12, 400]).descriptors(&bench.peer);
        let there = bench.peer.node.remote(BUFFER);
        list[1] = SglDescriptor::keyed(there.addr, 12, there.rkey ^ 0x5a5a_5a00, false);
        let capsule = bench.capsule(sqe, 0, &list);
        bench.peer.say(bench.io, &capsule)?;
        bench.peer.expect_closed(bench.io)?;
    }
    Ok(())
}

fn list_invalidates_a_key(setting: &Setting) -> Result<Outcome> {
    if setting.provider.name() == "verbs" {
        let why = "libibverbs registers no key that a peer may invalidate";
        return Ok(Outcome::Skipped(why.into()));
    }
    let mut bench = Bench::open(setting)?;
    let device = Arc::clone(bench.peer.node.endpoint.device());
    let mapping = Arc::new(Mapping::anonymous(4096)?);
    let region = device.register(mapping, Access::REMOTE_WRITE | Access::REMOTE_READ)?;
    let there = region.remote(0).context("a remote key")?;
    let marked = SglDescriptor::keyed(there.addr, 256, there.rkey, true);
    let other = Scattered::new(0, &[256]).descriptors(&bench.peer)[0];
    let read = command::read(setting.nsid, 0, 1);
    bench.run(read, &[marked, other], Status::SUCCESS)?;
    bench.run(read, &[other, other], Status::SUCCESS)?;
    let capsule = bench.capsule(read, 0, &[other, marked]);
    bench.peer.say(bench.io, &capsule)?;
    bench.peer.expect_closed(bench.io)?;
    Ok(Outcome::Passed)
}

fn list_on_a_small_queue(setting: &Setting) -> Result<()> {
    let (mut peer, admin) = Peer::with_controller(setting)?;
    for (qid, reads) in [(1, 1), (2, 5), (3, 16)] {
        let io = peer.connect_queue_with(qid, 2, reads)?;
        let mut bench = Bench {
            peer,
            admin,
            io,
            random: Random::new(setting.seed),
        };
        for round in 0..20 {
            let bytes = bench.random.bytes(8192);
            let from = Scattered::split(0, 8192, 16, &mut bench.random);
            from.fill(&bench.peer, &bytes);
            let list = from.descriptors(&bench.peer);
            let write = command::write(setting.nsid, 16 * round, 16);
            bench.run(write, &list, Status::SUCCESS)?;
            from.fill(&bench.peer, &[0; 8192]);
            let read = command::read(setting.nsid, 16 * round, 16);
            bench.run(read, &list, Status::SUCCESS)?;
            ensure!(from.bytes(&bench.peer) == bytes, "{reads} READs");
        }
        peer = bench.peer;
    }
    Ok(())
}

fn lists_at_once(setting: &Setting) -> Result<()> {
    const SLICES: usize = 14;
    let mut bench = Bench::open(setting)?;
    let blocks = 40;
    let length = blocks * BLOCK_BYTES;
    let first = |slice: usize| slice as u64 * 64;
    for round in 0..8 {
        let bytes: Vec<_> = (0..SLICES)
            .map(|_| bench.random.bytes(length as usize))
            .collect();
        let mut data = Vec::new();
        let mut capsules = Vec::new();
        for (slice, bytes) in bytes.iter().enumerate() {
            let scattered = Scattered::split(slice, length, 16, &mut bench.random);
            scattered.fill(&bench.peer, bytes);
            let list = scattered.descriptors(&bench.peer);
            let write = command::write(setting.nsid, first(slice), blocks);
            capsules.push(bench.capsule(write, 0, &list));
            data.push(scattered);
        }
        all(&mut bench, &capsules).with_context(|| format!("writes of round {round}"))?;
        capsules.clear();
        for (slice, scattered) in data.iter().enumerate() {
            scattered.fill(&bench.peer, &vec![0; length as usize]);
            let list = scattered.descriptors(&bench.peer);
            let read = command::read(setting.nsid, first(slice), blocks);
            capsules.push(bench.capsule(read, 0, &list));
            let write = command::write(setting.nsid, 4096 + first(slice), blocks);
            capsules.push(bench.capsule(write, 0, &list));
        }
        all(&mut bench, &capsules).with_context(|| format!("reads of round {round}"))?;
        for (scattered, bytes) in data.iter().zip(&bytes) {
            ensure!(scattered.bytes(&bench.peer) == *bytes, "round {round}");
        }
    }
    Ok(())
}

fn all(bench: &mut Bench, capsules: &[Vec<u8>]) -> Result<()> {
    assert!(capsules.len() < usize::from(ENTRIES));
    let capsules: Vec<_> = capsules.iter().map(Vec::as_slice).collect();
    bench.peer.say_all(bench.io, &capsules)?;
    for _ in &capsules {
        match bench.peer.receive(bench.io)? {
            Answer::Response(cqe) if cqe.status().is_success() => {}
            other => anyhow::bail!("{other:?}"),
        }
    }
    Ok(())
}
