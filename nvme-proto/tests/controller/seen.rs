use nvme_proto::controller::{Action, Outcome};
use nvme_proto::namespace::{Namespace, NsidSet};
use nvme_proto::subsystem::{HostAccess, Subsystem};
use nvme_proto::wire::aen::AsyncEvent;
use nvme_proto::wire::feature::AsyncEventConfig;
use nvme_proto::wire::identify::{Cns, IdentifyController, Oncs};
use nvme_proto::wire::log::{AnaGroup, AnaLogHeader, CommandEffects, CommandEffectsLog};
use nvme_proto::wire::{NSID_ALL, Status, U32};

use crate::rig::*;

const OTHER: &str = "nqn.2026-01.org.example:other";
const ERROR_RECOVERY: u8 = 0x05;

fn rig() -> Rig {
    let mut subsystem = Subsystem::new(settings());
    let mut add = |namespace: Namespace, hosts: HostAccess| {
        subsystem
            .add_namespace_for(namespace, &hosts, &mut Vec::new())
            .unwrap();
    };
    add(namespace(1), HostAccess::Any);
    add(namespace(2), HostAccess::only([nqn(HOSTNQN)]));
    let third = Namespace {
        anagrpid: 7,
        ..namespace(3)
    };
    add(third, HostAccess::only([nqn(OTHER)]));
    let mut rig = Rig::connected(subsystem, 5000);
    rig.enable();
    let wanted = AsyncEventConfig(0)
        .with_namespace_attribute(true)
        .with_ana_change(true);
    rig.succeed(set_features(0x0b, wanted.0));
    rig.take_actions();
    rig
}

fn nsids(data: &[u8]) -> Vec<u32> {
    let nsids = data.chunks_exact(4).map(|nsid| read::<U32>(nsid).get());
    nsids.take_while(|nsid| *nsid != 0).collect()
}

fn announces_write_uncorrectable(rig: &mut Rig) -> (bool, bool) {
    const WRITE_UNCORRECTABLE: usize = 0x04;
    let id: IdentifyController = rig.identify_as(Cns::CONTROLLER, 0);
    let effects: CommandEffectsLog = read(&rig.log(0x05, 4096));
    let effects = CommandEffects(effects.iocs[WRITE_UNCORRECTABLE].get());
    assert_eq!(effects.csupp(), effects.lbcc());
    (Oncs(id.oncs.get()).write_uncorrectable(), effects.csupp())
}

#[test]
fn write_uncorrectable_is_announced_if_all_that_the_host_sees_have_it() {
    let mut rig = Rig::connected(Subsystem::new(settings()), 5000);
    rig.enable();
    let able = |nsid| Namespace {
        write_uncorrectable: true,
        ..namespace(nsid)
    };
    let add = |rig: &mut Rig, namespace: Namespace, hosts: &HostAccess| {
        let actions = &mut Vec::new();
        let added = rig.subsystem.add_namespace_for(namespace, hosts, actions);
        added.unwrap();
    };
    assert_eq!(announces_write_uncorrectable(&mut rig), (false, false));
    add(&mut rig, able(1), &HostAccess::Any);
    assert_eq!(announces_write_uncorrectable(&mut rig), (true, true));
    add(&mut rig, namespace(2), &HostAccess::only([nqn(OTHER)]));
    assert_eq!(announces_write_uncorrectable(&mut rig), (true, true));
    add(&mut rig, namespace(3), &HostAccess::Any);
    assert_eq!(announces_write_uncorrectable(&mut rig), (false, false));
    let removed = rig.subsystem.remove_namespace(3, &mut Vec::new());
    removed.unwrap();
    assert_eq!(announces_write_uncorrectable(&mut rig), (true, true));
}

fn groups(rig: &mut Rig) -> Vec<(u32, Vec<u32>)> {
    let page = rig.log(0x0c, 1024);
    let header: AnaLogHeader = read(&page);
    let mut rest = &page[size_of::<AnaLogHeader>()..];
    let mut groups = Vec::new();
    for _ in 0..header.ngrps.get() {
        let group: AnaGroup = read(rest);
        let (list, more) = rest[size_of::<AnaGroup>()..].split_at(4 * group.nnsids.get() as usize);
        groups.push((group.agid.get(), nsids(list)));
        rest = more;
    }
    groups
}

fn assert_sees(rig: &mut Rig, expected: &[u32]) {
    assert_eq!(nsids(&rig.identify(Cns::ACTIVE_NAMESPACES, 0)), expected);
    let of_nvm = rig.identify(Cns::IO_COMMAND_SET_ACTIVE_NAMESPACES, 0);
    assert_eq!(nsids(&of_nvm), expected);
    let shown = groups(rig).into_iter().flat_map(|(_, nsids)| nsids);
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    for nsid in 1..=4 {
        let is_seen = expected.contains(&nsid);
        for cns in [Cns::NAMESPACE, Cns::NAMESPACE_INDEPENDENT] {
            let shows = rig.identify(cns, nsid).iter().any(|&byte| byte != 0);
            assert_eq!(shows, is_seen, "namespace {nsid}, {cns:?}");
        }
        let commands = [
            identify(Cns::NAMESPACE_DESCRIPTORS, nsid),
            get_features(ERROR_RECOVERY, 0, 0),
            set_features(ERROR_RECOVERY, 5),
        ];
        for mut sqe in commands {
            sqe.nsid.set(nsid);
            let status = rig.complete(sqe).status;
            let refused = status.code() == Status::INVALID_NAMESPACE_OR_FORMAT;
            assert_eq!(status.is_success(), is_seen, "namespace {nsid}, {sqe:?}");
            assert_eq!(refused, !is_seen, "namespace {nsid}, {sqe:?}");
        }
    }
    let seen = rig.subsystem.controller(rig.cntlid).unwrap().seen();
    assert!((0..9).all(|nsid| seen.contains(nsid) == expected.contains(&nsid)));
}

fn show_third_to(rig: &mut Rig, hosts: &HostAccess) {
    rig.subsystem
        .set_namespace_hosts(3, hosts, &mut rig.actions)
        .unwrap();
}

fn done(rig: &mut Rig) -> Vec<Option<AsyncEvent>> {
    let each = |action| match action {
        Action::Complete { completion, .. } => Some(AsyncEvent(completion.result as u32)),
        Action::SetSeen { .. } => None,
        other => panic!("{other:?}"),
    };
    rig.take_actions().into_iter().map(each).collect()
}

#[test]
fn a_host_sees_its_namespaces_alone() {
    let mut rig = rig();
    assert_sees(&mut rig, &[1, 2]);
    assert_eq!(groups(&mut rig), [(1, vec![1, 2])]);
    // The list contains NSIDs greater than CDW1.NSID.
    assert_eq!(nsids(&rig.identify(Cns::ACTIVE_NAMESPACES, 1)), [2]);
    assert_eq!(nsids(&rig.identify(Cns::ACTIVE_NAMESPACES, 2)), []);
}

#[test]
fn a_namespace_that_comes_into_sight_is_one_that_is_attached() {
    let mut rig = rig();
    let counted = |rig: &mut Rig| read::<AnaLogHeader>(&rig.log(0x0c, 16)).chgcnt.get();
    let before = counted(&mut rig);
    rig.park_aer();
    show_third_to(&mut rig, &HostAccess::only([nqn(OTHER), nqn(HOSTNQN)]));
    // `SetSeen` comes first: the host may use the namespace when it receives the event.
    let expected = [None, Some(AsyncEvent::NOTICE_NAMESPACE_CHANGED)];
    assert_eq!(done(&mut rig), expected);
    assert_sees(&mut rig, &[1, 2, 3]);
    assert_eq!(groups(&mut rig), [(1, vec![1, 2]), (7, vec![3])]);
    assert_eq!(counted(&mut rig), before + 1);
    assert_eq!(nsids(&rig.log(0x04, 4096)), [3]);
    rig.park_aer();
    show_third_to(&mut rig, &HostAccess::Any);
    assert_eq!(done(&mut rig), []);
    assert_eq!(nsids(&rig.log(0x04, 4096)), []);
}

#[test]
fn a_namespace_that_goes_out_of_sight_is_one_that_is_detached() {
    let mut rig = rig();
    show_third_to(&mut rig, &HostAccess::Any);
    rig.log(0x04, 4096);
    rig.take_actions();
    rig.park_aer();
    show_third_to(&mut rig, &HostAccess::only([]));
    // The event comes first: I/O fails only after the host received it.
    let expected = [Some(AsyncEvent::NOTICE_NAMESPACE_CHANGED), None];
    assert_eq!(done(&mut rig), expected);
    assert_sees(&mut rig, &[1, 2]);
    assert_eq!(nsids(&rig.log(0x04, 4096)), [3]);
}

#[test]
fn nothing_is_reported_of_a_namespace_that_a_host_does_not_see() {
    let mut rig = rig();
    rig.park_aer();
    let (subsystem, actions) = (&mut rig.subsystem, &mut rig.actions);
    subsystem.resize_namespace(3, 5, actions).unwrap();
    subsystem.set_ana_group(3, 8, actions).unwrap();
    let mut states = nvme_proto::ana::AnaStates::default();
    states.set(8, nvme_proto::wire::log::AnaState::INACCESSIBLE);
    subsystem.set_ana_states(0, &states, actions);
    subsystem.remove_namespace(3, actions).unwrap();
    let hosts = HostAccess::only([nqn(OTHER)]);
    subsystem
        .add_namespace_for(namespace(3), &hosts, actions)
        .unwrap();
    assert_eq!(done(&mut rig), []);
    assert_eq!(nsids(&rig.log(0x04, 4096)), []);
    assert_eq!(read::<AnaLogHeader>(&rig.log(0x0c, 16)).chgcnt.get(), 0);
}

#[test]
fn a_setting_for_all_namespaces_is_for_those_that_the_host_sees() {
    let mut rig = rig();
    let mut all = set_features(ERROR_RECOVERY, 9);
    all.nsid.set(NSID_ALL);
    rig.succeed(all);
    show_third_to(&mut rig, &HostAccess::Any);
    for (nsid, tler) in [(1, 9), (2, 9), (3, 0)] {
        let mut get = get_features(ERROR_RECOVERY, 0, 0);
        get.nsid.set(nsid);
        assert_eq!(rig.succeed(get).0, tler, "namespace {nsid}");
    }
}

#[test]
fn a_set_has_a_place_for_each_nsid() {
    let places: Vec<_> = (1..=10_240).map(NsidSet::place).collect();
    assert_eq!((places[0], places[63]), (Some((0, 1)), Some((0, 1 << 63))));
    assert_eq!(places[10_239], Some((159, 1 << 63)));
    assert!(places.iter().all(Option::is_some));
    for nsid in [0, 10_241, NSID_ALL] {
        assert_eq!(NsidSet::place(nsid), None);
    }
}

fn replace_second(rig: &mut Rig, uuid: u8, hosts: &HostAccess) {
    let (subsystem, actions) = (&mut rig.subsystem, &mut rig.actions);
    let former = subsystem.remove_namespace(2, actions).unwrap();
    let other = Namespace {
        uuid: [uuid; 16],
        ..namespace(2)
    };
    subsystem
        .add_namespace_after(&former, other, hosts, actions)
        .unwrap();
}

#[test]
fn another_disk_at_an_nsid_is_seen_when_the_former_one_was_missed() {
    const CHANGED: Option<AsyncEvent> = Some(AsyncEvent::NOTICE_NAMESPACE_CHANGED);
    for first in [Cns::ACTIVE_NAMESPACES, Cns::NAMESPACE] {
        let mut rig = rig();
        rig.park_aer();
        replace_second(&mut rig, 0xa1, &HostAccess::Any);
        assert_eq!(done(&mut rig), [CHANGED, None]);
        assert_eq!(nsids(&rig.log(0x04, 4096)), [2]);
        // Commands about other namespaces do not count as a read of NSID 2.
        rig.identify(Cns::NAMESPACE, 1);
        rig.identify(Cns::ACTIVE_NAMESPACES, 2);
        rig.park_aer();
        assert_eq!(done(&mut rig), []);
        let missing = match first {
            Cns::NAMESPACE => rig.identify(first, 2).iter().all(|byte| *byte == 0),
            _ => nsids(&rig.identify(first, 0)) == [1],
        };
        assert!(missing);
        assert_eq!(done(&mut rig), [CHANGED]);
        assert!(
            !rig.subsystem
                .controller(rig.cntlid)
                .unwrap()
                .seen()
                .contains(2)
        );
        assert_eq!(nsids(&rig.log(0x04, 4096)), [2]);
        assert_eq!(nsids(&rig.identify(Cns::ACTIVE_NAMESPACES, 0)), [1, 2]);
        assert_eq!(done(&mut rig), [None], "its I/O works, and that is no news");
        assert_sees(&mut rig, &[1, 2]);
        assert_eq!(nsids(&rig.log(0x04, 4096)), []);
    }
}

#[test]
fn the_same_disk_at_its_nsid_is_seen_at_once() {
    let mut rig = rig();
    let same = namespace(2).uuid[0];
    assert_eq!(namespace(2).uuid, [same; 16]);
    replace_second(&mut rig, same, &HostAccess::Any);
    assert_sees(&mut rig, &[1, 2]);
}

#[test]
fn what_is_withheld_can_be_hidden_and_removed() {
    let mut rig = rig();
    replace_second(&mut rig, 0xa1, &HostAccess::Any);
    rig.identify(Cns::ACTIVE_NAMESPACES, 0);
    replace_second(&mut rig, 0xa2, &HostAccess::Any);
    assert_sees_once_missed(&mut rig);
    replace_second(&mut rig, 0xa3, &HostAccess::Any);
    let hidden = HostAccess::only([nqn(OTHER)]);
    let (subsystem, actions) = (&mut rig.subsystem, &mut rig.actions);
    subsystem.set_namespace_hosts(2, &hidden, actions).unwrap();
    assert_sees(&mut rig, &[1]);
    assert_sees(&mut rig, &[1]);
    replace_second(&mut rig, 0xa4, &HostAccess::Any);
    let (subsystem, actions) = (&mut rig.subsystem, &mut rig.actions);
    subsystem.remove_namespace(2, actions).unwrap();
    assert_sees(&mut rig, &[1]);
    assert_sees(&mut rig, &[1]);
}

fn assert_sees_once_missed(rig: &mut Rig) {
    assert_eq!(nsids(&rig.identify(Cns::ACTIVE_NAMESPACES, 0)), [1]);
    assert_sees(rig, &[1, 2]);
}

#[test]
fn a_hidden_namespace_is_as_one_that_is_not_there() {
    let mut subsystem = Subsystem::new(settings());
    let keeps = Namespace {
        keeps_protection: true,
        ..namespace(3)
    };
    let other = HostAccess::only([nqn(OTHER)]);
    let added = subsystem.add_namespace_for(keeps, &other, &mut Vec::new());
    added.unwrap();
    let mut rig = Rig::connected(subsystem, 5000);
    rig.enable();
    let id: IdentifyController = rig.identify_as(Cns::CONTROLLER, 0);
    assert_eq!(
        id.nwpc & 1 << 2,
        0,
        "it sees none with a permanent protection"
    );
    let mut sqes = Vec::new();
    for fid in 0..=u8::MAX {
        sqes.push(get_features(fid, 0, 0));
        sqes.extend((0..5).map(|value| set_features(fid, value)));
    }
    for mut sqe in sqes {
        let [hidden, free] = [3, 4].map(|nsid| {
            sqe.nsid.set(nsid);
            match rig.send(sqe, &[0; 4096]) {
                (Outcome::Complete(done), data) => Some((done.status, done.result, data)),
                (Outcome::Parked, _) => None,
            }
        });
        assert_eq!(hidden, free, "{sqe:?}");
    }
}
