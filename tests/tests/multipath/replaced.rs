use std::time::{Duration, Instant};

use cairn_initiator::multipath::{Multipath, MultipathOptions};
use cairn_initiator::{Data, Host, HostError, command};

use nvme_proto::wire::Status;

use crate::plain::{BLOCK, Plain};

const LIMIT: Duration = Duration::from_secs(20);

fn write_until_refused(host: &mut Host, namespace: &cairn_initiator::Namespace) -> HostError {
    let mut buffer = host.buffer(BLOCK).unwrap();
    buffer.write(0, &[0xaa; BLOCK]);
    let end = Instant::now() + LIMIT;
    loop {
        assert!(Instant::now() < end, "the other disk is written for ever");
        let data = Data::start_of(&mut buffer, BLOCK as u32);
        if let Err(error) = host.run(namespace.write_command(0, 1), data) {
            return error;
        }
    }
}

#[test]
fn every_replacement_is_noticed_and_not_only_the_first() {
    let target = Plain::start();
    let mut host = Host::connect(&*target.provider(), target.options()).unwrap();
    for disk in 0..4 {
        let namespace = host.open_namespace(1).unwrap();
        host.run(namespace.flush_command(), Data::None).unwrap();
        target.replace();
        let error = write_until_refused(&mut host, &namespace);
        assert!(
            matches!(error, HostError::Replaced { nsid: 1, .. }),
            "disk {disk}: {error}"
        );
        let other = host.open_namespace(1).unwrap();
        host.run(other.flush_command(), Data::None).unwrap();
        let former = host.run(namespace.flush_command(), Data::None).unwrap_err();
        assert!(
            matches!(former, HostError::Replaced { .. }),
            "disk {disk}: {former}"
        );
    }
    assert_eq!(host.changed_namespaces().unwrap(), Some(vec![1]));
    host.shutdown().unwrap();
}

#[test]
fn no_write_follows_a_report_to_another_disk() {
    let target = Plain::start();
    let mut host = Host::connect(&*target.provider(), target.options()).unwrap();
    for round in 0..4 {
        let namespace = host.open_namespace(1).unwrap();
        target.replace();
        host.wait_until("the event", |host| host.take_event())
            .unwrap();
        write_until_refused(&mut host, &namespace);
        let written = target.contents(round + 1);
        assert!(written.iter().all(|byte| *byte == 0), "round {round}");
    }
    host.shutdown().unwrap();
}

#[test]
fn several_paths_notice_every_replacement() {
    let target = Plain::start();
    let paths = [target.options()];
    let mut disk =
        Multipath::connect(&*target.provider(), paths, MultipathOptions::new(1)).unwrap();
    let mut buffer = disk.buffer(BLOCK).unwrap();
    buffer.write(0, &[0xaa; BLOCK]);
    target.replace();
    let end = Instant::now() + LIMIT;
    while !disk.paths().all(|path| path.refused.is_some()) {
        assert!(Instant::now() < end, "the other disk is written for ever");
        let data = Data::whole(&mut buffer);
        let _ = disk.run(command::write(1, 0, 1), data);
    }
    let error = disk.run(command::flush(1), Data::None).unwrap_err();
    assert!(error.to_string().contains("identifiers differ"), "{error}");
}

#[test]
fn a_namespace_that_was_not_opened_is_not_reached() {
    let target = Plain::start();
    let mut other = Host::connect(&*target.provider(), target.options()).unwrap();
    let namespace = other.open_namespace(1).unwrap();
    other.shutdown().unwrap();
    let mut host = Host::connect(&*target.provider(), target.options()).unwrap();
    let refused = host.run(namespace.flush_command(), Data::None).unwrap_err();
    assert!(
        matches!(refused, HostError::NotOpened { nsid: 1 }),
        "{refused}"
    );
    assert!(refused.to_string().contains("open it first"));
    target.replace();
    let error = host.open_same(&namespace).unwrap_err();
    assert!(matches!(error, HostError::Replaced { .. }), "{error}");
    host.shutdown().unwrap();
}

#[test]
fn a_command_that_fails_for_a_while_is_sent_again() {
    let not_ready = Status::NAMESPACE_NOT_READY.with_crd(1);
    let target = Plain::start();
    let mut host = Host::connect(&*target.provider(), target.options()).unwrap();
    let namespace = host.open_namespace(1).unwrap();
    let mut buffer = host.buffer(BLOCK).unwrap();
    buffer.write(0, &[0xaa; BLOCK]);
    let mut write = |host: &mut Host| {
        let data = Data::start_of(&mut buffer, BLOCK as u32);
        host.run(namespace.write_command(3, 1), data)
    };
    target.fail(0, 2, not_ready);
    let begun = Instant::now();
    write(&mut host).unwrap();
    assert!(
        begun.elapsed() >= Duration::from_millis(400),
        "without the pauses"
    );
    assert_eq!(target.failing(), 0);
    assert_eq!(target.contents(0)[3 * BLOCK..4 * BLOCK], [0xaa; BLOCK]);
    for (status, left) in [
        (Status::NAMESPACE_NOT_READY, 94),
        (not_ready.with_dnr(), 99),
    ] {
        target.fail(0, 100, status);
        let error = write(&mut host).unwrap_err();
        assert!(matches!(error, HostError::Status { .. }), "{error}");
        assert_eq!(target.failing(), left);
    }
    target.fail(0, 0, Status::SUCCESS);
    host.shutdown().unwrap();
}

#[test]
fn a_path_that_fails_for_a_while_is_not_lost() {
    let target = Plain::start();
    let connect = || {
        let paths = [target.options()];
        Multipath::connect(&*target.provider(), paths, MultipathOptions::new(1))
    };
    target.fail(3, 0, Status::NAMESPACE_NOT_READY);
    let mut disk = connect().unwrap();
    assert_eq!(target.failing(), 0);
    for status in [
        Status::ABORT_REQUESTED,
        Status::NAMESPACE_NOT_READY.with_crd(1),
    ] {
        target.fail(0, 3, status);
        disk.run(command::flush(1), Data::None).unwrap();
        assert_eq!(target.failing(), 0);
    }
    disk.close().unwrap();
    target.fail(100, 0, Status::INVALID_FIELD.with_dnr());
    let error = connect().unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
}
