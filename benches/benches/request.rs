//! A command through host, loopback fabric and target with a null disk.

use cairn_initiator::{Buffer, Data, Host, Ticket, command};
use cairn_tests::harness::TestTarget;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Blocks of 512 bytes in each command.
const BLOCKS: u32 = 8;
const BYTES: u32 = BLOCKS * 512;

/// Latency of single commands.
fn one_at_a_time(c: &mut Criterion) {
    let target = TestTarget::with_namespaces(&["null:1GiB block_size = 512"]);
    let mut host = target.connect("bench");
    let buffer = host.buffer(BYTES as usize).expect("a page of memory");
    let in_capsule = vec![0x5a; BYTES as usize];
    let mut group = c.benchmark_group("4k at depth 1");
    for (name, sqe, data) in [
        ("read", command::read(1, 0, BLOCKS), keyed(&buffer)),
        ("write", command::write(1, 0, BLOCKS), keyed(&buffer)),
        (
            "write in capsule",
            command::write(1, 0, BLOCKS),
            Data::InCapsule(&in_capsule),
        ),
        ("flush", command::flush(1), Data::None),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| host.run(1, sqe, data).expect("a null disk does not fail"));
        });
    }
    group.finish();
    host.shutdown().expect("an orderly end");
    target.stop();
}

/// Throughput of a reactor with a full queue.
fn full_queue(c: &mut Criterion) {
    const DEPTH: usize = 64;
    let target = TestTarget::with_namespaces(&["null:1GiB block_size = 512"]);
    let mut host = target.connect("bench");
    let buffer = host.buffer(BYTES as usize).expect("a page of memory");
    let mut group = c.benchmark_group("4k at depth 64");
    group.throughput(Throughput::Elements(DEPTH as u64));
    group.bench_function("read", |b| {
        b.iter(|| {
            let tickets: [Ticket; DEPTH] = std::array::from_fn(|_| submit(&mut host, &buffer));
            for ticket in tickets {
                host.wait(ticket).expect("a null disk does not fail");
            }
        });
    });
    group.finish();
    host.shutdown().expect("an orderly end");
    target.stop();
}

fn submit(host: &mut Host, buffer: &Buffer) -> Ticket {
    let read = command::read(1, 0, BLOCKS);
    host.submit(1, read, keyed(buffer))
        .expect("the queue holds as many")
}

fn keyed(buffer: &Buffer) -> Data<'_> {
    Data::start_of(buffer, BYTES)
}

criterion_group!(benches, one_at_a_time, full_queue);
criterion_main!(benches);
