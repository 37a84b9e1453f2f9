#[allow(dead_code)] // the example's main function
#[path = "../../../initiator/examples/async_copy.rs"]
mod async_copy;
#[allow(dead_code)] // the example's main function
#[path = "../../../initiator/examples/copy.rs"]
mod copy;
#[allow(dead_code)] // the example's main function
#[path = "../../../initiator/examples/hello.rs"]
mod hello;
#[allow(dead_code)] // the example's main function
#[path = "../../../initiator/examples/multipath.rs"]
mod multipath;
#[allow(dead_code)] // the example's main function
#[path = "../../../initiator/examples/verify.rs"]
mod verify;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::{Clock, Mapping};
use cairn_disk::{Operation, SimulatedDisk};
use cairn_initiator::{AsyncHost, Buffer, Data, HostError, command};
use cairn_rdma::Access;
use cairn_tests::harness::{Scratch, TestTarget};

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
    copy_is_alike(|target| copy::run(&*target.provider(), target.options("b")).unwrap());
}

#[test]
fn copies_of_tasks_are_alike() {
    copy_is_alike(|target| {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let copy = async_copy::run(target.provider(), target.options("b"));
        runtime.unwrap().block_on(copy).unwrap()
    });
}

#[test]
fn every_block_is_verified_over_two_paths() {
    let target = TestTarget::with_namespaces(&["mem:256KiB block_size = 512"]);
    let paths = vec![target.options("a"), target.options("a")];
    let (verified, by_path) = multipath::run(&*target.provider(), paths).unwrap();
    assert_eq!(verified, 512);
    assert!(
        by_path.len() == 2 && by_path.iter().all(|&commands| commands > 0),
        "{by_path:?}"
    );
    target.stop();
}

fn copy_is_alike(copy: impl FnOnce(&TestTarget) -> u64) {
    const BYTES: usize = 1000 * 512;
    let disk = format!("mem:{BYTES} block_size = 512");
    let target = TestTarget::with_namespaces(&[&disk, &disk]);
    let mut host = target.connect("a");
    for at in 0..10 {
        Disk::new(&mut host, 1).write(at * 100, &bytes(at, 51_200), Transfer::Keyed);
    }
    assert_eq!(copy(&target), 1000);
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

#[test]
fn every_future_has_an_end() {
    let target = TestTarget::with_namespaces(&["mem:1MiB block_size = 512"]);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let connected = AsyncHost::connect(target.provider(), target.options("a")).await;
        let host = connected.unwrap();
        let part = || Data::whole(host.buffer(512).unwrap());
        let read = command::read(1, 0, 1);
        let many: Vec<_> = (0..1000).map(|_| host.submit(read, part())).collect();
        for ended in many {
            assert!(ended.await.answer.unwrap().cqe.status().is_success());
        }
        target.stop();
        let lost = host.run(read, part()).await.answer;
        assert!(matches!(lost, Err(HostError::Lost { .. })), "{lost:?}");
        let event = command::async_event_request();
        let waits = host.submit_admin(event, Data::None);
        drop(host);
        assert!(waits.await.answer.is_err());
    });
}

#[test]
fn a_dropped_future_leaves_the_buffer_to_its_command() {
    let file = Scratch::in_memory("dropped-future", 1 << 20);
    let disk = SimulatedDisk::register(file.path(), &Clock::default(), 1).unwrap();
    let target = TestTarget::with_namespaces(&[&file.export(512)]);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let connected = AsyncHost::connect(target.provider(), target.options("a")).await;
        let host = connected.unwrap();
        let memory = host.with_host(|host| {
            let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
            let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
            Ok(Arc::new(host.device().register(mapping, access)?))
        });
        let memory = memory.await.unwrap();
        let is_in_use = Arc::downgrade(&memory);
        let mut buffer = Buffer::of(memory);
        buffer.write(0, &[7; 512]);
        disk.hold(Operation::Write);
        let data = Data::start_of(buffer, 512);
        drop(host.submit(command::write(1, 0, 1), data));
        let read = || {
            host.run(
                command::read(1, 1, 1),
                Data::whole(host.buffer(512).unwrap()),
            )
        };
        while disk.waiting(Operation::Write) == 0 {
            read().await.answer.unwrap();
        }
        assert!(is_in_use.upgrade().is_some(), "its command has not ended");
        disk.release(Operation::Write);
        let end = Instant::now() + Duration::from_secs(20);
        while is_in_use.upgrade().is_some() {
            assert!(Instant::now() < end, "its command has ended");
            read().await.answer.unwrap();
        }
        assert_eq!(disk.contents(0, 512), [7; 512]);
        host.shutdown().await.unwrap();
    });
    target.stop();
}

#[test]
fn a_task_that_errs_ends_no_other() {
    let target = TestTarget::with_namespaces(&["mem:1MiB"]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let host = AsyncHost::connect(target.provider(), target.options("a")).await;
        let host = Arc::new(host.unwrap());
        let disk = host.open_namespace(1).await.unwrap();
        let read = || {
            host.run(
                disk.read_command(0, 1),
                Data::whole(host.buffer(512).unwrap()),
            )
        };
        read().await.answer.unwrap();
        let long = Data::InCapsule(&[0; 1 << 20]);
        let refused = host
            .run(disk.write_command(0, 1), long)
            .await
            .answer
            .unwrap_err();
        assert!(
            refused.to_string().contains("do not fit a capsule"),
            "{refused}"
        );
        let of_one = Arc::clone(&host);
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
        read().await.answer.unwrap();
        let host = Arc::into_inner(host).unwrap();
        host.shutdown().await.unwrap();
    });
    target.stop();
}
