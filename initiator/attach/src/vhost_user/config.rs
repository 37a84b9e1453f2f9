//! Features and configuration space (Virtio 1.2, 5.2.3 and 5.2.4).

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_WRITE_ZEROES,
    VIRTIO_BLK_ID_BYTES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use crate::request::Limits;

pub(super) const QUEUES_MAX: u16 = 64;
pub(super) const QUEUE_ENTRIES_MAX: u16 = 1024;
/// With header and status, a request fits a queue of 128 entries.
const SEGMENTS_MAX: u32 = 126;
const SEGMENT_BYTES_MAX: u32 = 64 << 10;
pub(super) const REQUEST_BYTES_MAX: u64 = SEGMENTS_MAX as u64 * SEGMENT_BYTES_MAX as u64;
/// 1 GiB.
const CHANGE_SECTORS_MAX: u32 = 1 << 21;

pub(super) const SECTOR_BYTES: u32 = 512;
const SERIAL_BYTES: usize = VIRTIO_BLK_ID_BYTES as usize;
const CONFIG_BYTES: usize = 60;

/// Serial number, padded with zeros.
pub type Serial = [u8; SERIAL_BYTES];

pub(super) fn features(limits: &Limits) -> u64 {
    let always = [
        VIRTIO_BLK_F_SIZE_MAX,
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_MQ,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_F_VERSION_1,
    ];
    let by_namespace = [
        (limits.read_only, VIRTIO_BLK_F_RO),
        (limits.discards, VIRTIO_BLK_F_DISCARD),
        (limits.zeroes, VIRTIO_BLK_F_WRITE_ZEROES),
    ];
    let by_namespace = by_namespace.iter().filter(|(is_offered, _)| *is_offered);
    let bits = always.iter().chain(by_namespace.map(|(_, bit)| bit));
    bits.fold(0, |all, bit| all | 1 << bit)
}

pub(super) fn has(features: u64, bit: u32) -> bool {
    features & 1 << bit != 0
}

pub(super) fn space(limits: &Limits) -> [u8; CONFIG_BYTES] {
    let mut space = [0; CONFIG_BYTES];
    let mut put = |at: usize, value: &[u8]| space[at..at + value.len()].copy_from_slice(value);
    put(0, &(limits.bytes / u64::from(SECTOR_BYTES)).to_le_bytes());
    put(32, &[1]);
    put(34, &QUEUES_MAX.to_le_bytes());
    put(56, &[1]);
    let numbers = [
        (8, SEGMENT_BYTES_MAX),
        (12, SEGMENTS_MAX),
        (20, limits.block_bytes),
        (36, CHANGE_SECTORS_MAX),
        (40, 1),
        (44, limits.block_bytes / SECTOR_BYTES),
        (48, CHANGE_SECTORS_MAX),
        (52, 1),
    ];
    for (at, value) in numbers {
        put(at, &value.to_le_bytes());
    }
    space
}
