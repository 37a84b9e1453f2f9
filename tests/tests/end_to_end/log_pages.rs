use cairn_initiator::{Data, Host, command};
use cairn_tests::harness::TestTarget;
use nvme_proto::wire::identify::Cns;
use nvme_proto::wire::log::{
    AnaGroup, AnaLogHeader, AnaState, CommandEffects, CommandEffectsLog, ErrorEntry,
    FirmwareSlotLog, LogPage, SmartLog, SupportedLogPage, SupportedLogPages,
};
use nvme_proto::wire::{AdminOpcode, FromBytes, NSID_ALL, NvmOpcode, Status};

use crate::verified::{Disk, Transfer, bytes, status};

pub(crate) fn page<T: FromBytes>(host: &mut Host, lid: LogPage) -> T {
    let bytes = host.log_page(lid, 0, size_of::<T>(), false).unwrap();
    T::read_from_bytes(&bytes).ok().unwrap()
}

#[test]
fn supported_pages_are_those_that_can_be_read() {
    let target = TestTarget::with_namespaces(&["null:1GiB"]);
    let mut host = target.connect("a");
    let supported: SupportedLogPages = page(&mut host, LogPage::SUPPORTED_LOG_PAGES);
    let mut buffer = host.buffer(4096).unwrap();
    for lid in 0..=u8::MAX {
        let says = SupportedLogPage(supported.lids[usize::from(lid)].get()).lsupp();
        let sqe = command::get_log_page(LogPage(lid), NSID_ALL, 0, 64, true);
        let result = host.run_admin(sqe, Data::start_of(&mut buffer, 64));
        match result {
            Ok(_) => assert!(says, "page {lid:#x} is read, but not listed"),
            Err(_) => {
                assert!(
                    !says,
                    "page {lid:#x} is listed, but cannot be read: {result:?}"
                );
                assert_eq!(status(result).code(), Status::INVALID_LOG_PAGE, "{lid:#x}");
            }
        }
    }
    for lid in [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x0c] {
        let entry = SupportedLogPage(supported.lids[lid].get());
        assert!(entry.lsupp(), "page {lid:#x} is missing");
    }
    host.shutdown().unwrap();
}

#[test]
fn the_error_log_names_the_command_that_failed() {
    let target = TestTarget::with_namespaces(&["null:1GiB"]);
    let mut host = target.connect("a");
    let none: ErrorEntry = page(&mut host, LogPage::ERROR_INFORMATION);
    assert_eq!(none.error_count.get(), 0);

    let mut failed = Vec::new();
    for slba in [u64::MAX - 1, 1 << 40] {
        let data = Data::whole(host.buffer(512).unwrap());
        let read = command::read(1, slba, 1);
        let ticket = host.submit(read, data).unwrap();
        let answer = host.wait(ticket).answer.unwrap().cqe;
        assert_eq!(answer.status().code(), Status::LBA_OUT_OF_RANGE);
        failed.push((slba, ticket.cid(), answer.status()));
    }
    let bytes = host
        .log_page(
            LogPage::ERROR_INFORMATION,
            0,
            2 * size_of::<ErrorEntry>(),
            false,
        )
        .unwrap();
    let entries: Vec<ErrorEntry> = bytes
        .chunks_exact(size_of::<ErrorEntry>())
        .map(|entry| ErrorEntry::read_from_bytes(entry).unwrap())
        .collect();
    for (entry, (slba, cid, answer)) in entries.iter().zip(failed.iter().rev()) {
        assert_eq!((entry.sqid.get(), entry.cid.get()), (1, *cid));
        assert_eq!(Status::from_field(entry.status.get()).code(), answer.code());
        assert_eq!((entry.lba.get(), entry.nsid.get()), (*slba, 1));
    }
    assert_eq!(
        entries[0].error_count.get(),
        entries[1].error_count.get() + 1
    );
    let smart: SmartLog = page(&mut host, LogPage::SMART);
    assert_eq!(smart.error_log_entries.get(), 2);
    host.shutdown().unwrap();
}

#[test]
fn smart_counts_what_was_done() {
    let target = TestTarget::with_namespaces(&["mem:16MiB block_size = 512"]);
    let mut host = target.connect("a");
    let before: SmartLog = page(&mut host, LogPage::SMART);
    let mut disk = Disk::new(&mut host, 1);
    for round in 0..4 {
        disk.write(0, &bytes(round, 1 << 20), Transfer::Keyed);
    }
    for _ in 0..3 {
        disk.read(0, 1 << 20, Transfer::Keyed);
    }
    let after: SmartLog = page(&mut host, LogPage::SMART);
    let commands = |smart: &SmartLog| {
        (
            smart.host_read_commands.get(),
            smart.host_write_commands.get(),
        )
    };
    let (reads, writes) = commands(&before);
    assert_eq!(commands(&after), (reads + 3, writes + 4));
    assert!(after.data_units_read.get() >= before.data_units_read.get() + 6);
    assert!(after.data_units_written.get() >= before.data_units_written.get() + 8);
    assert_eq!(after.critical_warning, 0);
    host.shutdown().unwrap();
}

#[test]
fn effects_and_firmware_and_ana_make_sense() {
    let target = TestTarget::with_namespaces(&["null:1GiB", "null:1GiB"]);
    let mut host = target.connect("a");
    let effects: CommandEffectsLog = page(&mut host, LogPage::COMMAND_EFFECTS);
    let admin = |code: AdminOpcode| CommandEffects(effects.acs[usize::from(code.0)].get());
    let io = |code: NvmOpcode| CommandEffects(effects.iocs[usize::from(code.0)].get());
    assert!(admin(AdminOpcode::IDENTIFY).csupp() && admin(AdminOpcode::KEEP_ALIVE).csupp());
    assert!(!admin(AdminOpcode::FORMAT_NVM).csupp());
    assert!(io(NvmOpcode::WRITE).csupp() && io(NvmOpcode::WRITE).lbcc());
    assert!(io(NvmOpcode::READ).csupp() && !io(NvmOpcode::READ).lbcc());

    let firmware: FirmwareSlotLog = page(&mut host, LogPage::FIRMWARE_SLOT);
    assert_eq!(firmware.afi & 0b111, 1);
    assert_eq!(firmware.frs[0], host.identity().fr);

    let head: AnaLogHeader = page(&mut host, LogPage::ANA);
    let mut nsids = Vec::new();
    let mut at = size_of::<AnaLogHeader>() as u64;
    for _ in 0..head.ngrps.get() {
        let length = size_of::<AnaGroup>();
        let bytes = host.log_page(LogPage::ANA, at, length, false).unwrap();
        let group = AnaGroup::read_from_bytes(&bytes).unwrap();
        assert_eq!(AnaState(group.anas & 0xf), AnaState::OPTIMIZED);
        at += length as u64;
        let list = group.nnsids.get() as usize * 4;
        if list > 0 {
            let bytes = host.log_page(LogPage::ANA, at, list, false).unwrap();
            nsids.extend(
                bytes
                    .chunks_exact(4)
                    .map(|n| u32::from_le_bytes(n.try_into().unwrap())),
            );
        }
        at += list as u64;
    }
    assert_eq!(nsids, [1, 2]);
    host.shutdown().unwrap();
}

#[test]
fn a_page_in_pieces_is_the_page() {
    let target = TestTarget::with_namespaces(&["null:1GiB"]);
    let mut host = target.connect("a");
    let lid = LogPage::COMMAND_EFFECTS;
    let whole = host.log_page(lid, 0, 4096, true).unwrap();
    let mut pieces = Vec::new();
    for (offset, length) in [(0, 4), (4, 508), (512, 1536), (2048, 2044), (4092, 4)] {
        pieces.extend(host.log_page(lid, offset, length, true).unwrap());
    }
    assert!(pieces == whole);
    for offset in [4097, 1 << 32, u64::MAX] {
        let refused = host.log_page(lid, offset, 4, true);
        assert_eq!(
            status(refused).code(),
            Status::INVALID_FIELD,
            "offset {offset:#x}"
        );
    }
    assert!(host.identify_bytes(Cns::CONTROLLER, 0).is_ok());
    host.shutdown().unwrap();
}
