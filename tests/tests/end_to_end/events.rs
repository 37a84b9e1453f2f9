use cairn_initiator::{Host, Notice, command};
use cairn_tests::harness::{NQN, TestTarget, subsystem};
use nvme_proto::wire::Status;
use nvme_proto::wire::feature::AsyncEventConfig;
use nvme_proto::wire::log::LogPage;

use crate::verified::{Disk, Transfer, bytes, next_notice, status};

fn listener(target: &TestTarget, name: &str) -> Host {
    let mut options = target.options(name);
    options.events = AsyncEventConfig(0).with_namespace_attribute(true);
    target.try_connect(options).unwrap()
}

fn changed_namespaces(host: &mut Host) -> Vec<u32> {
    assert_eq!(next_notice(host), Notice::NamespacesChanged);
    let bytes = host
        .log_page(LogPage::CHANGED_NAMESPACES, 0, 4096, false)
        .unwrap();
    bytes
        .chunks_exact(4)
        .map(|nsid| u32::from_le_bytes(nsid.try_into().unwrap()))
        .take_while(|&nsid| nsid != 0)
        .collect()
}

#[test]
fn a_new_namespace_is_announced_to_all_who_listen() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let (mut a, mut b) = (listener(&target, "a"), listener(&target, "b"));
    let mut options = target.options("without_events");
    options.events = AsyncEventConfig(0);
    let mut without_events = target.try_connect(options).unwrap();
    Disk::new(&mut a, 1).write(0, &bytes(1, 4096), Transfer::Keyed);

    target.reload(&subsystem(NQN, &["mem:1MiB", "mem:2MiB"]));
    for host in [&mut a, &mut b] {
        assert_eq!(changed_namespaces(host), [2]);
        assert_eq!(host.active_namespaces().unwrap(), [1, 2]);
    }
    let mut disk = Disk::new(&mut a, 2);
    disk.write(0, &bytes(2, 4096), Transfer::Keyed);
    assert_eq!(disk.read(0, 4096, Transfer::Keyed), bytes(2, 4096));
    assert_eq!(
        Disk::new(&mut a, 1).read(0, 4096, Transfer::Keyed),
        bytes(1, 4096)
    );
    assert_eq!(without_events.active_namespaces().unwrap(), [1, 2]);
    assert!(without_events.take_event().is_none());
    for host in [a, b, without_events] {
        host.shutdown().unwrap();
    }
    target.stop();
}

#[test]
fn a_removed_namespace_is_gone_and_the_rest_stay() {
    let target = TestTarget::with_namespaces(&["mem:1MiB", "mem:1MiB"]);
    let mut host = listener(&target, "a");
    target.reload(&subsystem(NQN, &["mem:1MiB"]));
    assert_eq!(changed_namespaces(&mut host), [2]);
    assert_eq!(host.active_namespaces().unwrap(), [1]);
    let refused = host.run(command::flush(2), cairn_initiator::Data::None);
    assert_eq!(status(refused).code(), Status::INVALID_NAMESPACE_OR_FORMAT);
    Disk::new(&mut host, 1).write(0, &bytes(1, 4096), Transfer::Keyed);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn several_changes_make_one_event_until_the_list_is_read() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let mut host = listener(&target, "a");
    target.reload(&subsystem(NQN, &["mem:1MiB", "mem:1MiB"]));
    next_notice(&mut host);
    target.reload(&subsystem(NQN, &["mem:1MiB", "mem:1MiB", "mem:1MiB"]));
    assert_eq!(host.active_namespaces().unwrap(), [1, 2, 3]);
    assert!(host.take_event().is_none(), "the event is not armed yet");
    let list = host
        .log_page(LogPage::CHANGED_NAMESPACES, 0, 4096, false)
        .unwrap();
    assert_eq!(list[..12], [2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    target.reload(&subsystem(NQN, &["mem:1MiB"]));
    assert_eq!(changed_namespaces(&mut host), [2, 3]);
    host.shutdown().unwrap();
    target.stop();
}
