use super::*;
use crate::transfer::{CapsuleSlice, RemoteBuffer};
use crate::wire::{FromZeros, IntoBytes, Sgl, SglDescriptor, U16, U32, U64};

const NAMESPACE: NamespaceView = NamespaceView {
    nsze: 1000,
    lbads: 9,
    write_protected: false,
    write_uncorrectable: true,
};
const PROTECTED: NamespaceView = NamespaceView {
    write_protected: true,
    ..NAMESPACE
};

fn limits() -> IoLimits {
    IoLimits {
        mdts_bytes: 128 << 10,
        wzsl_bytes: None,
        vsl_bytes: None,
        wusl_bytes: None,
        oncs: Oncs(0)
            .with_compare(true)
            .with_dataset_management(true)
            .with_write_zeroes(true)
            .with_verify(true),
        vwc: Vwc(0).with_present(true).with_flush_all(Vwc::FLUSH_ALL_YES),
    }
}

fn command(opcode: NvmOpcode, slba: u64, blocks: u32) -> Sqe {
    let mut sqe = Sqe::new_zeroed();
    sqe.opc = opcode.0;
    sqe.flags = Sqe::FLAGS_SGL;
    sqe.cid = U16::new(0x51);
    sqe.nsid = U32::new(1);
    sqe.cdw10 = U32::new(slba as u32);
    sqe.cdw11 = U32::new((slba >> 32) as u32);
    sqe.cdw12 = U32::new(blocks.wrapping_sub(1) & 0xffff);
    sqe.dptr = match opcode {
        NvmOpcode::READ | NvmOpcode::WRITE | NvmOpcode::COMPARE => {
            let length = (blocks << 9).min(Sgl::KEYED_LENGTH_MAX);
            SglDescriptor::keyed(0x1000, length, 0x24a1, true)
        }
        _ => SglDescriptor::none(),
    };
    sqe
}

fn flush() -> Sqe {
    let mut sqe = command(NvmOpcode::FLUSH, 0, 1);
    sqe.cdw12 = U32::ZERO;
    sqe
}

fn dataset_management(ranges: u32) -> Sqe {
    let mut sqe = command(NvmOpcode::DATASET_MANAGEMENT, 0, 1);
    sqe.cdw10 = U32::new(ranges - 1);
    sqe.cdw11 = U32::new(0b100);
    sqe.dptr = SglDescriptor::in_capsule(0, ranges * 16);
    sqe
}

fn parse(sqe: &Sqe) -> Result<IoCommand, Status> {
    IoCommand::parse(sqe, 4096, Some(&NAMESPACE), &limits())
}

fn access(slba: u64, blocks: u32) -> BlockAccess {
    BlockAccess {
        range: BlockRange { slba, blocks },
        fua: false,
        limited_retry: false,
    }
}

const BLOCK_COMMANDS: [NvmOpcode; 5] = [
    NvmOpcode::READ,
    NvmOpcode::WRITE,
    NvmOpcode::COMPARE,
    NvmOpcode::VERIFY,
    NvmOpcode::WRITE_ZEROES,
];

#[test]
fn read() {
    let buffer = RemoteBuffer {
        address: 0x1000,
        length: 4096,
        rkey: 0x24a1,
    };
    let expected = IoCommand {
        cid: 0x51,
        nsid: 1,
        operation: Operation::Read(access(16, 8)),
        transfer: DataTransfer::ToHost(buffer),
    };
    let sqe = command(NvmOpcode::READ, 16, 8);
    assert_eq!(parse(&sqe), Ok(expected));
    assert_eq!(sqe.dptr.invalidate_rkey(), Some(0x24a1));
}

#[test]
fn write_from_the_capsule_and_from_memory() {
    let mut sqe = command(NvmOpcode::WRITE, 16, 8);
    let parsed = parse(&sqe).unwrap();
    assert_eq!(parsed.operation, Operation::Write(access(16, 8)));
    assert!(matches!(parsed.transfer, DataTransfer::FromHost(_)));

    sqe.dptr = SglDescriptor::in_capsule(0, 4096);
    let slice = CapsuleSlice {
        offset: 0,
        length: 4096,
    };
    assert_eq!(
        parse(&sqe).unwrap().transfer,
        DataTransfer::InCapsule(slice)
    );
    assert_eq!(sqe.dptr.invalidate_rkey(), None);
    let short = IoCommand::parse(&sqe, 4095, Some(&NAMESPACE), &limits());
    assert_eq!(short, Err(Status::SGL_OFFSET_INVALID.with_dnr()));

    sqe.opc = NvmOpcode::READ.0;
    assert_eq!(
        parse(&sqe),
        Err(INVALID_FIELD),
        "a read has nothing in its capsule"
    );
}

#[test]
fn fua_and_limited_retry() {
    for opcode in BLOCK_COMMANDS {
        let mut sqe = command(opcode, 0, 1);
        sqe.cdw12 = U32::new(cdw12::FUA | cdw12::LR);
        let (Operation::Read(access)
        | Operation::Write(access)
        | Operation::Compare(access)
        | Operation::Verify(access)
        | Operation::WriteZeroes { access, .. }) = parse(&sqe).unwrap().operation
        else {
            panic!("{opcode} names no blocks");
        };
        assert!(access.fua && access.limited_retry, "{opcode}");
    }
}

#[test]
fn blocks_must_exist() {
    for opcode in BLOCK_COMMANDS {
        assert!(parse(&command(opcode, 0, 1)).is_ok(), "{opcode}");
        assert!(parse(&command(opcode, 992, 8)).is_ok(), "{opcode}");
        for (slba, blocks) in [(993, 8), (1000, 1), (u64::MAX, 1), (u64::MAX - 7, 8)] {
            let parsed = parse(&command(opcode, slba, blocks));
            assert_eq!(parsed, Err(LBA_OUT_OF_RANGE), "{opcode} {slba}+{blocks}");
        }
    }
}

#[test]
fn reserved_fields_of_block_commands() {
    for opcode in BLOCK_COMMANDS {
        for bit in (16..24).chain([25]) {
            let mut sqe = command(opcode, 0, 1);
            sqe.cdw12 = U32::new(1 << bit);
            let defined = opcode == NvmOpcode::WRITE_ZEROES && bit == 25;
            let expected = if defined { None } else { Some(INVALID_FIELD) };
            assert_eq!(parse(&sqe).err(), expected, "{opcode} CDW12 bit {bit}");
        }
        for bit in [24, 26, 27, 28, 29] {
            let mut sqe = command(opcode, 0, 1);
            sqe.cdw12 = U32::new(1 << bit);
            assert_eq!(
                parse(&sqe),
                Err(INVALID_PROTECTION),
                "{opcode} CDW12 bit {bit}"
            );
        }
        let mut sqe = command(opcode, 0, 1);
        for bit in 8..16 {
            sqe.cdw13 = U32::new(1 << bit);
            assert_eq!(parse(&sqe), Err(INVALID_FIELD), "{opcode} CDW13 bit {bit}");
        }
        sqe.cdw13 = U32::new(0x00ff);
        assert!(parse(&sqe).is_ok(), "{opcode}: access hints");
        sqe.mptr = U64::new(8);
        assert_eq!(parse(&sqe), Err(INVALID_FIELD), "{opcode} MPTR");
    }
}

#[test]
fn flags() {
    for (flags, good) in [
        (0x40, true),
        (0x80, true),
        (0x00, false),
        (0xc0, false),
        (0x41, false),
        (0x44, false),
    ] {
        let mut sqe = command(NvmOpcode::READ, 0, 1);
        sqe.flags = flags;
        assert_eq!(
            parse(&sqe).err(),
            (!good).then_some(INVALID_FIELD),
            "{flags:#x}"
        );
    }
}

#[test]
fn transfers_have_the_length_of_the_blocks() {
    for opcode in [NvmOpcode::READ, NvmOpcode::WRITE, NvmOpcode::COMPARE] {
        for length in [0, 511, 513, 1024] {
            let mut sqe = command(opcode, 0, 1);
            sqe.dptr = SglDescriptor::keyed(0x1000, length, 1, true);
            let expected = Status::DATA_SGL_LENGTH_INVALID.with_dnr();
            assert_eq!(parse(&sqe), Err(expected), "{opcode} {length}");
        }
    }
}

#[test]
fn mdts_binds_transfers_and_nothing_else() {
    for opcode in BLOCK_COMMANDS {
        assert!(parse(&command(opcode, 0, 256)).is_ok(), "{opcode}");
        let moves = matches!(
            opcode,
            NvmOpcode::READ | NvmOpcode::WRITE | NvmOpcode::COMPARE
        );
        let parsed = parse(&command(opcode, 0, 257));
        assert_eq!(parsed.err(), moves.then_some(INVALID_FIELD), "{opcode}");
    }
}

#[test]
fn commands_that_move_nothing_have_limits_of_their_own() {
    let limits = IoLimits {
        wzsl_bytes: Some(4096),
        vsl_bytes: Some(8192),
        wusl_bytes: Some(2048),
        ..limits()
    };
    for (opcode, most) in [
        (NvmOpcode::WRITE_ZEROES, 8),
        (NvmOpcode::VERIFY, 16),
        (NvmOpcode::WRITE_UNCORRECTABLE, 4),
    ] {
        let parse =
            |blocks| IoCommand::parse(&command(opcode, 0, blocks), 0, Some(&NAMESPACE), &limits);
        assert!(parse(most).is_ok(), "{opcode}");
        assert_eq!(parse(most + 1), Err(INVALID_FIELD), "{opcode}");
    }
}

#[test]
fn the_largest_nlb_does_not_overflow() {
    let huge = NamespaceView {
        nsze: u64::MAX,
        lbads: 16,
        ..NAMESPACE
    };
    for opcode in BLOCK_COMMANDS {
        let sqe = command(opcode, u64::MAX - 0x1_0000, 0x1_0000);
        let parsed = IoCommand::parse(&sqe, 0, Some(&huge), &limits());
        let moves = matches!(
            opcode,
            NvmOpcode::READ | NvmOpcode::WRITE | NvmOpcode::COMPARE
        );
        assert_eq!(parsed.err(), moves.then_some(INVALID_FIELD), "{opcode}");
    }
}

#[test]
fn write_zeroes_may_deallocate() {
    let mut sqe = command(NvmOpcode::WRITE_ZEROES, 3, 4);
    let expected = Operation::WriteZeroes {
        access: access(3, 4),
        deallocate: false,
    };
    assert_eq!(parse(&sqe).unwrap().operation, expected);
    sqe.cdw12 = U32::new(3 | cdw12::DEAC);
    let expected = Operation::WriteZeroes {
        access: access(3, 4),
        deallocate: true,
    };
    assert_eq!(parse(&sqe).unwrap().operation, expected);
}

#[test]
fn write_uncorrectable_is_for_namespaces_that_have_it() {
    let mut sqe = command(NvmOpcode::WRITE_UNCORRECTABLE, 3, 4);
    let parsed = parse(&sqe).unwrap();
    assert_eq!(
        parsed.operation,
        Operation::WriteUncorrectable(access(3, 4))
    );
    assert_eq!(parsed.transfer, DataTransfer::None);
    let without = NamespaceView {
        write_uncorrectable: false,
        ..NAMESPACE
    };
    for namespace in [None, Some(&without)] {
        let parsed = IoCommand::parse(&sqe, 0, namespace, &limits());
        assert_eq!(parsed, Err(INVALID_OPCODE), "{namespace:?}");
    }
    assert_eq!(
        parse(&command(NvmOpcode::WRITE_UNCORRECTABLE, 997, 4)),
        Err(LBA_OUT_OF_RANGE)
    );
    for bit in 16..32 {
        sqe.cdw12 = U32::new(1 << bit);
        assert_eq!(parse(&sqe), Err(INVALID_FIELD), "CDW12 bit {bit}");
    }
}

#[test]
fn a_protected_namespace_refuses_what_changes_it() {
    for (sqe, refused) in [
        (command(NvmOpcode::READ, 0, 1), false),
        (command(NvmOpcode::COMPARE, 0, 1), false),
        (command(NvmOpcode::VERIFY, 0, 1), false),
        (flush(), false),
        (command(NvmOpcode::WRITE, 0, 1), true),
        (command(NvmOpcode::WRITE_ZEROES, 0, 1), true),
        (command(NvmOpcode::WRITE_UNCORRECTABLE, 0, 1), true),
        (dataset_management(1), true),
    ] {
        let parsed = IoCommand::parse(&sqe, 4096, Some(&PROTECTED), &limits());
        assert_eq!(
            parsed.err(),
            refused.then_some(WRITE_PROTECTED),
            "{}",
            NvmOpcode(sqe.opc)
        );
    }
}

#[test]
fn namespaces_must_be_there() {
    for mut sqe in BLOCK_COMMANDS
        .map(|opcode| command(opcode, 0, 1))
        .into_iter()
        .chain([flush(), dataset_management(1)])
    {
        let opcode = NvmOpcode(sqe.opc);
        let parsed = IoCommand::parse(&sqe, 4096, None, &limits());
        assert_eq!(parsed, Err(INVALID_NAMESPACE), "{opcode}");
        for nsid in [0, NSID_ALL] {
            sqe.nsid = U32::new(nsid);
            let flush_all = opcode == NvmOpcode::FLUSH && nsid == NSID_ALL;
            let expected = (!flush_all).then_some(INVALID_NAMESPACE);
            assert_eq!(parse(&sqe).err(), expected, "{opcode} NSID {nsid:#x}");
        }
    }
}

#[test]
fn flush_of_one_and_of_all() {
    let mut sqe = flush();
    assert_eq!(
        parse(&sqe).unwrap().operation,
        Operation::Flush(FlushScope::Namespace)
    );
    sqe.nsid = U32::new(NSID_ALL);
    let parsed = IoCommand::parse(&sqe, 0, None, &limits()).unwrap();
    assert_eq!(parsed.operation, Operation::Flush(FlushScope::All));
    let one_only = IoLimits {
        vwc: Vwc(0).with_flush_all(Vwc::FLUSH_ALL_NO),
        ..limits()
    };
    assert_eq!(
        IoCommand::parse(&sqe, 0, None, &one_only),
        Err(INVALID_NAMESPACE)
    );
}

fn with_dword(mut sqe: Sqe, dword: usize) -> Sqe {
    sqe.as_mut_bytes()[dword * 4 + 3] = 0x80;
    sqe
}

#[test]
fn flush_has_neither_dwords_nor_data() {
    for dword in [2, 3, 10, 11, 12, 13, 14, 15] {
        let parsed = parse(&with_dword(flush(), dword));
        assert_eq!(parsed, Err(INVALID_FIELD), "CDW{dword}");
    }
    let mut sqe = flush();
    sqe.dptr = SglDescriptor::keyed(0, 512, 1, false);
    assert_eq!(parse(&sqe), Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()));
}

#[test]
fn dataset_management_takes_its_ranges() {
    let parsed = parse(&dataset_management(256)).unwrap();
    let expected = Operation::DatasetManagement {
        ranges: 256,
        deallocate: true,
    };
    assert_eq!(parsed.operation, expected);
    assert_eq!(parsed.transfer.length(), 4096);

    let mut sqe = dataset_management(1);
    sqe.dptr = SglDescriptor::in_capsule(0, 4096);
    assert_eq!(
        parse(&sqe).unwrap().transfer.length(),
        16,
        "room for more than NR"
    );
    sqe.dptr = SglDescriptor::in_capsule(0, 15);
    assert_eq!(parse(&sqe), Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()));
    let mut sqe = dataset_management(1);
    sqe.cdw10 = U32::new(0x100);
    assert_eq!(parse(&sqe), Err(INVALID_FIELD));
    let mut sqe = dataset_management(1);
    sqe.cdw11 = U32::new(0b1000);
    assert_eq!(parse(&sqe), Err(INVALID_FIELD));
    for dword in [2, 3, 12, 13, 14, 15] {
        let parsed = parse(&with_dword(dataset_management(1), dword));
        assert_eq!(parsed, Err(INVALID_FIELD), "CDW{dword}");
    }
}

#[test]
fn hints_alone_deallocate_nothing() {
    let mut sqe = dataset_management(1);
    sqe.cdw11 = U32::new(0b011);
    let parsed = IoCommand::parse(&sqe, 4096, Some(&PROTECTED), &limits()).unwrap();
    let expected = Operation::DatasetManagement {
        ranges: 1,
        deallocate: false,
    };
    assert_eq!(parsed.operation, expected);
}

#[test]
fn commands_that_oncs_does_not_announce() {
    let bare = IoLimits {
        oncs: Oncs(0),
        ..limits()
    };
    for opcode in (0..=u8::MAX).map(NvmOpcode) {
        let mandatory = [NvmOpcode::READ, NvmOpcode::WRITE, NvmOpcode::FLUSH].contains(&opcode);
        let namespace = NamespaceView {
            write_uncorrectable: false,
            ..NAMESPACE
        };
        let refused = IoCommand::parse(&command(opcode, 0, 1), 0, Some(&namespace), &bare)
            == Err(INVALID_OPCODE);
        assert_eq!(refused, !mandatory, "{opcode}");
    }
}
