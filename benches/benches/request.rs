//! Command through host, loopback fabric and target with a null disk.

use cairn_initiator::{Buffer, Data, Host, Ticket, command};
use cairn_tests::harness::TestTarget;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const BLOCKS: u32 = 8;
const BYTES: u32 = BLOCKS * 512;

fn one_at_a_time(c: &mut Criterion) {
    let target = TestTarget::with_namespaces(&["null:1GiB block_size = 512"]);
    let mut host = target.connect("bench");
    let mut buffer = host.buffer(BYTES as usize).expect("a page of memory");
    let in_capsule = vec![0x5a; BYTES as usize];
    let mut group = c.benchmark_group("4k at depth 1");
    for (name, sqe) in [
        ("read", command::read(1, 0, BLOCKS)),
        ("write", command::write(1, 0, BLOCKS)),
        ("write in capsule", command::write(1, 0, BLOCKS)),
        ("flush", command::flush(1)),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let data = match name {
                    "write in capsule" => Data::InCapsule(&in_capsule),
                    "flush" => Data::None,
                    _ => Data::whole(&mut buffer),
                };
                host.run(sqe, data).expect("a null disk does not fail")
            });
        });
    }
    group.finish();
    host.shutdown().expect("an orderly end");
    target.stop();
}

fn full_queue(c: &mut Criterion) {
    const DEPTH: usize = 64;
    let target = TestTarget::with_namespaces(&["null:1GiB block_size = 512"]);
    let mut host = target.connect("bench");
    let buffers = host.buffer(DEPTH * BYTES as usize);
    let mut buffers = buffers.expect("memory").split(BYTES as usize);
    let mut group = c.benchmark_group("4k at depth 64");
    group.throughput(Throughput::Elements(DEPTH as u64));
    group.bench_function("read", |b| {
        b.iter(|| {
            let tickets: [Ticket; DEPTH] = std::array::from_fn(|_| {
                let buffer = buffers.pop().expect("a buffer for each command");
                submit(&mut host, buffer)
            });
            for ticket in tickets {
                let ended = host.wait(ticket);
                ended.answer.expect("a null disk does not fail");
                buffers.extend(ended.buffer);
            }
        });
    });
    group.finish();
    host.shutdown().expect("an orderly end");
    target.stop();
}

fn submit(host: &mut Host, buffer: Buffer) -> Ticket {
    let read = command::read(1, 0, BLOCKS);
    host.submit(read, Data::whole(buffer))
        .expect("the queue holds as many")
}

criterion_group!(benches, one_at_a_time, full_queue);
criterion_main!(benches);
