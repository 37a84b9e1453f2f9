use std::time::Duration;

use nvme_proto::controller::SmartCounters;
use nvme_proto::controller::error_log::Failure;
use nvme_proto::limits::{ERROR_LOG_ENTRIES, namespaces_within};
use nvme_proto::subsystem::{Health, Subsystem};
use nvme_proto::wire::identify::{Cns, IdentifyController};
use nvme_proto::wire::log::{
    AnaGroup, AnaLogHeader, CommandEffects, CommandEffectsLog, ErrorEntry, FirmwareSlotLog,
    SmartLog, SupportedLogPages,
};
use nvme_proto::wire::{Status, U32};

use crate::rig::*;

/// Supported log pages and their lengths in bytes.
const PAGES: [(u8, u64); 11] = [
    (0x00, 1024),
    (0x01, 4096),
    (0x02, 512),
    (0x03, 512),
    (0x04, 4096),
    (0x05, 4096),
    (ANA, 16 + 32 + 2 * 4),
    (0x12, 1024),
    (0x13, 4096),
    (0x1e, 4096),
    (0x80, 64),
];

const ANA: u8 = 0x0c;

#[test]
fn the_supported_pages_are_those_that_can_be_read() {
    let mut rig = Rig::ready();
    let supported: SupportedLogPages = read(&rig.log(0x00, 1024));
    for lid in 0..=u8::MAX {
        let there = PAGES.iter().any(|(known, _)| *known == lid);
        assert_eq!(
            supported.lids[usize::from(lid)].get() & 1 != 0,
            there,
            "page {lid:#x}"
        );
        if there {
            rig.log(lid, 512);
        } else {
            assert_eq!(
                rig.fail(log(lid, 512)),
                Status::INVALID_LOG_PAGE,
                "page {lid:#x}"
            );
        }
    }
}

#[test]
fn any_window_onto_a_page_shows_the_same_bytes() {
    let mut rig = Rig::ready();
    for _ in 0..3 {
        rig.fail(identify(Cns(0x7f), 0));
    }
    for (lid, length) in PAGES {
        let whole = rig.succeed(with_rae(log(lid, 8192))).1;
        let end = length as usize;
        assert!(
            whole[end..].iter().all(|&byte| byte == 0),
            "page {lid:#x} beyond its end"
        );
        for start in (0..=end).step_by(20) {
            let part = rig.succeed(with_rae(log_at(lid, 256, start as u64))).1;
            assert_eq!(
                part,
                whole[start..start + 256],
                "page {lid:#x} from {start}"
            );
        }
    }
}

#[test]
fn offsets_beyond_the_end_or_unaligned_are_refused() {
    let mut rig = Rig::ready();
    for (lid, length) in PAGES {
        let length = if lid == ANA {
            advertised_ana_log(&mut rig)
        } else {
            length
        };
        rig.succeed(log_at(lid, 4, length));
        for lpo in [length + 4, 2, u64::MAX - 3] {
            let status = rig.fail(log_at(lid, 4, lpo));
            assert_eq!(status, Status::INVALID_FIELD, "page {lid:#x} from {lpo}");
        }
    }
}

fn advertised_ana_log(rig: &mut Rig) -> u64 {
    let id: IdentifyController = read(&rig.succeed(identify(Cns::CONTROLLER, 0)).1);
    16 + 32 * u64::from(id.nanagrpid.get()) + 4 * u64::from(id.mnan.get())
}

#[test]
fn the_ana_log_can_be_read_in_pieces_up_to_its_advertised_length() {
    let mut rig = Rig::ready();
    let whole = rig.succeed(with_rae(log(ANA, 4096))).1;
    for start in (0..advertised_ana_log(&mut rig)).step_by(4096) {
        let piece = rig.succeed(with_rae(log_at(ANA, 4096, start))).1;
        let expected = if start == 0 { &whole[..] } else { &[0; 4096] };
        assert!(piece == expected, "the piece at {start}");
    }
}

#[test]
fn lengths_over_16_bits_of_numd_work_up_to_mdts() {
    let mut rig = Rig::ready();
    assert_eq!(rig.log(0x05, 1 << 20).len(), 1 << 20);
    assert_eq!(rig.fail(log(0x05, (1 << 20) + 4)), Status::INVALID_FIELD);
    let mut longest = log(0x05, 4);
    longest.cdw10.set(longest.cdw10.get() | 0xffff << 16);
    longest.cdw11.set(0xffff);
    assert_eq!(rig.fail(longest), Status::INVALID_FIELD);
}

#[test]
fn indexed_offsets_uuids_and_foreign_command_sets_are_refused() {
    let mut rig = Rig::ready();
    for cdw14 in [1 << 23, 1, 2 << 24] {
        let mut bad = log(0x05, 512);
        bad.cdw14.set(cdw14);
        assert_eq!(rig.fail(bad), Status::INVALID_FIELD);
    }
}

#[test]
fn smart_counts_in_its_units_and_rounds_data_up() {
    let mut rig = Rig::ready();
    rig.smart = SmartCounters {
        read_bytes: 1,
        written_bytes: 512_001,
        read_commands: 3,
        write_commands: 4,
        busy: Duration::from_secs(150),
        power_on: Duration::from_secs(7300),
        power_cycles: 5,
        unsafe_shutdowns: 6,
        media_errors: 7,
    };
    rig.fail(identify(Cns(0x7f), 0));
    let smart: SmartLog = read(&rig.log(0x02, 512));
    assert_eq!(
        (smart.data_units_read.get(), smart.data_units_written.get()),
        (1, 2)
    );
    assert_eq!(
        (
            smart.host_read_commands.get(),
            smart.host_write_commands.get()
        ),
        (3, 4)
    );
    assert_eq!(
        (smart.controller_busy_time.get(), smart.power_on_hours.get()),
        (2, 2)
    );
    assert_eq!(
        (smart.power_cycles.get(), smart.unsafe_shutdowns.get()),
        (5, 6)
    );
    assert_eq!(
        (smart.media_errors.get(), smart.error_log_entries.get()),
        (7, 1)
    );
    assert_eq!(
        (smart.critical_warning, smart.avsp, smart.avspt),
        (0, 100, 10)
    );
}

#[test]
fn smart_shows_the_health_as_the_hosts_thresholds_see_it() {
    let mut rig = Rig::ready();
    let health = Health {
        critical_warning: 0b1100,
        temperature_k: 310,
        ..Health::default()
    };
    rig.subsystem.set_health(health, &mut Vec::new());
    let smart: SmartLog = read(&rig.log(0x02, 512));
    assert_eq!(
        (smart.critical_warning, smart.composite_temperature.get()),
        (0b1100, 310)
    );
    rig.succeed(set_features(0x04, 310));
    let smart: SmartLog = read(&rig.log(0x02, 512));
    assert_eq!(smart.critical_warning, 0b1110);
    let under = 1 << 20;
    for (over_k, under_k, warning) in [(311, 309, 0b1100), (311, 310, 0b1110)] {
        rig.succeed(set_features(0x04, over_k));
        rig.succeed(set_features(0x04, under_k | under));
        let smart: SmartLog = read(&rig.log(0x02, 512));
        assert_eq!(smart.critical_warning, warning, "{under_k} to {over_k} K");
    }
}

#[test]
fn smart_is_of_the_controller_not_of_a_namespace() {
    let mut rig = Rig::ready();
    let mut of_namespace = log(0x02, 512);
    of_namespace.nsid.set(1);
    assert_eq!(rig.fail(of_namespace), Status::INVALID_FIELD);
    of_namespace.nsid.set(0);
    rig.succeed(of_namespace);
}

#[test]
fn failures_of_all_queues_are_in_the_error_log() {
    let mut rig = Rig::ready();
    rig.fail(identify(Cns(0x7f), 0));
    let cid = rig.last_cid();
    let failure = Failure {
        sqid: 3,
        cid: 0x55,
        status: Status::LBA_OUT_OF_RANGE.with_dnr(),
        byte: Some(40),
        lba: 99,
        nsid: 2,
    };
    rig.subsystem.record_failures(rig.cntlid, 3, [failure]);
    let page = rig.log(0x01, 64 * ERROR_LOG_ENTRIES);
    let newest: ErrorEntry = read(&page);
    assert_eq!(
        (
            newest.error_count.get(),
            newest.sqid.get(),
            newest.cid.get()
        ),
        (5, 3, 0x55),
        "three before it were left out"
    );
    assert_eq!(Status::from_field(newest.status.get()), failure.status);
    assert_eq!((newest.lba.get(), newest.nsid.get()), (99, 2));
    let older: ErrorEntry = read(&page[64..]);
    assert_eq!(
        (older.error_count.get(), older.sqid.get(), older.cid.get()),
        (1, 0, cid)
    );
    assert_eq!(older.parameter_error_location.get(), 40, "CNS is in CDW10");
    assert!(page[128..].iter().all(|&byte| byte == 0));
    assert_eq!(
        rig.subsystem.controller(rig.cntlid).unwrap().error_count(),
        5
    );
}

#[test]
fn the_effects_are_those_of_the_commands_there_are() {
    let mut rig = Rig::ready();
    let effects: CommandEffectsLog = read(&rig.log(0x05, 4096));
    let supported = |table: &[U32; 256]| -> Vec<usize> {
        (0..256)
            .filter(|&opcode| CommandEffects(table[opcode].get()).csupp())
            .collect()
    };
    assert_eq!(
        supported(&effects.acs),
        [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x38, 0x7f]
    );
    assert_eq!(
        supported(&effects.iocs),
        [
            0x00, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0c, 0x0d, 0x0e, 0x11, 0x15, 0x18, 0x19
        ]
    );
    for (opcode, changes) in [(0x01, true), (0x02, false), (0x08, true), (0x09, true)] {
        assert_eq!(CommandEffects(effects.iocs[opcode].get()).lbcc(), changes);
    }
    let features = rig.log(0x12, 1024);
    let fids: Vec<_> = (0..256).filter(|fid| features[fid * 4] & 1 != 0).collect();
    assert_eq!(fids[..6], [0x01, 0x02, 0x04, 0x05, 0x06, 0x07]);
    assert_eq!(fids.len(), 19);
}

#[test]
fn the_firmware_is_in_slot_1() {
    let mut rig = Rig::ready();
    let firmware: FirmwareSlotLog = read(&rig.log(0x03, 512));
    assert_eq!(
        (firmware.afi, &firmware.frs[0], firmware.frs[1]),
        (1, b"0.1.0   ", [0; 8])
    );
}

#[test]
fn the_ana_log_counts_changes_and_can_leave_out_nsids() {
    let mut rig = Rig::ready();
    let before: AnaLogHeader = read(&rig.log(0x0c, 16));
    rig.subsystem
        .add_namespace(namespace(9), &mut Vec::new())
        .unwrap();
    let page = rig.log(0x0c, 64);
    let after: AnaLogHeader = read(&page);
    assert_eq!(after.chgcnt.get(), before.chgcnt.get() + 1);
    let group: AnaGroup = read(&page[16..]);
    assert_eq!((group.nnsids.get(), page[56]), (3, 9));
    let mut groups_only = log(0x0c, 64);
    groups_only.cdw10.set(groups_only.cdw10.get() | 1 << 8);
    let page = rig.succeed(groups_only).1;
    let group: AnaGroup = read(&page[16..]);
    assert_eq!((group.agid.get(), group.nnsids.get()), (1, 0));
    assert!(page[48..].iter().all(|&byte| byte == 0));
}

#[test]
fn changed_namespaces_are_listed_until_read() {
    let mut rig = Rig::ready();
    assert_eq!(rig.log(0x04, 4096), [0; 4096]);
    let actions = &mut Vec::new();
    rig.subsystem.remove_namespace(2, actions).unwrap();
    rig.subsystem.resize_namespace(1, 5, actions).unwrap();
    rig.subsystem.resize_namespace(1, 5, actions).unwrap();
    for _ in 0..2 {
        let page = rig.succeed(with_rae(log(0x04, 4096))).1;
        assert_eq!(page[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }
    rig.log(0x04, 4096);
    assert_eq!(rig.log(0x04, 4096), [0; 4096]);
}

#[test]
fn more_changes_than_the_list_can_name_are_one_entry() {
    let mut rig = Rig::connected(Subsystem::new(settings()), 0);
    rig.enable();
    let add = |rig: &mut Rig, nsids: std::ops::RangeInclusive<u32>| {
        for nsid in nsids {
            rig.subsystem
                .add_namespace(namespace(nsid), &mut Vec::new())
                .unwrap();
        }
    };
    add(&mut rig, 1..=1024);
    let page = rig.succeed(with_rae(log(0x04, 4096))).1;
    assert_eq!(page[4092..], [0, 4, 0, 0]);
    add(&mut rig, 1025..=1026);
    let page = rig.log(0x04, 4096);
    assert_eq!(page[..4], [0xff; 4]);
    assert_eq!(page[4..], [0; 4092]);
    // The previous read reported and cleared the overflow.
    add(&mut rig, 10_240..=10_240);
    assert_eq!(rig.log(0x04, 4096)[..8], [0, 40, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_ana_log_of_all_namespaces_fits_in_a_transfer() {
    for (transfer_bytes, namespaces) in [
        (8 << 10, 1024),
        (16 << 10, 3068),
        (64 << 10, 10_240),
        (4 << 20, 10_240),
    ] {
        assert_eq!(namespaces_within(transfer_bytes), namespaces);
    }
}
