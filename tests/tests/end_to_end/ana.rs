use cairn_initiator::{Data, Host, HostError, Notice, Response, command};
use cairn_tests::harness::{NQN, Scratch, TestTarget, namespace, nqn, subsystem};
use nvme_proto::wire::feature::AsyncEventConfig;
use nvme_proto::wire::identify::IdentifyNamespace;
use nvme_proto::wire::log::{AnaGroup, AnaLogHeader, AnaState, LogPage};
use nvme_proto::wire::{FromBytes, NSID_ALL, Sqe, Status};

use crate::verified::{Disk, Transfer, bytes, next_notice, status};

fn two_groups() -> String {
    let first = namespace(1, "mem:1MiB");
    let second = namespace(2, "mem:1MiB ana_group = 2");
    subsystem(NQN, &[]) + &first + &second
}

fn second_group(state: &str) -> String {
    format!("[[listener.ana_group]]\nid = 2\nstate = \"{state}\"\n")
}

fn states(host: &mut Host) -> Vec<(u32, AnaState, u64)> {
    let page = host.log_page(LogPage::ANA, 0, 4096, false).unwrap();
    let (head, mut rest) = AnaLogHeader::read_from_prefix(&page).ok().unwrap();
    let mut groups = Vec::new();
    for _ in 0..head.ngrps.get() {
        let (group, more) = AnaGroup::read_from_prefix(rest).ok().unwrap();
        groups.push((group.agid.get(), AnaState(group.anas), group.chgcnt.get()));
        rest = &more[4 * group.nnsids.get() as usize..];
    }
    groups
}

fn state_of(host: &mut Host, group: u32) -> AnaState {
    let states = states(host);
    states.iter().find(|(id, ..)| *id == group).unwrap().1
}

fn listener(target: &TestTarget) -> Host {
    let mut options = target.options("a");
    options.events = AsyncEventConfig(0).with_ana_change(true);
    target.try_connect(options).unwrap()
}

fn run(host: &mut Host, sqe: Sqe) -> Result<Response, HostError> {
    host.run(sqe, Data::None)
}

fn refused_with(host: &mut Host, expected: Status) {
    let [mut one, mut two, mut three] = [(); 3].map(|()| host.buffer(4096).unwrap());
    for (sqe, data) in [
        (command::read(2, 0, 1), Data::start_of(&mut one, 512)),
        (command::write(2, 0, 1), Data::start_of(&mut two, 512)),
        (command::write(2, 0, 1), Data::InCapsule(&[0; 512])),
        (command::compare(2, 0, 1), Data::start_of(&mut three, 512)),
        (command::flush(2), Data::None),
        (command::flush(NSID_ALL), Data::None),
        (command::write_zeroes(2, 0, 1, false), Data::None),
    ] {
        let refused = status(host.run(sqe, data));
        assert_eq!(refused.code(), expected, "{sqe:?}");
        assert!(!refused.dnr(), "another path may work: {sqe:?}");
    }
    Disk::new(host, 1).write(0, &bytes(1, 4096), Transfer::Keyed);
}

#[test]
fn each_state_is_shown_and_kept_to() {
    let target = TestTarget::start_as(&two_groups(), &second_group("inaccessible"));
    let mut host = listener(&target);
    assert_eq!(state_of(&mut host, 1), AnaState::OPTIMIZED);
    for (word, state, refusal) in [
        (
            "inaccessible",
            AnaState::INACCESSIBLE,
            Some(Status::ANA_INACCESSIBLE),
        ),
        ("change", AnaState::CHANGE, Some(Status::ANA_TRANSITION)),
        (
            "persistent-loss",
            AnaState::PERSISTENT_LOSS,
            Some(Status::ANA_PERSISTENT_LOSS),
        ),
        ("non-optimized", AnaState::NON_OPTIMIZED, None),
        ("optimized", AnaState::OPTIMIZED, None),
    ] {
        target.reload_as(&two_groups(), &second_group(word));
        if word != "inaccessible" {
            assert_eq!(next_notice(&mut host), Notice::AnaChanged, "{word}");
        }
        assert_eq!(state_of(&mut host, 2), state, "{word}");
        let ns: Box<IdentifyNamespace> = host.namespace(2).unwrap();
        let lost = matches!(state, AnaState::INACCESSIBLE | AnaState::PERSISTENT_LOSS);
        assert_eq!(ns.nuse.get() == 0, lost, "{word}");
        assert_eq!((ns.nsze.get(), ns.anagrpid.get()), (2048, 2));
        match refusal {
            Some(refusal) => refused_with(&mut host, refusal),
            None => {
                let mut disk = Disk::new(&mut host, 2);
                disk.write(0, &bytes(2, 4096), Transfer::Keyed);
                assert_eq!(disk.read(0, 4096, Transfer::Keyed), bytes(2, 4096));
                run(&mut host, command::flush(NSID_ALL)).unwrap();
            }
        }
    }
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_subsystem_keeps_to_its_own_states() {
    let target = TestTarget::start(&two_groups());
    let other = "nqn.2026-01.org.example:other";
    let remote = target.remote();
    let toml = |state: &str| {
        let own = format!(
            "[[subsystem.ana]]\nlistener = \"{remote}\"\nana_group = 2\nstate = \"{state}\"\n"
        );
        two_groups() + &own + &two_groups().replace(NQN, other)
    };
    target.reload(&toml("optimized"));
    let mut host = listener(&target);
    let mut options = target.options("b");
    options.events = AsyncEventConfig(0).with_ana_change(true);
    options.subnqn = nqn(other);
    let mut beside = target.try_connect(options).unwrap();
    let before = states(&mut beside);
    target.reload(&toml("inaccessible"));
    assert_eq!(next_notice(&mut host), Notice::AnaChanged);
    assert_eq!(state_of(&mut host, 2), AnaState::INACCESSIBLE);
    refused_with(&mut host, Status::ANA_INACCESSIBLE);
    target.reload_as(&toml("inaccessible"), &second_group("non-optimized"));
    assert_eq!(next_notice(&mut beside), Notice::AnaChanged);
    let after = states(&mut beside);
    assert_eq!(after[0], before[0]);
    assert_eq!(after[1], (2, AnaState::NON_OPTIMIZED, before[1].2 + 1));
    assert_eq!(state_of(&mut host, 2), AnaState::INACCESSIBLE);
    assert!(host.take_event().is_none());
    Disk::new(&mut beside, 2).write(0, &bytes(3, 4096), Transfer::Keyed);
    target.reload_as(&two_groups(), &second_group("non-optimized"));
    assert_eq!(next_notice(&mut host), Notice::AnaChanged);
    assert_eq!(state_of(&mut host, 2), AnaState::NON_OPTIMIZED);
    Disk::new(&mut host, 2).write(0, &bytes(4, 4096), Transfer::Keyed);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_namespace_moves_to_another_group_under_its_users() {
    let target = TestTarget::start_as(&two_groups(), &second_group("non-optimized"));
    let mut host = listener(&target);
    let before = states(&mut host);
    let moved = two_groups().replace("ana_group = 2", "ana_group = 3");
    target.reload_as(&moved, &second_group("non-optimized"));
    assert_eq!(next_notice(&mut host), Notice::AnaChanged);
    let after = states(&mut host);
    assert_eq!(after[0], before[0]);
    assert_eq!((after[1].0, after[1].1), (3, AnaState::OPTIMIZED));
    assert_eq!(host.namespace(2).unwrap().anagrpid.get(), 3);
    host.shutdown().unwrap();
}

#[test]
fn a_reload_without_changes_is_silent() {
    let target = TestTarget::start_as(&two_groups(), "");
    let mut host = listener(&target);
    let before = states(&mut host);
    target.reload_as(&two_groups(), "ana = \"optimized\"\nbacklog = 128\n");
    target.reload_as(
        &two_groups(),
        "[[listener.ana_group]]\nid = 7\nstate = \"inaccessible\"\n",
    );
    assert_eq!(states(&mut host), before);
    assert!(host.take_event().is_none());
    host.shutdown().unwrap();
}

#[test]
fn two_targets_are_two_ways_to_one_disk() {
    let scratch = Scratch::new("two-ways", 1 << 20);
    let toml = |cntlids: &str| {
        format!(
            "[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\ncontroller_ids = \"{cntlids}\"\n"
        ) + &namespace(
            1,
            &format!(
                "{} block_size = 4096\nshared = true",
                scratch.path().display()
            ),
        )
    };
    let one = TestTarget::start_as(&toml("1-100"), "port_id = 1");
    let two = TestTarget::start_as(&toml("101-200"), "port_id = 2\nana = \"non-optimized\"");
    let (mut a, mut b) = (one.connect("a"), two.connect("a"));
    assert!((1..=100).contains(&a.cntlid()));
    assert!((101..=200).contains(&b.cntlid()));
    assert_eq!(a.identity().sn, b.identity().sn);
    assert_eq!(a.identity().mn, b.identity().mn);
    assert_eq!(a.identity().subnqn, b.identity().subnqn);
    let descriptors = |host: &mut Host| {
        let cns = nvme_proto::wire::identify::Cns::NAMESPACE_DESCRIPTORS;
        host.identify_bytes(cns, 1).unwrap()
    };
    assert_eq!(descriptors(&mut a), descriptors(&mut b));
    assert_eq!(state_of(&mut a, 1), AnaState::OPTIMIZED);
    assert_eq!(state_of(&mut b, 1), AnaState::NON_OPTIMIZED);
    Disk::new(&mut a, 1).write(0, &bytes(7, 8192), Transfer::Keyed);
    assert_eq!(
        Disk::new(&mut b, 1).read(0, 8192, Transfer::Keyed),
        bytes(7, 8192)
    );
    for host in [a, b] {
        host.shutdown().unwrap();
    }
}
