use cairn_initiator::{IoQueue, command};
use cairn_tests::harness::{Scratch, TestTarget};
use nvme_proto::io::DatasetRange;
use nvme_proto::wire::{IntoBytes, Status, U32, U64};

use crate::verified::{Disk, Transfer, bytes, status};

const MIB: usize = 1 << 20;

#[test]
fn every_size_on_memory() {
    let target =
        TestTarget::with_namespaces(&["mem:64MiB block_size = 512", "mem:64MiB block_size = 4096"]);
    every_size(&target);
    target.stop();
}

#[test]
fn every_size_on_files() {
    let small = Scratch::new("512", 64 << 20);
    let large = Scratch::new("4096", 64 << 20);
    let target = TestTarget::with_namespaces(&[&small.export(512), &large.export(4096)]);
    every_size(&target);
    target.stop();
}

fn every_size(target: &TestTarget) {
    let mut host = target.connect("a");
    for (nsid, block_bytes) in [(1, 512), (2, 4096)] {
        let mut disk = Disk::new(&mut host, nsid);
        assert_eq!(disk.block_bytes, block_bytes);
        let sizes = [1, 2, 3, 7, 8, 16, 31, 64, 128, 200, 256, 512, 1024, 2048]
            .map(|blocks| blocks * block_bytes as usize);
        for (round, size) in sizes.into_iter().filter(|&size| size <= MIB).enumerate() {
            for transfer in [Transfer::Keyed, Transfer::KeyedOnce, Transfer::InCapsule] {
                if transfer == Transfer::InCapsule
                    && size > disk.host.in_capsule_max(IoQueue::FIRST)
                {
                    continue;
                }
                let slba = 11 + 3 * round as u64;
                let data = bytes(round as u64 * 3 + transfer as u64, size);
                let before = disk.read(slba - 1, block_bytes as usize, Transfer::Keyed);
                disk.write(slba, &data, transfer);
                let back = match transfer {
                    Transfer::InCapsule => Transfer::Keyed,
                    other => other,
                };
                assert!(
                    disk.read(slba, size, back) == data,
                    "{size} bytes, {transfer:?}"
                );
                let untouched = disk.read(slba - 1, block_bytes as usize, Transfer::Keyed);
                assert!(
                    before == untouched,
                    "{size} bytes, {transfer:?}: a neighbour changed"
                );
            }
        }
    }
    host.shutdown().unwrap();
}

#[test]
fn first_and_last_block() {
    let target = TestTarget::with_namespaces(&["mem:1MiB block_size = 512"]);
    let mut host = target.connect("a");
    let mut disk = Disk::new(&mut host, 1);
    let last = 2047;
    disk.write(0, &bytes(1, 512), Transfer::Keyed);
    disk.write(last, &bytes(2, 512), Transfer::Keyed);
    assert_eq!(disk.read(0, 512, Transfer::Keyed), bytes(1, 512));
    assert_eq!(disk.read(last, 512, Transfer::Keyed), bytes(2, 512));
    let beyond = disk.send_data(command::write(1, last, 2), &[0; 1024], Transfer::Keyed);
    assert_eq!(status(beyond).code(), Status::LBA_OUT_OF_RANGE);
    assert_eq!(disk.read(last, 512, Transfer::Keyed), bytes(2, 512));
}

#[test]
fn null_forgets() {
    let target = TestTarget::with_namespaces(&["null:1GiB block_size = 4096"]);
    let mut host = target.connect("a");
    let mut disk = Disk::new(&mut host, 1);
    for size in [4096, MIB] {
        disk.write(5, &bytes(1, size), Transfer::Keyed);
        assert!(disk.read(5, size, Transfer::Keyed) == vec![0; size]);
    }
    host.shutdown().unwrap();
}

#[test]
fn compare_distinguishes_alike_from_different() {
    let file = Scratch::new("compare", 8 << 20);
    let target = TestTarget::with_namespaces(&["mem:8MiB", &file.export(512)]);
    let mut host = target.connect("a");
    for nsid in [1, 2] {
        let mut disk = Disk::new(&mut host, nsid);
        for size in [4096, 128 * 1024, MIB] {
            let mut data = bytes(9, size);
            disk.write(16, &data, Transfer::Keyed);
            let compare = command::compare(nsid, 16, disk.blocks(size));
            disk.send_data(compare, &data, Transfer::Keyed).unwrap();
            data[size - 1] ^= 1;
            let different = disk.send_data(compare, &data, Transfer::Keyed);
            assert_eq!(status(different).code(), Status::COMPARE_FAILURE, "{size}");
            if size <= 4096 {
                let different = disk.send_data(compare, &data, Transfer::InCapsule);
                assert_eq!(status(different).code(), Status::COMPARE_FAILURE);
            }
        }
    }
    host.shutdown().unwrap();
}

#[test]
fn zeroes_and_deallocated_blocks_read_as_zeroes() {
    let file = Scratch::new("zeroes", 8 << 20);
    let target = TestTarget::with_namespaces(&["mem:8MiB", &file.export(512)]);
    let mut host = target.connect("a");
    for nsid in [1, 2] {
        let mut disk = Disk::new(&mut host, nsid);
        let block = disk.block_bytes as usize;
        let data = bytes(4, 64 * block);
        for deallocate in [false, true] {
            disk.write(0, &data, Transfer::Keyed);
            disk.run(command::write_zeroes(nsid, 8, 16, deallocate))
                .unwrap();
            expect_holes(&mut disk, &data, &[(8, 16)], true);
        }
        for transfer in [Transfer::Keyed, Transfer::InCapsule] {
            disk.write(0, &data, Transfer::Keyed);
            // The ranges are whole pages, because a controller may keep the data of smaller ranges
            // (NVM, 3.2.3.2.1).
            let page = 4096 / disk.block_bytes;
            let holes = [(0, page), (u64::from(page) * 2, 2 * page)];
            let ranges: Vec<u8> = holes
                .iter()
                .flat_map(|&(slba, nlb)| range(slba, nlb).as_bytes().to_vec())
                .collect();
            let deallocate = command::deallocate(nsid, holes.len() as u32);
            disk.send_data(deallocate, &ranges, transfer).unwrap();
            expect_holes(&mut disk, &data, &holes, nsid == 2);
        }
    }
    host.shutdown().unwrap();
}

fn range(slba: u64, nlb: u32) -> DatasetRange {
    DatasetRange {
        context_attributes: U32::ZERO,
        nlb: U32::new(nlb),
        slba: U64::new(slba),
    }
}

/// Checks that the first 64 blocks contain `data`, and zeroes in the deallocated `holes`. Unless
/// `certain`, the holes may still contain old data.
fn expect_holes(disk: &mut Disk<'_>, data: &[u8], holes: &[(u64, u32)], certain: bool) {
    let block = disk.block_bytes as usize;
    let mut expected = data.to_vec();
    for &(slba, blocks) in holes {
        let start = slba as usize * block;
        expected[start..start + blocks as usize * block].fill(0);
    }
    let found = disk.read(0, data.len(), Transfer::Keyed);
    assert!(
        found == expected || (!certain && found == data),
        "namespace {}, holes {holes:?}",
        disk.nsid
    );
}

#[test]
fn flush_verify_and_forced_access_work() {
    let file = Scratch::new("flush", 8 << 20);
    let target = TestTarget::with_namespaces(&["mem:8MiB", &file.export(512)]);
    let mut host = target.connect("a");
    for nsid in [1, 2] {
        let mut disk = Disk::new(&mut host, nsid);
        let data = bytes(5, 64 * 1024);
        let blocks = disk.blocks(data.len());
        let write = command::with_fua(command::write(nsid, 0, blocks));
        disk.send_data(write, &data, Transfer::Keyed).unwrap();
        disk.run(command::flush(nsid)).unwrap();
        disk.run(command::verify(nsid, 0, blocks)).unwrap();
        assert!(disk.read(0, data.len(), Transfer::Keyed) == data);
        let beyond = command::verify(nsid, u64::MAX - 1, 1);
        assert_eq!(status(disk.run(beyond)).code(), Status::LBA_OUT_OF_RANGE);
    }
    host.shutdown().unwrap();
}

#[test]
fn what_was_flushed_to_a_file_is_in_the_file() {
    let file = Scratch::new("durable", 4 << 20);
    let target = TestTarget::with_namespaces(&[&file.export(512)]);
    let mut host = target.connect("a");
    let data = bytes(6, MIB);
    let mut disk = Disk::new(&mut host, 1);
    let slba = MIB as u64 / u64::from(disk.block_bytes);
    disk.write(slba, &data, Transfer::Keyed);
    disk.run(command::flush(1)).unwrap();
    let stored = std::fs::read(file.path()).unwrap();
    assert!(stored[MIB..2 * MIB] == data);
    assert!(stored[..MIB].iter().all(|&byte| byte == 0));
    host.shutdown().unwrap();
}

#[test]
fn transfers_beyond_mdts_are_refused() {
    let target = TestTarget::with_namespaces(&["mem:64MiB block_size = 512"]);
    let mut host = target.connect("a");
    let mdts = 4096 << host.identity().mdts;
    assert_eq!(mdts, MIB);
    let mut disk = Disk::new(&mut host, 1);
    disk.write(0, &bytes(1, mdts), Transfer::Keyed);
    let more = command::write(1, 0, mdts as u32 / 512 + 1);
    let result = disk.send_data(more, &vec![0; mdts + 512], Transfer::Keyed);
    assert_eq!(status(result).code(), Status::INVALID_FIELD);
    assert!(disk.read(0, mdts, Transfer::Keyed) == bytes(1, mdts));
    host.shutdown().unwrap();
}

#[test]
fn a_namespace_reads_and_changes_its_blocks() {
    const BLOCK: usize = 512;
    const BLOCKS: usize = 300;
    let file = Scratch::new("blocks", 1 << 20);
    let target = TestTarget::with_namespaces(&[&file.export(512)]);
    let mut host = target.connect("a");
    let disk = host.open_namespace(1).unwrap();
    let mut expected = bytes(1, (BLOCKS + 2) * BLOCK);
    disk.write(&mut host, 9, &expected).unwrap();
    let changed = bytes(2, BLOCKS * BLOCK);
    disk.write(&mut host, 10, &changed).unwrap();
    expected[BLOCK..][..changed.len()].copy_from_slice(&changed);
    let read = disk.read(&mut host, 9, BLOCKS as u32 + 2).unwrap();
    assert!(read == expected);
    assert!(disk.compare(&mut host, 9, &expected).unwrap());

    let last = expected.len() - 1;
    expected[last] ^= 1;
    assert!(!disk.compare(&mut host, 9, &expected).unwrap());
    disk.verify(&mut host, 9, BLOCKS as u32).unwrap();
    expected[last] ^= 1;
    disk.write_zeroes(&mut host, 10, 1, false).unwrap();
    expected[BLOCK..][..BLOCK].fill(0);
    disk.deallocate(&mut host, 16, 8).unwrap();
    expected[(16 - 9) * BLOCK..][..8 * BLOCK].fill(0);
    disk.flush(&mut host).unwrap();
    assert!(disk.read(&mut host, 9, BLOCKS as u32 + 2).unwrap() == expected);

    assert!(disk.read(&mut host, 0, 0).unwrap().is_empty());
    let beyond = status(disk.read(&mut host, disk.blocks, 1));
    assert_eq!(beyond.code(), Status::LBA_OUT_OF_RANGE);
    host.shutdown().unwrap();
    target.stop();
}
