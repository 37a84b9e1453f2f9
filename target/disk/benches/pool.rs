//! Benchmark: allocation and release of one or 128 pool buffers.

use std::hint::black_box;

use cairn_disk::{Buffer, Pool};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const POOL_BYTES: usize = 16 << 20;
const LARGEST: usize = 1 << 20;

fn one(c: &mut Criterion) {
    let mut group = c.benchmark_group("pool: one buffer");
    group.throughput(Throughput::Elements(1));
    for (name, length) in [("4k", 4 << 10), ("128k", 128 << 10), ("1m", LARGEST)] {
        let mut pool = Pool::new(POOL_BYTES, LARGEST);
        group.bench_function(name, |b| {
            b.iter(|| {
                let buffer = pool.take(black_box(length)).expect("it is empty");
                pool.give(buffer);
            });
        });
    }
    group.finish();
}

fn many(c: &mut Criterion) {
    const DEPTH: usize = 128;
    let mut group = c.benchmark_group("pool: 128 buffers");
    group.throughput(Throughput::Elements(DEPTH as u64));
    let mut pool = Pool::new(POOL_BYTES, LARGEST);
    let mut taken: Vec<Buffer> = Vec::with_capacity(DEPTH);
    group.bench_function("4k", |b| {
        b.iter(|| {
            for _ in 0..DEPTH {
                taken.push(pool.take(black_box(4096)).expect("half a megabyte"));
            }
            for buffer in taken.drain(..) {
                pool.give(buffer);
            }
        });
    });
    group.finish();
}

criterion_group!(benches, one, many);
criterion_main!(benches);
