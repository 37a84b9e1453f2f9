use std::fs::File;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};
use vhost::vhost_user::message::VhostUserMemoryRegion;

use super::*;

const BYTES: u64 = 0x3000;
const ENTRIES: u16 = 16;

fn memory() -> Memory {
    let file = File::from(memfd_create(c"guest", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(BYTES).unwrap();
    let region = VhostUserMemoryRegion::new(0, BYTES, 0, 0);
    Memory::map(&[region], vec![file]).unwrap()
}

fn describe(memory: &Memory, table: u64, descriptors: &[(u64, u32, u16, u16)]) {
    for (index, &(address, bytes, flags, next)) in descriptors.iter().enumerate() {
        let at = GuestAddress(table + 16 * index as u64);
        let descriptor = Descriptor::new(address, bytes, flags, next);
        memory.guest.write_obj(descriptor, at).unwrap();
    }
}

fn descriptors() -> impl Strategy<Value = Vec<(u64, u32, u16, u16)>> {
    let address = prop_oneof![
        4 => 0..BYTES + 64,
        4 => Just(0x1000_u64),
        1 => any::<u64>()
    ];
    let bytes = prop_oneof![
        4 => 0..600_u32,
        4 => (1..17_u32).prop_map(|entries| entries * 16),
        1 => any::<u32>()
    ];
    let one = (address, bytes, 0..8_u16, 0..ENTRIES + 2);
    prop::collection::vec(one, usize::from(ENTRIES))
}

proptest! {
    #[test]
    fn arbitrary_descriptors_lead_nowhere_else(
        direct in descriptors(),
        indirect in descriptors(),
        head in 0..ENTRIES + 2,
        kind in prop_oneof![0..16_u32, any::<u32>()],
        features in any::<u64>(),
    ) {
        let memory = memory();
        describe(&memory, 0, &direct);
        describe(&memory, 0x1000, &indirect);
        memory.guest.write_obj(kind, GuestAddress(0x2000)).unwrap();
        let mut chain = Chain::default();
        if chain.collect(&memory, GuestAddress(0), ENTRIES, head).is_err() {
            return Ok(());
        }
        let Ok((parsed, status)) = chain.parse(&memory, features) else {
            return Ok(());
        };
        prop_assert!(status.0 < BYTES);
        let segments = chain.readable.iter().chain(&chain.writable);
        for segment in segments {
            prop_assert!(segment.bytes > 0);
            prop_assert!(segment.address.0 + segment.bytes as u64 <= BYTES);
        }
        if let Some(bytes) = parsed.data_bytes() {
            let data = [&chain.readable, &chain.writable].map(|list| {
                list.iter().map(|segment| segment.bytes as u64).sum::<u64>()
            });
            prop_assert!(data.contains(&bytes));
        }
    }
}

#[test]
fn a_driver_without_flushes_gets_durable_writes() {
    let memory = memory();
    let flags = [1, 1, 2];
    let chain = [(0x1000, 16), (0x2000, 512), (0x1100, 1)];
    let chain: Vec<_> = (1..)
        .zip(chain.into_iter().zip(flags))
        .map(|(next, ((address, bytes), flags))| (address, bytes, flags, next))
        .collect();
    describe(&memory, 0, &chain);
    let header = [VIRTIO_BLK_T_OUT, 0, 7, 0];
    memory
        .guest
        .write_obj(header, GuestAddress(0x1000))
        .unwrap();
    for (features, fua) in [(0, true), (1 << VIRTIO_BLK_F_FLUSH, false)] {
        let mut chain = Chain::default();
        chain.collect(&memory, GuestAddress(0), ENTRIES, 0).unwrap();
        let expected = Parsed::Execute {
            operation: Operation::Write { fua },
            offset: 7 * 512,
            bytes: 512,
        };
        let parsed = chain.parse(&memory, features);
        assert_eq!(parsed, Ok((expected, GuestAddress(0x1100))));
    }
}
