use std::net::IpAddr;
use std::time::Duration;

use nvme_proto::ana::AnaStates;
use nvme_proto::controller::{ConnectRequest, Refusal};
use nvme_proto::limits::Limits;
use nvme_proto::subsystem::{Arrival, Claim, HostAccess, Peer, Settings, Subsystem};
use nvme_proto::wire::cm::RequestData;
use nvme_proto::wire::{Status, U16};
use proptest::prelude::{prop_assert_eq, proptest};

use crate::rig::*;

const IN_DATA: u32 = 1 << 16;

fn subsystem() -> Subsystem {
    Subsystem::new(settings())
}

fn admin() -> Connect {
    Connect::admin(SUBNQN, 5000)
}

fn refused(connect: &Connect, subsystem: &mut Subsystem) -> Refusal {
    connect.send(subsystem, Duration::ZERO).unwrap_err()
}

fn parameter(connect: &Connect, subsystem: &mut Subsystem) -> u32 {
    let refusal = refused(connect, subsystem);
    assert_eq!(
        refusal.status,
        Status::CONNECT_INVALID_PARAMETERS.with_dnr()
    );
    assert_eq!(refusal.completion(9).result, u64::from(refusal.result));
    refusal.result
}

#[test]
fn an_admin_connect_makes_a_controller() {
    let mut subsystem = subsystem();
    let mut connect = admin();
    connect.command.cid = U16::new(77);
    connect.command.cattr = 0b100;
    let connected = connect.send(&mut subsystem, Duration::ZERO).unwrap();
    assert_eq!((connected.qid, connected.sq_entries), (0, 32));
    assert!(!connected.flow_control);
    assert_eq!(connected.completion.cid, 77);
    assert_eq!(connected.completion.result, u64::from(connected.cntlid));
    let controller = subsystem.controller(connected.cntlid).unwrap();
    assert_eq!(controller.host().nqn, nqn(HOSTNQN));
    assert!(!controller.is_ready());
}

#[test]
fn cntlids_are_not_reused_until_all_were_used() {
    let mut subsystem = subsystem();
    let mut used = Vec::new();
    for _ in 0..200 {
        let cntlid = admin().send(&mut subsystem, Duration::ZERO).unwrap().cntlid;
        assert!((1..=0xffef).contains(&cntlid));
        assert!(!used.contains(&cntlid));
        used.push(cntlid);
        subsystem.queue_disconnected(cntlid, 0, Duration::ZERO, &mut Vec::new());
    }
    for _ in 0..0xffef {
        let cntlid = admin().send(&mut subsystem, Duration::ZERO).unwrap().cntlid;
        assert!((1..=0xffef).contains(&cntlid));
        subsystem.queue_disconnected(cntlid, 0, Duration::ZERO, &mut Vec::new());
    }
    assert_eq!(subsystem.controllers().count(), 0);
}

#[test]
fn each_parameter_of_an_admin_connect_is_checked() {
    let mut subsystem = subsystem();
    let mut too_long = admin();
    too_long.command.sqsize = U16::new(128);
    assert_eq!(parameter(&too_long, &mut subsystem), 44);
    too_long.command.sqsize = U16::new(u16::MAX);
    assert_eq!(parameter(&too_long, &mut subsystem), 44);
    let mut elsewhere = admin();
    elsewhere.data.subnqn = nqn("nqn.2026-01.org.example:other").encode();
    assert_eq!(parameter(&elsewhere, &mut subsystem), IN_DATA | 256);
    assert_eq!(ConnectRequest::unknown_subsystem().result, IN_DATA | 256);
    for cntlid in [0, 1, 0xfffe] {
        let mut chosen = admin();
        chosen.data.cntlid = U16::new(cntlid);
        assert_eq!(parameter(&chosen, &mut subsystem), IN_DATA | 16);
    }
    assert_eq!(subsystem.controllers().count(), 0);
}

#[test]
fn a_host_that_is_not_allowed_receives_the_reason() {
    let hosts = HostAccess::only([nqn("nqn.2026-01.org.example:friend")]);
    let mut subsystem = Subsystem::new(Settings {
        hosts,
        ..settings()
    });
    let refusal = refused(&admin(), &mut subsystem);
    assert_eq!(refusal.status, Status::CONNECT_INVALID_HOST.with_dnr());
    let mut friend = admin();
    friend.data.hostnqn = nqn("nqn.2026-01.org.example:friend").encode();
    assert!(friend.send(&mut subsystem, Duration::ZERO).is_ok());
}

#[test]
fn controllers_are_limited_in_all_and_for_each_host() {
    let limits = Limits {
        controllers: 3,
        controllers_per_host: 2,
        ..Limits::default()
    };
    let mut subsystem = Subsystem::new(Settings {
        limits,
        ..settings()
    });
    let first = admin().send(&mut subsystem, Duration::ZERO).unwrap().cntlid;
    admin().send(&mut subsystem, Duration::ZERO).unwrap();
    assert_eq!(
        refused(&admin(), &mut subsystem).status,
        Status::CONNECT_CONTROLLER_BUSY
    );
    let mut other = admin();
    other.data.hostnqn = nqn("nqn.2026-01.org.example:other-host").encode();
    other.send(&mut subsystem, Duration::ZERO).unwrap();
    assert_eq!(
        refused(&other, &mut subsystem).status,
        Status::CONNECT_CONTROLLER_BUSY
    );
    subsystem.queue_disconnected(first, 0, Duration::ZERO, &mut Vec::new());
    assert!(other.send(&mut subsystem, Duration::ZERO).is_ok());
}

#[test]
fn an_io_connect_joins_the_controller_of_the_same_host() {
    let mut rig = Rig::ready();
    let connected = rig.connect_io(1).unwrap();
    assert_eq!((connected.cntlid, connected.sq_entries), (rig.cntlid, 128));
    let controller = rig.subsystem.controller(rig.cntlid).unwrap();
    assert_eq!(controller.io_queues().collect::<Vec<_>>(), [1]);
}

#[test]
fn each_parameter_of_an_io_connect_is_checked() {
    let mut rig = Rig::ready();
    let cntlid = rig.cntlid;
    let subsystem = &mut rig.subsystem;
    let mut other_nqn = Connect::io(cntlid, 1);
    other_nqn.data.hostnqn = nqn("nqn.2026-01.org.example:stranger").encode();
    let mut other_id = Connect::io(cntlid, 1);
    other_id.data.hostid = [8; 16];
    for (connect, parameter) in [
        (Connect::io(cntlid + 1, 1), 16),
        (Connect::io(0xffff, 1), 16),
        (other_nqn, 512),
        (other_id, 0),
    ] {
        let refusal = refused(&connect, subsystem);
        assert_eq!(refusal.result, IN_DATA | parameter);
        assert_eq!(refusal.status, Status::CONNECT_INVALID_PARAMETERS);
    }
    let mut too_long = Connect::io(cntlid, 1);
    too_long.command.sqsize = U16::new(128);
    assert_eq!(parameter(&too_long, subsystem), 44);
    assert_eq!(parameter(&Connect::io(cntlid, 129), subsystem), 42);
    assert_eq!(parameter(&Connect::io(cntlid, u16::MAX), subsystem), 42);
    assert!(rig.connect_io(128).is_ok());
}

#[test]
fn a_queue_is_connected_once_at_a_time() {
    let mut rig = Rig::ready();
    rig.connect_io(1).unwrap();
    let refusal = rig.connect_io(1).unwrap_err();
    assert_eq!(refusal.status.code(), Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(refusal.byte, Some(42));
    rig.disconnect(1);
    rig.connect_io(1).unwrap();
}

#[test]
fn no_io_queue_before_the_controller_is_enabled_nor_after_shutdown() {
    let mut rig = Rig::connected(subsystem(), 0);
    let refusal = rig.connect_io(1).unwrap_err();
    assert_eq!(refusal.status.code(), Status::COMMAND_SEQUENCE_ERROR);
    rig.enable();
    rig.connect_io(1).unwrap();
    rig.set_cc(CC_SHUT_DOWN);
    let refusal = rig.connect_io(2).unwrap_err();
    assert_eq!(refusal.status.code(), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn a_host_may_try_again_after_its_controller_ends_before_an_io_queue() {
    let mut rig = Rig::ready();
    rig.subsystem.terminate_all(&mut rig.actions);
    let refusal = rig.connect_io(1).unwrap_err();
    assert_eq!(refusal.status, Status::CONNECT_INVALID_PARAMETERS);
    assert!(!refusal.status.dnr());
}

#[test]
fn no_io_queue_without_the_sizes_of_its_entries() {
    let mut rig = Rig::connected(subsystem(), 0);
    rig.set_cc(1);
    assert_eq!(rig.csts(), 1);
    let refusal = rig.connect_io(1).unwrap_err();
    assert_eq!(refusal.status.code(), Status::COMMAND_SEQUENCE_ERROR);
}

#[test]
fn no_io_queue_beyond_what_was_granted() {
    let mut rig = Rig::ready();
    assert_eq!(rig.succeed(set_features(0x07, 0x0001_0001)).0, 0x0001_0001);
    rig.connect_io(2).unwrap();
    assert_eq!(rig.connect_io(3).unwrap_err().result, 42);
}

fn peer_of(address: &str) -> Peer {
    let address: IpAddr = address.parse().unwrap();
    let (first, last) = match address {
        IpAddr::V4(_) => (address, address),
        IpAddr::V6(own) => {
            let first = own.to_bits() >> 64 << 64;
            let last = first | u128::from(u64::MAX);
            (IpAddr::V6(first.into()), IpAddr::V6(last.into()))
        }
    };
    Peer {
        address,
        first,
        last,
    }
}

#[test]
fn a_claimed_name_does_not_keep_its_host_out() {
    let limits = Limits {
        controllers: 8,
        controllers_per_host: 2,
        controllers_per_address: 3,
        ..Limits::default()
    };
    let mut subsystem = Subsystem::new(Settings {
        limits,
        ..settings()
    });
    let mut connect = |host: &str, peer: &str| {
        let mut connect = admin();
        connect.data.hostnqn = nqn(&format!("nqn.2026-01.org.example:{host}")).encode();
        let request = ConnectRequest::parse(&connect.command.into(), &connect.data).unwrap();
        let arrival = Arrival {
            now: Duration::ZERO,
            cm: None,
            local: None,
            peer: Some(peer_of(peer)),
            port: 0,
            random: 7,
            ana: &AnaStates::default(),
        };
        let connected = subsystem.connect(&request, &arrival);
        connected.map_err(|refusal| refusal.status)
    };
    let busy = Err(Status::CONNECT_CONTROLLER_BUSY);
    let stranger = "2001:db8::1";
    connect("host", stranger).unwrap();
    connect("host", "2001:db8::2").unwrap();
    // All addresses of a /64 share the limit.
    assert_eq!(
        connect("host", "2001:db8::3").map(|_| ()),
        busy.map(|_: ()| ())
    );
    connect("host", "192.0.2.1").unwrap();
    connect("host", "192.0.2.1").unwrap();
    assert_eq!(
        connect("host", "192.0.2.1").map(|_| ()),
        busy.map(|_: ()| ())
    );
    connect("another", stranger).unwrap();
    assert_eq!(connect("third", stranger).map(|_| ()), busy.map(|_: ()| ()));
    connect("third", "192.0.2.2").unwrap();
}

#[test]
fn the_connection_request_must_have_said_the_same() {
    let mut subsystem = subsystem();
    let connect = admin();
    let request = ConnectRequest::parse(&connect.command.into(), &connect.data).unwrap();
    let mut result = |cm: RequestData| {
        let arrival = Arrival {
            now: Duration::ZERO,
            cm: Some(&cm),
            peer: None,
            local: None,
            port: 0,
            random: 7,
            ana: &AnaStates::default(),
        };
        subsystem
            .connect(&request, &arrival)
            .map_err(|refusal| refusal.result)
    };
    assert_eq!(result(RequestData::new(3, 32, 31, 0)), Err(42));
    assert_eq!(result(RequestData::new(0, 32, 127, 0)), Err(44));
    assert!(result(RequestData::new(0, 32, 31, 0)).is_ok());
}

#[test]
fn a_second_connect_on_a_queue_is_out_of_sequence() {
    let mut rig = Rig::ready();
    assert_eq!(
        rig.fail(admin().command.into()),
        Status::COMMAND_SEQUENCE_ERROR
    );
}

fn arrival(ana: &AnaStates) -> Arrival<'_> {
    Arrival {
        now: Duration::from_secs(1000),
        cm: None,
        local: None,
        peer: None,
        port: 0,
        random: 7,
        ana,
    }
}

fn claim(subsystem: &Subsystem, connect: &Connect, first: u32) -> Result<Claim, Refusal> {
    let request = ConnectRequest::parse(&connect.command.into(), &connect.data).unwrap();
    subsystem.claim(&request, &arrival(&AnaStates::default()), first)
}

#[test]
fn claims_take_nothing_from_the_host_that_they_name() {
    proptest!(|(steps in proptest::collection::vec((0_u16..10, 0_u32..70_000), 1..40))| {
        let mut rig = Rig::ready();
        let before = format!("{:?}", rig.subsystem);
        for (qid, first) in steps {
            let connect = match qid {
                0 => admin(),
                _ => Connect::io(rig.cntlid, qid),
            };
            let claimed = claim(&rig.subsystem, &connect, first).unwrap();
            let is_new = rig.subsystem.controller(claimed.cntlid()).is_none();
            prop_assert_eq!(is_new, qid == 0);
        }
        prop_assert_eq!(before, format!("{:?}", rig.subsystem));
        for qid in 1..10 {
            let ana = AnaStates::default();
            let claimed = claim(&rig.subsystem, &Connect::io(rig.cntlid, qid), 0).unwrap();
            let joined = rig.subsystem.join(&claimed, &arrival(&ana)).unwrap();
            prop_assert_eq!((joined.cntlid, joined.qid), (rig.cntlid, qid));
        }
    });
}

#[test]
fn of_two_claims_to_one_thing_the_first_one_that_is_proven_has_it() {
    let mut rig = Rig::ready();
    let ana = AnaStates::default();
    let queues = [0, 1].map(|_| claim(&rig.subsystem, &Connect::io(rig.cntlid, 1), 0).unwrap());
    rig.subsystem.join(&queues[0], &arrival(&ana)).unwrap();
    let late = rig.subsystem.join(&queues[1], &arrival(&ana)).unwrap_err();
    assert_eq!(late.status.code(), Status::COMMAND_SEQUENCE_ERROR);
    let controllers = [0, 1].map(|_| claim(&rig.subsystem, &admin(), 77).unwrap());
    assert_eq!([77; 2], controllers.map(|claim| claim.cntlid()));
    rig.subsystem.join(&controllers[0], &arrival(&ana)).unwrap();
    let late = rig.subsystem.join(&controllers[1], &arrival(&ana));
    assert_eq!(late.unwrap_err().status, Status::CONNECT_CONTROLLER_BUSY);
}

#[test]
fn a_claim_is_checked_again_when_it_is_proven() {
    let mut rig = Rig::ready();
    let ana = AnaStates::default();
    let queue = claim(&rig.subsystem, &Connect::io(rig.cntlid, 1), 0).unwrap();
    let controller = claim(&rig.subsystem, &admin(), 7).unwrap();
    rig.disconnect(0);
    let late = rig.subsystem.join(&queue, &arrival(&ana)).unwrap_err();
    assert_eq!(late.result, IN_DATA | 16);
    rig.subsystem
        .set_hosts(HostAccess::only([]), &mut Vec::new());
    let late = rig.subsystem.join(&controller, &arrival(&ana)).unwrap_err();
    assert_eq!(late.status, Status::CONNECT_INVALID_HOST.with_dnr());
    assert_eq!(rig.subsystem.controllers().count(), 0);
}
