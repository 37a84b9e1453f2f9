//! Examples of the initiator.

#[allow(dead_code)] // its main
#[path = "../../../initiator/examples/copy.rs"]
mod copy;
#[allow(dead_code)] // its main
#[path = "../../../initiator/examples/hello.rs"]
mod hello;
#[allow(dead_code)] // its main
#[path = "../../../initiator/examples/verify.rs"]
mod verify;

use cairn_initiator::{AsyncHost, HostError, Part, command};
use cairn_tests::harness::TestTarget;

use crate::verified::{Disk, Transfer, bytes};

#[test]
fn hello_comes_back() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let came = hello::run(&*target.provider(), target.options("a")).unwrap();
    assert_eq!(came, "hello over RDMA");
    target.stop();
}

#[test]
fn copies_are_alike() {
    const BYTES: usize = 1000 * 512;
    let disk = format!("mem:{BYTES} block_size = 512");
    let target = TestTarget::with_namespaces(&[&disk, &disk]);
    let mut host = target.connect("a");
    for at in 0..10 {
        Disk::new(&mut host, 1).write(at * 100, &bytes(at, 51_200), Transfer::Keyed);
    }
    let copied = copy::run(&*target.provider(), target.options("b")).unwrap();
    assert_eq!(copied, 1000);
    for at in 0..10 {
        let found = Disk::new(&mut host, 2).read(at * 100, 51_200, Transfer::Keyed);
        assert!(found == bytes(at, 51_200), "part {at}");
    }
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn every_block_is_verified_by_many_tasks() {
    let target = TestTarget::with_namespaces(&["mem:1MiB block_size = 512"]);
    let verified = verify::run(target.provider(), target.options("a")).unwrap();
    assert_eq!(verified, 2048);
    target.stop();
}

/// Futures complete even if the target stops or the host's thread ends.
#[test]
fn every_future_has_an_end() {
    let target = TestTarget::with_namespaces(&["mem:1MiB block_size = 512"]);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let connected = AsyncHost::connect(target.provider(), target.options("a")).await;
        let host = connected.unwrap();
        let buffer = host.buffer(512).unwrap();
        // The queue cannot hold this many commands.
        let part = || Some(Part::start_of(&buffer, 512));
        let read = command::read(1, 0, 1);
        let many: Vec<_> = (0..1000).map(|_| host.submit(1, read, part())).collect();
        for answer in many {
            assert!(answer.await.unwrap().cqe.status().is_success());
        }
        target.stop();
        let lost = host.run(read, part()).await;
        assert!(matches!(lost, Err(HostError::Lost { .. })), "{lost:?}");
        let event = command::async_event_request();
        let waits = host.submit(0, event, None);
        drop(host);
        assert!(waits.await.is_err());
    });
}

#[test]
fn a_task_that_errs_ends_no_other() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let host = AsyncHost::connect(target.provider(), target.options("a")).await;
        let host = std::sync::Arc::new(host.unwrap());
        let buffer = host.buffer(4096).unwrap();
        let disk = host.open_namespace(1).await.unwrap();
        let read = || host.run(disk.read(0, 1), Some(Part::start_of(&buffer, 512)));
        read().await.unwrap();
        let past = buffer.len() as u32 + 1;
        let wrong: [Box<dyn Fn() -> Part>; 2] = [
            Box::new(|| Part::start_of(&buffer, past)),
            Box::new(|| Part::of(&buffer, usize::MAX, 1)),
        ];
        for part in &wrong {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(part)).unwrap_err();
        }
        let of_one = std::sync::Arc::clone(&host);
        let errs = async move {
            of_one
                .with_host(|_| -> Result<(), HostError> { panic!("a task") })
                .await
        };
        let task = tokio::task::LocalSet::new();
        let ended = task
            .run_until(async { tokio::task::spawn_local(errs).await })
            .await;
        assert!(ended.unwrap_err().is_panic());
        read().await.unwrap();
        let host = std::sync::Arc::into_inner(host).unwrap();
        host.shutdown().await.unwrap();
    });
    target.stop();
}
