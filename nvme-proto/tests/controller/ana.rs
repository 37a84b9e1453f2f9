use nvme_proto::ana::AnaStates;
use nvme_proto::controller::Action;
use nvme_proto::subsystem::Settings;
use nvme_proto::subsystem::Subsystem;
use nvme_proto::wire::aen::AsyncEvent;
use nvme_proto::wire::feature::AsyncEventConfig;
use nvme_proto::wire::identify::{Anacap, Cmic, Cns, IdentifyController, IdentifyNamespace};
use nvme_proto::wire::log::{AnaGroup, AnaLogHeader, AnaLsp, AnaState};
use nvme_proto::wire::{Sqe, Status};

use crate::rig::{self, Connect, Rig, SUBNQN, log, namespace, read, set_features, with_rae};

const ANA_LOG: u8 = 0x0c;

type Shown = (u32, AnaState, Vec<u32>);

fn groups_only(mut sqe: Sqe) -> Sqe {
    let lsp = u32::from(AnaLsp(0).with_rgo(true).0);
    sqe.cdw10.set(sqe.cdw10.get() | lsp << 8);
    sqe
}

fn ana(rig: &mut Rig, sqe: Sqe) -> (u64, Vec<Shown>, Vec<u64>) {
    let (_, data) = rig.succeed(sqe);
    let header: AnaLogHeader = read(&data);
    let mut rest = &data[size_of::<AnaLogHeader>()..];
    let (mut groups, mut counts) = (Vec::new(), Vec::new());
    for _ in 0..header.ngrps.get() {
        let group: AnaGroup = read(rest);
        let (nsids, more) = rest[size_of::<AnaGroup>()..].split_at(4 * group.nnsids.get() as usize);
        let nsids = nsids.chunks_exact(4).map(read::<nvme_proto::wire::U32>);
        groups.push((
            group.agid.get(),
            AnaState(group.anas),
            nsids.map(|nsid| nsid.get()).collect(),
        ));
        counts.push(group.chgcnt.get());
        rest = more;
    }
    (header.chgcnt.get(), groups, counts)
}

fn shown(rig: &mut Rig) -> Vec<Shown> {
    ana(rig, log(ANA_LOG, 1024)).1
}

fn rig() -> Rig {
    let mut subsystem = Subsystem::new(rig::settings());
    for (nsid, anagrpid) in [(1, 1), (2, 5), (3, 1)] {
        let namespace = nvme_proto::namespace::Namespace {
            anagrpid,
            ..namespace(nsid)
        };
        subsystem.add_namespace(namespace, &mut Vec::new()).unwrap();
    }
    let mut rig = Rig::connected(subsystem, 5000);
    rig.enable();
    let wanted = AsyncEventConfig(0)
        .with_ana_change(true)
        .with_namespace_attribute(true);
    rig.succeed(set_features(0x0b, wanted.0));
    rig.take_actions();
    rig
}

fn set(rig: &mut Rig, port: u64, group: u32, state: AnaState) {
    let mut states = AnaStates::default();
    states.set(group, state);
    rig.subsystem
        .set_ana_states(port, &states, &mut rig.actions);
}

fn events(rig: &mut Rig) -> Vec<AsyncEvent> {
    rig.take_actions()
        .into_iter()
        .map(|action| match action {
            Action::Complete { completion, .. } => AsyncEvent(completion.result as u32),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn the_controller_says_that_there_may_be_every_state() {
    let mut rig = rig();
    let id: IdentifyController = rig.identify_as(Cns::CONTROLLER, 0);
    assert!(Cmic(id.cmic).ana());
    let anacap = Anacap(id.anacap);
    assert!(anacap.optimized() && anacap.non_optimized() && anacap.inaccessible());
    assert!(anacap.persistent_loss() && anacap.change() && !anacap.anagrpid_static());
    assert_eq!((id.nanagrpid.get(), id.anagrpmax.get()), (128, 128));
}

#[test]
fn the_log_has_each_group_with_namespaces_and_its_state() {
    let mut rig = rig();
    let expected = vec![
        (1, AnaState::OPTIMIZED, vec![1, 3]),
        (5, AnaState::OPTIMIZED, vec![2]),
    ];
    assert_eq!(shown(&mut rig), expected);
    set(&mut rig, 0, 5, AnaState::INACCESSIBLE);
    let expected = vec![
        (1, AnaState::OPTIMIZED, vec![1, 3]),
        (5, AnaState::INACCESSIBLE, vec![2]),
    ];
    assert_eq!(shown(&mut rig), expected);
    let expected = vec![
        (1, AnaState::OPTIMIZED, vec![]),
        (5, AnaState::INACCESSIBLE, vec![]),
    ];
    assert_eq!(ana(&mut rig, groups_only(log(ANA_LOG, 1024))).1, expected);
}

#[test]
fn change_counts_tell_what_changed() {
    let mut rig = rig();
    let (before, _, of_groups) = ana(&mut rig, log(ANA_LOG, 1024));
    assert_eq!((before, &of_groups[..]), (0, &[0, 0][..]));
    set(&mut rig, 0, 5, AnaState::NON_OPTIMIZED);
    let (after, _, counts) = ana(&mut rig, log(ANA_LOG, 1024));
    assert_eq!(after, before + 1);
    assert_eq!(counts, [of_groups[0], of_groups[1] + 1]);
    rig.subsystem.set_ana_group(3, 5, &mut rig.actions).unwrap();
    let (last, groups, moved) = ana(&mut rig, log(ANA_LOG, 1024));
    assert_eq!(last, after + 1);
    assert_eq!(moved, [counts[0] + 1, counts[1] + 1]);
    assert_eq!(groups[1], (5, AnaState::NON_OPTIMIZED, vec![2, 3]));
    let id: IdentifyNamespace = rig.identify_as(Cns::NAMESPACE, 3);
    assert_eq!(id.anagrpid.get(), 5);
}

#[test]
fn a_change_is_an_event_until_the_log_is_read() {
    let mut rig = rig();
    for _ in 0..2 {
        rig.park_aer();
    }
    set(&mut rig, 0, 5, AnaState::CHANGE);
    assert_eq!(events(&mut rig), [AsyncEvent::NOTICE_ANA_CHANGED]);
    set(&mut rig, 0, 5, AnaState::INACCESSIBLE);
    assert_eq!(events(&mut rig), [], "the host has not yet looked");
    ana(&mut rig, with_rae(log(ANA_LOG, 1024)));
    assert_eq!(events(&mut rig), []);
    ana(&mut rig, log(ANA_LOG, 1024));
    set(&mut rig, 0, 1, AnaState::INACCESSIBLE);
    assert_eq!(events(&mut rig), [AsyncEvent::NOTICE_ANA_CHANGED]);
}

#[test]
fn what_the_log_does_not_show_is_no_event() {
    let mut rig = rig();
    rig.park_aer();
    set(&mut rig, 0, 6, AnaState::INACCESSIBLE);
    set(&mut rig, 1, 5, AnaState::INACCESSIBLE);
    assert_eq!(events(&mut rig), [], "no namespace there, and another port");
    assert_eq!(shown(&mut rig)[1].1, AnaState::OPTIMIZED);
}

#[test]
fn a_host_that_did_not_enable_events_receives_none() {
    let mut rig = rig();
    rig.succeed(set_features(0x0b, 0));
    rig.park_aer();
    set(&mut rig, 0, 5, AnaState::INACCESSIBLE);
    assert_eq!(events(&mut rig), []);
}

#[test]
fn what_is_used_of_a_namespace_is_unknown_without_access() {
    let mut rig = rig();
    for (state, known) in [
        (AnaState::OPTIMIZED, true),
        (AnaState::NON_OPTIMIZED, true),
        (AnaState::INACCESSIBLE, false),
        (AnaState::PERSISTENT_LOSS, false),
        (AnaState::CHANGE, true),
    ] {
        set(&mut rig, 0, 5, state);
        let id: IdentifyNamespace = rig.identify_as(Cns::NAMESPACE, 2);
        assert_eq!(id.nsze.get(), 1 << 20);
        assert_eq!(id.nuse.get() != 0, known, "{state:?}");
    }
}

#[test]
fn cntlids_stay_in_their_range() {
    let settings = Settings {
        cntlids: 100..=101,
        ..rig::settings()
    };
    let mut subsystem = Subsystem::new(settings);
    let now = std::time::Duration::ZERO;
    let mut connect = || Connect::admin(SUBNQN, 0).send(&mut subsystem, now);
    let mut cntlids = [connect().unwrap().cntlid, connect().unwrap().cntlid];
    cntlids.sort_unstable();
    assert_eq!(cntlids, [100, 101]);
    let refused = connect().unwrap_err();
    assert_eq!(refused.status, Status::CONNECT_CONTROLLER_BUSY);
    subsystem.queue_disconnected(100, 0, now, &mut Vec::new());
    let mut connect = || Connect::admin(SUBNQN, 0).send(&mut subsystem, now);
    assert_eq!(connect().unwrap().cntlid, 100);
}
