//! Random bytes in all parsers: no panic, no read beyond the slice, and equal bytes after encoding.

use nvme_proto::io::{
    BlockRange, DATASET_RANGE_BYTES, DatasetRanges, FlushScope, IoCommand, IoLimits, NamespaceView,
    Operation,
};
use nvme_proto::transfer::{DATA_BLOCKS_MAX, DataTransfer, Direction, LIST_BYTES_MAX, SglList};
use nvme_proto::wire::aen::AsyncEvent;
use nvme_proto::wire::cm::{RejectData, RejectStatus, ReplyData, RequestData};
use nvme_proto::wire::fabrics::{
    ConnectCommand, ConnectData, ConnectInvalidParameter, ConnectResult, DisconnectCommand,
    PropertyGetCommand, PropertySetCommand, PropertySize,
};
use nvme_proto::wire::feature::{HostBehavior, Timestamp};
use nvme_proto::wire::identify::{
    IdentifyController, IdentifyNamespace, NamespaceList, Oncs, Vwc, namespace_descriptors,
};
use nvme_proto::wire::log::{
    AnaGroup, AnaLogHeader, CommandEffectsLog, DiscoveryEntry, DiscoveryLogHeader, ErrorEntry,
    FirmwareSlotLog, GetLogCdw10, GetLogCdw11, SmartLog, get_log_bytes,
};
use nvme_proto::wire::property::{Cap, Cc, Crto, Csts, Vs};
use nvme_proto::wire::sgl::SglType;
use nvme_proto::wire::{
    AdminOpcode, Cqe, FabricsType, FromBytes, IntoBytes, NSID_ALL, Nqn, NvmOpcode, Sgl,
    SglDescriptor, Sqe, Status, U32,
};
use proptest::collection::vec;
use proptest::prelude::*;

macro_rules! reads_its_own_bytes {
    ($bytes:ident: $($name:ty),+ $(,)?) => {
        $({
            let read = <$name>::read_from_prefix(&$bytes).ok();
            prop_assert_eq!(read.is_some(), $bytes.len() >= size_of::<$name>());
            if let Some((value, _)) = read {
                prop_assert_eq!(value.as_bytes(), &$bytes[..size_of::<$name>()]);
            }
        })+
    };
}

proptest! {
    #[test]
    fn structures_read_and_emit_any_bytes(bytes in vec(any::<u8>(), 0..5000)) {
        reads_its_own_bytes!(bytes: Sqe, Cqe, SglDescriptor, ConnectData, RequestData, ReplyData,
            RejectData, IdentifyController, IdentifyNamespace, NamespaceList, ErrorEntry, SmartLog,
            FirmwareSlotLog, CommandEffectsLog, AnaLogHeader, AnaGroup, DiscoveryLogHeader,
            DiscoveryEntry, HostBehavior, Timestamp);
    }

    #[test]
    fn a_capsule_is_its_sqe_and_its_data(capsule in vec(any::<u8>(), 0..300)) {
        match Sqe::split_capsule(&capsule) {
            Some((sqe, data)) => prop_assert_eq!([sqe.as_bytes(), data].concat(), capsule),
            None => prop_assert!(capsule.len() < 64),
        }
    }

    #[test]
    fn fabrics_commands_are_views_of_the_sqe(bytes in any::<[u8; 64]>()) {
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        prop_assert_eq!(Sqe::from(ConnectCommand::from(sqe)), sqe);
        prop_assert_eq!(Sqe::from(DisconnectCommand::from(sqe)), sqe);
        prop_assert_eq!(Sqe::from(PropertyGetCommand::from(sqe)), sqe);
        prop_assert_eq!(Sqe::from(PropertySetCommand::from(sqe)), sqe);
        let size = PropertySize::from_attrib(bytes[40]);
        prop_assert_eq!(size.map(PropertySize::to_attrib), Some(bytes[40] & 7).filter(|&a| a < 2));
    }

    #[test]
    fn sgl_descriptors(mut bytes in any::<[u8; 16]>(), identifier in identifiers()) {
        bytes[15] = identifier;
        let descriptor = SglDescriptor(bytes);
        let Ok(sgl) = descriptor.parse() else {
            prop_assert_eq!(descriptor.invalidate_rkey(), None);
            return Ok(());
        };
        let emitted = SglDescriptor::from(sgl);
        prop_assert_eq!(emitted.parse(), Ok(sgl));
        match sgl {
            Sgl::Keyed { length, rkey, invalidate, .. } => {
                prop_assert!(length <= Sgl::KEYED_LENGTH_MAX);
                prop_assert_eq!(descriptor.invalidate_rkey(), invalidate.then_some(rkey));
                prop_assert_eq!(emitted, descriptor);
            }
            Sgl::BitBucket { .. } => prop_assert_eq!(&emitted.0[8..12], &bytes[8..12]),
            _ => {
                prop_assert_eq!(&emitted.0[..12], &bytes[..12]);
                prop_assert_eq!(emitted.0[15], bytes[15]);
            }
        }
    }

    #[test]
    fn completions(cid: u16, sqhd: u16, result: u64, bits: u16) {
        let status = Status::from_bits(bits);
        let cqe = Cqe::new(cid, sqhd, status, result);
        let read = Cqe::read_from_bytes(cqe.as_bytes()).unwrap();
        prop_assert_eq!((read.cid.get(), read.sqhd.get(), read.result()), (cid, sqhd, result));
        prop_assert_eq!((read.status(), read.phase(), read.sqid.get()), (status, false, 0));
        prop_assert!(!status.to_string().is_empty());
    }

    #[test]
    fn private_data(bytes in vec(any::<u8>(), 0..200), recfmt_zero: bool) {
        let mut bytes = bytes;
        if recfmt_zero {
            bytes.iter_mut().take(2).for_each(|b| *b = 0);
        }
        check_private_data(&bytes, 32, RequestData::parse(&bytes).map(|d| d.as_bytes().to_vec()))?;
        check_private_data(&bytes, 32, ReplyData::parse(&bytes).map(|d| d.as_bytes().to_vec()))?;
        check_private_data(&bytes, 4, RejectData::parse(&bytes).map(|d| d.as_bytes().to_vec()))?;
    }

    #[test]
    fn names_of_any_bytes(mut field in vec(any::<u8>(), 256), end in 0usize..256) {
        field[end] = 0;
        let field: [u8; 256] = field.try_into().unwrap();
        if let Ok(nqn) = Nqn::decode(&field) {
            prop_assert_eq!(Nqn::decode(&nqn.encode()), Ok(nqn));
            let _ = nqn.irregularity();
        }
    }

    #[test]
    fn names_of_any_text(name in "\\PC{0,60}|[\\x00-\\x7f\u{80}-\u{9f}\u{202e}]{0,60}") {
        let field_ok = name.len() <= 223 && !name.contains('\0');
        match Nqn::parse(&name) {
            Ok(nqn) => {
                prop_assert!(field_ok);
                prop_assert_eq!(nqn.raw(), &name);
                prop_assert_eq!(Nqn::decode(&nqn.encode()), Ok(nqn));
                prop_assert!(!nqn.to_string().chars().any(char::is_control));
            }
            Err(_) => prop_assert!(!field_ok),
        }
    }

    #[test]
    fn names_that_follow_the_rules(name in "nqn\\.[0-9]{4}-(0[1-9]|1[0-2])\\.[a-z]{1,9}(\\.[a-z0-9-]{1,9}){0,3}:[!-~]{1,100}") {
        let nqn = Nqn::parse(&name).unwrap();
        prop_assert_eq!(nqn.raw(), &name);
        prop_assert_eq!(Nqn::decode(&nqn.encode()), Ok(nqn));
    }

    #[test]
    fn descriptor_lists(list in vec(prop_oneof![0u8..20, any::<u8>()], 0..600)) {
        let mut emitted = vec![0; list.len()];
        let mut rest = emitted.as_mut_slice();
        let mut length = 0;
        for descriptor in namespace_descriptors(&list) {
            length += descriptor.encoded_len();
            rest = descriptor.write(rest).expect("what was read fits where it was read from");
        }
        // Reserved bytes of descriptor headers are not preserved.
        let again: Vec<_> = namespace_descriptors(&emitted[..length]).collect();
        prop_assert_eq!(again, namespace_descriptors(&list).collect::<Vec<_>>());
    }

    #[test]
    fn namespace_lists(nsids in vec(1u32.., 0..1024)) {
        let list = NamespaceList::new(nsids.iter().copied());
        prop_assert_eq!(list.iter().collect::<Vec<_>>(), nsids);
    }

    #[test]
    fn lba_format_of_any_namespace(nlbaf: u8, flbas: u8) {
        let mut namespace = IdentifyNamespace::read_from_bytes(&[0; 4096]).unwrap();
        (namespace.nlbaf, namespace.flbas) = (nlbaf, flbas);
        let in_use = namespace.lba_format();
        prop_assert!(in_use.is_some() || flbas & 0x6f > nlbaf || nlbaf > 63);
    }

    #[test]
    fn bits_are_kept(value: u64, dword: u32) {
        let cap = Cap(value).with_mqes(Cap(value).mqes()).with_to(Cap(value).to())
            .with_css(Cap(value).css()).with_mpsmax(Cap(value).mpsmax()).with_cqr(Cap(value).cqr());
        prop_assert_eq!(cap, Cap(value));
        let cc = Cc(dword).with_shn(Cc(dword).shn()).with_en(Cc(dword).en()).with_mps(Cc(dword).mps());
        prop_assert_eq!(cc, Cc(dword));
        prop_assert_eq!(Csts(dword).with_shst(Csts(dword).shst()), Csts(dword));
        prop_assert_eq!(Vs(dword).with_mjr(Vs(dword).mjr()), Vs(dword));
        prop_assert_eq!(Crto(dword).with_crwmt(Crto(dword).crwmt()), Crto(dword));
        let event = AsyncEvent(dword);
        prop_assert_eq!(event.with_aet(event.aet()).with_aei(event.aei()), event);
        let result = ConnectResult(dword);
        prop_assert_eq!(result.with_cntlid(result.cntlid()).with_atr(result.atr()), result);
        let parameter = ConnectInvalidParameter(dword);
        prop_assert_eq!(parameter.with_ipo(parameter.ipo()), parameter);
    }

    #[test]
    fn log_lengths(cdw10: u32, cdw11: u32) {
        let bytes = get_log_bytes(GetLogCdw10(cdw10), GetLogCdw11(cdw11));
        prop_assert!((4..=1 << 34).contains(&bytes) && bytes.is_multiple_of(4));
    }

    #[test]
    fn opcodes_have_printable_names(opcode: u8) {
        prop_assert!(!AdminOpcode(opcode).to_string().is_empty());
        prop_assert!(!NvmOpcode(opcode).to_string().is_empty());
    }

    #[test]
    fn dataset_ranges(data in vec(any::<u8>(), 0..256), nsze: u64, small: bool) {
        let mut data = data;
        data.truncate(data.len() / DATASET_RANGE_BYTES * DATASET_RANGE_BYTES);
        for range in data.chunks_exact_mut(DATASET_RANGE_BYTES).filter(|_| small) {
            range[6..8].fill(0);
            range[10..16].fill(0);
        }
        let namespace = NamespaceView { nsze, lbads: 9, write_protected: false, write_uncorrectable: false };
        if let Ok(ranges) = DatasetRanges::parse(&data, &namespace) {
            for range in ranges.iter() {
                prop_assert!(exists(range, &namespace) && range.blocks > 0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn accepted_io_commands_are_valid(
        sqe in sqes(),
        namespace in proptest::option::weighted(0.9, namespaces()),
        in_capsule_bytes in prop_oneof![Just(0u32), Just(4096), any::<u32>()],
        limits in limits(),
    ) {
        let parsed = IoCommand::parse(&sqe, in_capsule_bytes, namespace.as_ref(), &limits);
        let command = match parsed {
            Ok(command) => command,
            Err(status) => {
                prop_assert!(!status.is_success() && status.name().is_some());
                return Ok(());
            }
        };
        prop_assert_eq!((command.cid, command.nsid), (sqe.cid.get(), sqe.nsid.get()));
        prop_assert!(sqe.fuse() == 0 && sqe.reserved_flags() == 0 && sqe.mptr.get() == 0);
        let needed = match command.operation {
            Operation::Read(access) | Operation::Write(access) | Operation::Compare(access) => {
                let namespace = namespace.unwrap();
                prop_assert!(exists(access.range, &namespace));
                let bytes = namespace.bytes(access.range.blocks);
                prop_assert!(bytes <= u64::from(limits.mdts_bytes));
                bytes
            }
            Operation::Verify(access)
            | Operation::WriteZeroes { access, .. }
            | Operation::WriteUncorrectable(access) => {
                prop_assert!(exists(access.range, &namespace.unwrap()));
                0
            }
            Operation::Flush(FlushScope::All) => {
                prop_assert_eq!(command.nsid, NSID_ALL);
                0
            }
            Operation::Flush(FlushScope::Namespace) => 0,
            Operation::DatasetManagement { ranges, .. } => {
                prop_assert!((1..=256).contains(&ranges));
                u64::from(ranges) * 16
            }
            Operation::Copy(copy) => {
                prop_assert!((1..=128).contains(&copy.ranges));
                u64::from(copy.ranges) * copy.format.entry_bytes() as u64
            }
        };
        prop_assert_eq!(u64::from(command.transfer.length()), needed);
        prop_assert!(has_the_right_direction(&command));
        prop_assert!(in_bounds(&command.transfer, in_capsule_bytes));
        let changes = matches!(
            command.operation,
            Operation::Write(_) | Operation::WriteZeroes { .. } | Operation::WriteUncorrectable(_)
                | Operation::DatasetManagement { deallocate: true, .. } | Operation::Copy(_)
        );
        prop_assert!(!(changes && namespace.unwrap().write_protected));
    }
}

fn descriptors() -> impl Strategy<Value = Vec<SglDescriptor>> {
    let lengths = prop_oneof![4 => 0u32..2000, 1 => 0..=Sgl::KEYED_LENGTH_MAX];
    let keyed = (any::<u64>(), lengths, any::<u32>(), any::<bool>())
        .prop_map(|(at, length, rkey, last)| SglDescriptor::keyed(at, length, rkey, last));
    let bucket = (0u32..2000).prop_map(|length| Sgl::BitBucket { length }.into());
    let arbitrary = any::<[u8; 16]>().prop_map(SglDescriptor);
    vec(
        prop_oneof![40 => keyed, 10 => bucket, 1 => arbitrary],
        0..20,
    )
}

proptest! {
    #[test]
    fn pieces_of_a_list_are_its_keyed_descriptors(
        list in descriptors(),
        to_host in any::<bool>(),
        length in 0u32..20_000,
    ) {
        let direction = if to_host { Direction::ToHost } else { Direction::FromHost };
        let Ok(parsed) = SglList::parse(list.as_bytes(), direction) else {
            return Ok(());
        };
        let (mut at, mut expected) = (0, Vec::new());
        for descriptor in &list {
            match descriptor.parse().unwrap() {
                Sgl::Keyed { address, length, rkey, .. } => {
                    if length > 0 {
                        expected.push((at, address, length, rkey));
                    }
                    at += length;
                }
                Sgl::BitBucket { length } if to_host => at += length,
                Sgl::BitBucket { .. } => {}
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert!(expected.len() <= DATA_BLOCKS_MAX);
        prop_assert_eq!(parsed.as_one().parse().unwrap().length(), at);
        let seen: Vec<_> = parsed
            .pieces(u32::MAX)
            .map(|piece| (piece.at, piece.buffer.address, piece.buffer.length, piece.buffer.rkey))
            .collect();
        prop_assert_eq!(&seen, &expected);
        let clipped: u32 = parsed.pieces(length).map(|piece| piece.buffer.length).sum();
        let inside = expected.iter().map(|(at, _, bytes, _)| length.saturating_sub(*at).min(*bytes));
        prop_assert_eq!(clipped, inside.sum::<u32>());
    }

    #[test]
    fn any_list_in_any_capsule_is_parsed(sqe in sqes(), capsule in vec(any::<u8>(), 0..700)) {
        match SglList::locate(&sqe, capsule.len() as u32) {
            Ok(Some(found)) => {
                let bytes = &capsule[found.range()];
                prop_assert!(bytes.len() <= LIST_BYTES_MAX);
                let _ = SglList::parse(bytes, Direction::of(&sqe));
            }
            Ok(None) => prop_assert_ne!(sqe.dptr.sgl_type(), SglType::LAST_SEGMENT),
            Err(status) => prop_assert!(status.name().is_some()),
        }
    }
}

fn check_private_data(
    bytes: &[u8],
    length: usize,
    parsed: Result<Vec<u8>, RejectStatus>,
) -> Result<(), TestCaseError> {
    match parsed {
        Ok(emitted) => prop_assert_eq!(emitted, &bytes[..length]),
        Err(RejectStatus::INVALID_LENGTH) => prop_assert!(bytes.len() < length),
        Err(RejectStatus::INVALID_RECFMT) => prop_assert_ne!(&bytes[..2], [0, 0]),
        Err(other) => prop_assert!(false, "{other}"),
    }
    Ok(())
}

fn exists(range: BlockRange, namespace: &NamespaceView) -> bool {
    u128::from(range.slba) + u128::from(range.blocks) <= u128::from(namespace.nsze)
}

fn has_the_right_direction(command: &IoCommand) -> bool {
    match command.operation {
        Operation::Read(_) => matches!(command.transfer, DataTransfer::ToHost(_)),
        Operation::Write(_)
        | Operation::Compare(_)
        | Operation::DatasetManagement { .. }
        | Operation::Copy(_) => {
            matches!(
                command.transfer,
                DataTransfer::FromHost(_) | DataTransfer::InCapsule(_)
            )
        }
        Operation::Verify(_)
        | Operation::WriteZeroes { .. }
        | Operation::WriteUncorrectable(_)
        | Operation::Flush(_) => command.transfer == DataTransfer::None,
    }
}

fn in_bounds(transfer: &DataTransfer, in_capsule_bytes: u32) -> bool {
    match transfer {
        DataTransfer::None => true,
        DataTransfer::ToHost(buffer) | DataTransfer::FromHost(buffer) => {
            buffer.length > 0
                && buffer
                    .address
                    .checked_add(u64::from(buffer.length))
                    .is_some()
        }
        DataTransfer::InCapsule(slice) => slice.range().end <= in_capsule_bytes as usize,
        DataTransfer::ToHostList(_) | DataTransfer::FromHostList(_) => false,
    }
}

fn identifiers() -> impl Strategy<Value = u8> {
    let meaningful = prop::sample::select(vec![0x40u8, 0x00, 0x10, 0x21, 0x31]);
    prop_oneof![6 => Just(0x4f), 3 => Just(0x01), 2 => meaningful, 1 => any::<u8>()]
}

fn sqes() -> impl Strategy<Value = Sqe> {
    let opcodes = prop_oneof![
        8 => prop::sample::select(vec![0x00u8, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0c]),
        1 => any::<u8>(),
    ];
    let nsids = prop_oneof![8 => Just(1), 1 => Just(0), 1 => Just(NSID_ALL)];
    let blocks = prop_oneof![4 => 0u16..8, 1 => any::<u16>()];
    let lengths = prop_oneof![6 => Just(None), 1 => (0u32..8).prop_map(|n| Some(n * 512))];
    let plausible = (
        opcodes,
        nsids,
        0u32..40,
        blocks,
        identifiers(),
        lengths,
        any::<u64>(),
    )
        .prop_map(
            |(opcode, nsid, slba, blocks, identifier, length, address)| {
                let mut sqe = Sqe::fabrics(0x51, FabricsType(0));
                (sqe.opc, sqe.nsid) = (opcode, U32::new(nsid));
                let needed = match opcode {
                    0x01 | 0x02 | 0x05 => (u32::from(blocks) + 1) * 512,
                    0x09 => 16,
                    _ => 0,
                };
                if !matches!(opcode, 0x00 | 0x09) {
                    sqe.cdw10 = U32::new(slba);
                    sqe.cdw12 = U32::new(u32::from(blocks));
                }
                let length = length.unwrap_or(needed).min(Sgl::KEYED_LENGTH_MAX);
                sqe.dptr = match identifier {
                    0x01 => SglDescriptor::in_capsule(address % 2048, length),
                    _ => SglDescriptor::keyed(address, length, 7, true),
                };
                sqe.dptr.0[15] = identifier;
                sqe
            },
        )
        .boxed();
    let one_byte_wrong =
        (plausible.clone(), 0usize..64, any::<u8>()).prop_map(|(mut sqe, at, byte)| {
            sqe.as_mut_bytes()[at] = byte;
            sqe
        });
    let arbitrary = any::<[u8; 64]>().prop_map(|bytes| Sqe::read_from_bytes(&bytes).unwrap());
    prop_oneof![4 => plausible, 3 => one_byte_wrong, 1 => arbitrary]
}

fn namespaces() -> impl Strategy<Value = NamespaceView> {
    let sizes = prop_oneof![4 => Just(40u64), 1 => any::<u64>()];
    let shifts = prop_oneof![4 => Just(9u8), 1 => 9u8..=16];
    let flags = (prop::bool::weighted(0.1), any::<bool>());
    (sizes, shifts, flags).prop_map(|(nsze, lbads, (write_protected, write_uncorrectable))| {
        NamespaceView {
            nsze,
            lbads,
            write_protected,
            write_uncorrectable,
        }
    })
}

fn limits() -> impl Strategy<Value = IoLimits> {
    let any_oncs = prop_oneof![4 => Just(u16::MAX), 1 => any::<u16>()];
    (any_oncs, any::<u8>(), any::<Option<u32>>(), 12u32..=20).prop_map(
        |(oncs, vwc, limit, mdts)| IoLimits {
            mdts_bytes: 1 << mdts,
            wzsl_bytes: limit,
            vsl_bytes: limit,
            wusl_bytes: limit,
            oncs: Oncs(oncs),
            vwc: Vwc(vwc),
        },
    )
}
