//! Hosts that disconnect during I/O must not affect other hosts.

use cairn_initiator::{Data, Host, IoQueue, command};
use cairn_tests::harness::TestTarget;

use crate::verified::{Disk, Transfer, bytes};

fn fill_queue(host: &mut Host) {
    for n in 0..127 {
        let sqe = if n % 2 == 0 {
            command::read(1, n * 256, 256)
        } else {
            command::write(1, n * 256, 256)
        };
        let data = Data::whole(host.buffer(128 * 1024).unwrap());
        host.submit(sqe, data).unwrap();
    }
}

#[test]
fn disconnect_during_io() {
    let target = TestTarget::with_namespaces(&["mem:64MiB block_size = 512"]);
    let mut bystander = target.connect("bystander");
    for _ in 0..10 {
        let mut host = target.connect("a");
        fill_queue(&mut host);
        host.disconnect().unwrap();
    }
    let mut disk = Disk::new(&mut bystander, 1);
    disk.write(100_000, &bytes(1, 65_536), Transfer::Keyed);
    assert!(disk.read(100_000, 65_536, Transfer::Keyed) == bytes(1, 65_536));
    bystander.shutdown().unwrap();
    target.stop();
}

#[test]
fn vanish_during_io() {
    let target = TestTarget::with_namespaces(&["mem:64MiB block_size = 512"]);
    let mut bystander = target.connect("bystander");
    for _ in 0..10 {
        let mut host = target.connect("a");
        fill_queue(&mut host);
        drop(host);
    }
    let mut disk = Disk::new(&mut bystander, 1);
    disk.write(100_000, &bytes(2, 65_536), Transfer::Keyed);
    assert!(disk.read(100_000, 65_536, Transfer::Keyed) == bytes(2, 65_536));
    bystander.shutdown().unwrap();
    target.stop();
}

#[test]
fn one_queue_of_several_can_leave() {
    let target = TestTarget::with_namespaces(&["mem:64MiB block_size = 512"]);
    let mut options = target.options("a");
    options.io_queues = 3;
    let mut host = target.try_connect(options).unwrap();
    fill_queue(&mut host);
    host.close_queue(IoQueue::FIRST).unwrap();
    for queue in host.io_queues().skip(1) {
        let mut disk = Disk {
            queue,
            ..Disk::new(&mut host, 1)
        };
        disk.write(100_000, &bytes(3, 4096), Transfer::Keyed);
        assert!(disk.read(100_000, 4096, Transfer::Keyed) == bytes(3, 4096));
    }
    host.shutdown().unwrap();
    target.stop();
}
