use cairn_initiator::{Data, command};
use cairn_tests::harness::TestTarget;
use nvme_proto::wire::feature::{
    AsyncEventConfig, Feature, HostBehavior, HostIdentifier, NumberOfQueues, Select,
    SupportedCapabilities, Timestamp, VolatileWriteCache,
};
use nvme_proto::wire::{FromBytes, FromZeros, IntoBytes, Status};

use crate::verified::status;

const PLAIN: [Feature; 11] = [
    Feature::ARBITRATION,
    Feature::POWER_MANAGEMENT,
    Feature::TEMPERATURE_THRESHOLD,
    Feature::VOLATILE_WRITE_CACHE,
    Feature::NUMBER_OF_QUEUES,
    Feature::INTERRUPT_COALESCING,
    Feature::INTERRUPT_VECTOR_CONFIGURATION,
    Feature::WRITE_ATOMICITY,
    Feature::ASYNC_EVENT_CONFIGURATION,
    Feature::KEEP_ALIVE_TIMER,
    Feature::HOST_THERMAL_MANAGEMENT,
];

#[test]
fn every_feature_can_be_read_and_says_what_it_can() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let mut host = target.connect("a");
    for feature in PLAIN {
        for select in [Select::CURRENT, Select::DEFAULT] {
            host.feature(feature, select)
                .unwrap_or_else(|error| panic!("{feature}, {select}: {error}"));
        }
        let can = host
            .feature(feature, Select::SUPPORTED_CAPABILITIES)
            .unwrap();
        let can = SupportedCapabilities(can);
        assert!(!can.saveable(), "{feature}: nothing is saved here");
    }
    let recovery = command::get_features(Feature::ERROR_RECOVERY.0, Select::CURRENT, 1, 0);
    host.run_admin(recovery, Data::None).unwrap();
    host.shutdown().unwrap();
}

#[test]
fn unknown_features_are_refused() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let mut host = target.connect("a");
    for fid in [0x00, 0x03, 0x0d, 0x1f, 0x7f, 0xc0, 0xff] {
        let read = host.feature(Feature(fid), Select::CURRENT);
        assert_eq!(status(read).code(), Status::INVALID_FIELD, "{fid:#x}");
        let set = host.set_feature(Feature(fid), 0);
        assert_eq!(status(set).code(), Status::INVALID_FIELD, "{fid:#x}");
    }
    host.shutdown().unwrap();
}

#[test]
fn what_is_set_is_what_is_read() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let (mut host, mut other) = (target.connect("a"), target.connect("b"));
    let events = AsyncEventConfig(0).with_namespace_attribute(true).0;
    for (feature, value) in [
        (Feature::ARBITRATION, 0x0102_0303),
        (Feature::ASYNC_EVENT_CONFIGURATION, events),
        (Feature::WRITE_ATOMICITY, 1),
        (Feature::KEEP_ALIVE_TIMER, 30_000),
    ] {
        let elsewhere = other.feature(feature, Select::CURRENT).unwrap();
        let default = host.feature(feature, Select::DEFAULT).unwrap();
        host.set_feature(feature, value)
            .unwrap_or_else(|error| panic!("{feature}: {error}"));
        assert_eq!(
            host.feature(feature, Select::CURRENT).unwrap(),
            value,
            "{feature}"
        );
        assert_eq!(
            host.feature(feature, Select::DEFAULT).unwrap(),
            default,
            "{feature}"
        );
        let unchanged = other.feature(feature, Select::CURRENT).unwrap();
        assert_eq!(unchanged, elsewhere, "{feature} of another controller");
    }
    host.shutdown().unwrap();
    other.shutdown().unwrap();
}

#[test]
fn the_write_cache_is_announced_or_refused() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let mut host = target.connect("a");
    let present = host.identity().vwc & 1 != 0;
    let enable = VolatileWriteCache(0).with_wce(true).0;
    let set = host.set_feature(Feature::VOLATILE_WRITE_CACHE, enable);
    if present {
        set.unwrap();
        let now = host.feature(Feature::VOLATILE_WRITE_CACHE, Select::CURRENT);
        assert_eq!(now.unwrap(), enable);
    } else {
        assert_eq!(status(set).code(), Status::INVALID_FIELD);
    }
    host.shutdown().unwrap();
}

#[test]
fn queues_are_granted_up_to_the_limit() {
    let target = TestTarget::start(&format!(
        "[target]\nio_queues = 4\nreactors = 1\n{}",
        cairn_tests::harness::subsystem(cairn_tests::harness::NQN, &["null:1GiB"])
    ));
    let mut options = target.options("greedy");
    options.io_queues = 9;
    let mut host = target.try_connect(options).unwrap();
    assert_eq!(host.io_queues().len(), 4);
    let granted = host.feature(Feature::NUMBER_OF_QUEUES, Select::CURRENT);
    let granted = NumberOfQueues(granted.unwrap());
    assert_eq!((granted.nsq(), granted.ncq()), (3, 3));
    host.shutdown().unwrap();
}

#[test]
fn features_with_data_carry_them() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let mut host = target.connect("a");
    let mut buffer = host.buffer(4096).unwrap();

    let stamp = Timestamp::new(1_700_000_000_000, Timestamp::ORIGIN_RESET);
    buffer.write(0, stamp.as_bytes());
    let set = command::set_features(Feature::TIMESTAMP.0, 0, 0);
    host.run_admin(set, Data::start_of(&mut buffer, 8)).unwrap();
    let get = command::get_features(Feature::TIMESTAMP.0, Select::CURRENT, 0, 0);
    host.run_admin(get, Data::start_of(&mut buffer, 8)).unwrap();
    let now = Timestamp::read_from_bytes(&buffer.bytes(0, 8)).unwrap();
    assert!(now.get() >= stamp.get() && now.get() < stamp.get() + 600_000);
    assert_eq!(now.origin(), Timestamp::ORIGIN_HOST);

    let behavior = HostBehavior {
        acre: 1,
        ..HostBehavior::new_zeroed()
    };
    buffer.write(0, behavior.as_bytes());
    let set = command::set_features(Feature::HOST_BEHAVIOR_SUPPORT.0, 0, 0);
    host.run_admin(set, Data::start_of(&mut buffer, 512))
        .unwrap();
    buffer.write(0, &[0xee; 512]);
    let get = command::get_features(Feature::HOST_BEHAVIOR_SUPPORT.0, Select::CURRENT, 0, 0);
    host.run_admin(get, Data::start_of(&mut buffer, 512))
        .unwrap();
    assert_eq!(buffer.bytes(0, 512), behavior.as_bytes());

    let exhid = HostIdentifier(0).with_exhid(true).0;
    let get = command::get_features(Feature::HOST_IDENTIFIER.0, Select::CURRENT, 0, exhid);
    host.run_admin(get, Data::start_of(&mut buffer, 16))
        .unwrap();
    assert_eq!(buffer.bytes(0, 16), target.options("a").hostid);
    host.shutdown().unwrap();
}

#[test]
fn room_for_data_that_does_not_come_is_no_mistake() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let mut host = target.connect("a");
    let mut buffer = host.buffer(4096).unwrap();
    let select = Select::SUPPORTED_CAPABILITIES;
    let get = command::get_features(Feature::TIMESTAMP.0, select, 0, 0);
    let answer = host.run_admin(get, Data::start_of(&mut buffer, 8)).unwrap();
    assert!(SupportedCapabilities(answer.cqe.dw0.get()).changeable());
    let set = command::set_features(Feature::HOST_IDENTIFIER.0, 0, 1);
    let refused = status(host.run_admin(set, Data::start_of(&mut buffer, 16)));
    assert_eq!(refused.code(), Status::COMMAND_SEQUENCE_ERROR);
    host.shutdown().unwrap();
}
