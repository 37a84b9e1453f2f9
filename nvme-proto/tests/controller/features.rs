use std::time::Duration;

use nvme_proto::controller::Action;
use nvme_proto::wire::feature::{HostBehavior, Timestamp};
use nvme_proto::wire::{FromZeros, IntoBytes, NSID_ALL, Status};

use crate::rig::*;

const CURRENT: u32 = 0;
const DEFAULT: u32 = 1;
const SAVED: u32 = 2;
const CAPABILITIES: u32 = 3;
const NAMESPACE_SPECIFIC: u32 = 0b010;
const CHANGEABLE: u32 = 0b100;

/// Supported features and capabilities (SEL = 3).
const FEATURES: [(u8, u32); 19] = [
    (0x01, CHANGEABLE),
    (0x02, CHANGEABLE),
    (0x04, CHANGEABLE),
    (0x05, CHANGEABLE | NAMESPACE_SPECIFIC),
    (0x06, CHANGEABLE),
    (0x07, CHANGEABLE),
    (0x08, 0),
    (0x09, 0),
    (0x0a, CHANGEABLE),
    (0x0b, CHANGEABLE),
    (0x0e, CHANGEABLE),
    (0x0f, CHANGEABLE),
    (0x10, 0),
    (0x16, CHANGEABLE),
    (0x19, CHANGEABLE),
    (0x81, 0),
    (0x82, CHANGEABLE | NAMESPACE_SPECIFIC),
    (0x83, CHANGEABLE | NAMESPACE_SPECIFIC),
    (0x84, CHANGEABLE | NAMESPACE_SPECIFIC),
];

fn get(rig: &mut Rig, fid: u8) -> u32 {
    rig.succeed(get_features(fid, CURRENT, 0)).0
}

#[test]
fn every_feature_reports_its_capabilities() {
    let mut rig = Rig::ready();
    for (fid, capabilities) in FEATURES {
        let (dw0, data) = rig.succeed(get_features(fid, CAPABILITIES, 0));
        assert_eq!((dw0, data.len()), (capabilities, 0), "feature {fid:#x}");
    }
}

#[test]
fn every_feature_has_a_current_a_default_and_a_saved_value() {
    let mut rig = Rig::ready();
    for (fid, _) in FEATURES {
        let cdw11 = if fid == 0x81 { 1 } else { 0 };
        let of = |select| {
            let mut sqe = get_features(fid, select, cdw11);
            sqe.nsid.set(1);
            sqe
        };
        let default = rig.succeed(of(DEFAULT));
        assert_eq!(rig.succeed(of(SAVED)), default, "feature {fid:#x}");
        // KATO is from Connect, not the default.
        if fid != 0x0f {
            assert_eq!(rig.succeed(of(CURRENT)), default, "feature {fid:#x}");
        }
    }
}

#[test]
fn unknown_features_and_selections_are_refused() {
    let mut rig = Rig::ready();
    for fid in (0..=u8::MAX).filter(|fid| FEATURES.iter().all(|(known, _)| known != fid)) {
        assert_eq!(
            rig.fail(get_features(fid, CURRENT, 0)),
            Status::INVALID_FIELD
        );
        assert_eq!(rig.fail(set_features(fid, 0)), Status::INVALID_FIELD);
    }
    for select in 4..8 {
        assert_eq!(
            rig.fail(get_features(0x0b, select, 0)),
            Status::INVALID_FIELD
        );
    }
}

#[test]
fn nothing_is_saved_and_what_is_fixed_stays() {
    let mut rig = Rig::ready();
    for (fid, capabilities) in FEATURES {
        let mut save = set_features(fid, 0);
        save.cdw10.set(save.cdw10.get() | 1 << 31);
        assert_eq!(
            rig.fail(save),
            Status::FEATURE_NOT_SAVEABLE,
            "feature {fid:#x}"
        );
        let expected = match fid {
            0x81 => Status::COMMAND_SEQUENCE_ERROR,
            _ => Status::FEATURE_NOT_CHANGEABLE,
        };
        if capabilities & CHANGEABLE == 0 {
            let status = rig.fail(set_features(fid, 0));
            assert_eq!(status, expected, "feature {fid:#x}");
        }
        let mut of_namespace = set_features(fid, 0);
        of_namespace.nsid.set(1);
        if capabilities & (NAMESPACE_SPECIFIC | CHANGEABLE) == CHANGEABLE {
            let status = rig.fail(of_namespace);
            assert_eq!(
                status,
                Status::FEATURE_NOT_NAMESPACE_SPECIFIC,
                "feature {fid:#x}"
            );
        }
    }
}

#[test]
fn simple_features_keep_their_value() {
    let mut rig = Rig::ready();
    for (fid, value) in [
        (0x01, 0x0403_0205),
        (0x02, 0x0000_0020),
        (0x0a, 1),
        (0x0b, 0x0000_0910),
    ] {
        rig.succeed(set_features(fid, value));
        assert_eq!(get(&mut rig, fid), value, "feature {fid:#x}");
    }
    assert_eq!(
        rig.fail(set_features(0x02, 1)),
        Status::INVALID_FIELD,
        "one power state"
    );
    assert_eq!(
        rig.fail(set_features(0x0b, 1 << 9)),
        Status::INVALID_FIELD,
        "not in OAES"
    );
    assert_eq!(
        rig.fail(set_features(0x0b, 1 << 31)),
        Status::INVALID_FIELD,
        "of discovery"
    );
    let profile = rig.fail(set_features(0x19, 1));
    assert_eq!(profile, Status::IO_COMMAND_SET_COMBINATION_REJECTED);
}

#[test]
fn the_write_cache_can_be_switched_off() {
    let mut rig = Rig::ready();
    let cntlid = rig.cntlid;
    assert_eq!(get(&mut rig, 0x06), 1);
    rig.succeed(set_features(0x06, 0));
    assert_eq!(
        rig.take_actions(),
        [Action::SetWriteCache {
            cntlid,
            enabled: false
        }]
    );
    assert_eq!(get(&mut rig, 0x06), 0);
    assert!(
        !rig.subsystem
            .controller(cntlid)
            .unwrap()
            .write_cache_enabled()
    );
    assert_eq!(rig.succeed(get_features(0x06, DEFAULT, 0)).0, 1);
}

#[test]
fn queues_are_granted_within_limits_and_before_there_are_any() {
    let mut rig = Rig::ready();
    assert_eq!(get(&mut rig, 0x07), 0x007f_007f);
    assert_eq!(rig.succeed(set_features(0x07, 0x0fff_0fff)).0, 0x007f_007f);
    assert_eq!(rig.succeed(set_features(0x07, 0x0002_0005)).0, 0x0002_0002);
    for value in [0xffff_0000, 0x0000_ffff, 0xffff_ffff] {
        assert_eq!(rig.fail(set_features(0x07, value)), Status::INVALID_FIELD);
    }
    assert_eq!(get(&mut rig, 0x07), 0x0002_0002);
    rig.connect_io(1).unwrap();
    assert_eq!(
        rig.fail(set_features(0x07, 0)),
        Status::COMMAND_SEQUENCE_ERROR
    );
}

#[test]
fn temperature_thresholds_are_of_the_composite_sensor() {
    let mut rig = Rig::ready();
    let (under, sensor_1, all) = (1 << 20, 1 << 16, 0xf << 16);
    assert_eq!(get(&mut rig, 0x04), 0xffff);
    rig.succeed(set_features(0x04, 350));
    rig.succeed(set_features(0x04, 280 | under | all));
    assert_eq!(get(&mut rig, 0x04), 350);
    assert_eq!(rig.succeed(get_features(0x04, CURRENT, under)).0, 280);
    assert_eq!(
        rig.fail(set_features(0x04, 300 | sensor_1)),
        Status::INVALID_FIELD
    );
    assert_eq!(
        rig.fail(get_features(0x04, CURRENT, sensor_1)),
        Status::INVALID_FIELD
    );
    assert_eq!(rig.fail(set_features(0x04, 2 << 20)), Status::INVALID_FIELD);
}

#[test]
fn error_recovery_is_of_a_namespace() {
    let mut rig = Rig::ready();
    let set = |nsid, value| {
        let mut sqe = set_features(0x05, value);
        sqe.nsid.set(nsid);
        sqe
    };
    let get = |nsid| {
        let mut sqe = get_features(0x05, CURRENT, 0);
        sqe.nsid.set(nsid);
        sqe
    };
    rig.succeed(set(2, 50));
    assert_eq!((rig.succeed(get(1)).0, rig.succeed(get(2)).0), (0, 50));
    rig.succeed(set(NSID_ALL, 7));
    assert_eq!((rig.succeed(get(1)).0, rig.succeed(get(2)).0), (7, 7));
    assert_eq!(rig.fail(set(1, 1 << 16)), Status::INVALID_FIELD, "DULBE");
    for nsid in [0, 3, NSID_ALL] {
        assert_eq!(rig.fail(get(nsid)), Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    assert_eq!(rig.fail(set(3, 0)), Status::INVALID_NAMESPACE_OR_FORMAT);
}

#[test]
fn the_timestamp_goes_on_from_what_was_set() {
    let mut rig = Rig::ready();
    rig.now += Duration::from_millis(250);
    let stamp: Timestamp = read(&rig.succeed(get_features(0x0e, CURRENT, 0)).1);
    assert_eq!(
        (stamp.get(), stamp.origin()),
        (250, Timestamp::ORIGIN_RESET)
    );
    let set = Timestamp::new(1_700_000_000_000, Timestamp::ORIGIN_RESET);
    rig.send(set_features(0x0e, 0), set.as_bytes());
    rig.now += Duration::from_secs(3);
    let stamp: Timestamp = read(&rig.succeed(get_features(0x0e, CURRENT, 0)).1);
    assert_eq!(
        (stamp.get(), stamp.origin()),
        (1_700_000_003_000, Timestamp::ORIGIN_HOST)
    );
}

#[test]
fn kato_is_rounded_up_and_restarts_the_timer() {
    let mut rig = Rig::ready();
    rig.now += Duration::from_secs(4);
    rig.succeed(set_features(0x0f, 10_050));
    assert_eq!(get(&mut rig, 0x0f), 10_100);
    assert_eq!(
        rig.subsystem.next_deadline(),
        Some(rig.now + Duration::from_millis(10_100))
    );
    rig.succeed(set_features(0x0f, 0));
    assert_eq!(rig.subsystem.next_deadline(), None);
}

#[test]
fn host_behavior_is_kept_and_checked() {
    let mut rig = Rig::ready();
    let mut behavior = HostBehavior::new_zeroed();
    (behavior.acre, behavior.lbafee) = (1, 1);
    rig.send(set_features(0x16, 0), behavior.as_bytes());
    assert_eq!(
        rig.succeed(get_features(0x16, CURRENT, 0)).1,
        behavior.as_bytes()
    );
    assert_eq!(rig.succeed(get_features(0x16, DEFAULT, 0)).1, [0; 512]);
    behavior.etdas = 2;
    let (outcome, _) = rig.send(set_features(0x16, 0), behavior.as_bytes());
    assert_eq!(completion(outcome).status.code(), Status::INVALID_FIELD);
}

#[test]
fn the_host_identifier_is_that_of_connect() {
    let mut rig = Rig::ready();
    let (_, data) = rig.succeed(get_features(0x81, CURRENT, 1));
    assert_eq!(data, [7; 16]);
    assert_eq!(
        rig.fail(get_features(0x81, CURRENT, 0)),
        Status::INVALID_FIELD,
        "64 bits"
    );
}

#[test]
fn interrupts_are_named_but_there_are_none() {
    let mut rig = Rig::ready();
    assert_eq!(get(&mut rig, 0x08), 0);
    assert_eq!(rig.succeed(get_features(0x09, CURRENT, 3)).0, 1 << 16 | 3);
    assert_eq!(get(&mut rig, 0x10), 0);
}
