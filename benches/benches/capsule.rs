//! Parsing of a command capsule.

use std::hint::black_box;

use cairn_initiator::command;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nvme_proto::io::{IoCommand, IoLimits, NamespaceView};
use nvme_proto::wire::identify::{Oncs, Vwc};
use nvme_proto::wire::{IntoBytes, SglDescriptor, Sqe};

const NAMESPACE: NamespaceView = NamespaceView {
    nsze: 1 << 30,
    lbads: 9,
    write_protected: false,
    write_uncorrectable: false,
};

fn limits() -> IoLimits {
    IoLimits {
        mdts_bytes: 1 << 20,
        wzsl_bytes: None,
        vsl_bytes: None,
        wusl_bytes: None,
        oncs: Oncs(0).with_write_zeroes(true).with_compare(true),
        vwc: Vwc(0),
    }
}

fn capsule(mut sqe: Sqe, dptr: SglDescriptor) -> Vec<u8> {
    sqe.flags = Sqe::FLAGS_SGL;
    sqe.dptr = dptr;
    sqe.as_bytes().to_vec()
}

fn parse(c: &mut Criterion) {
    let limits = limits();
    let keyed = SglDescriptor::keyed(0x7f00_0000_0000, 4096, 0x1234, true);
    let mut in_capsule = capsule(
        command::write(1, 4096, 8),
        SglDescriptor::in_capsule(0, 4096),
    );
    in_capsule.resize(64 + 4096, 0);
    let capsules = [
        ("read", capsule(command::read(1, 4096, 8), keyed)),
        ("write", capsule(command::write(1, 4096, 8), keyed)),
        ("write in capsule", in_capsule),
        ("flush", capsule(command::flush(1), SglDescriptor::none())),
        ("refused", capsule(command::read(1, u64::MAX - 8, 8), keyed)),
    ];
    let mut group = c.benchmark_group("parse");
    group.throughput(Throughput::Elements(1));
    for (name, capsule) in &capsules {
        group.bench_function(*name, |b| {
            b.iter(|| {
                let (sqe, data) = Sqe::split_capsule(black_box(capsule)).expect("64 bytes");
                IoCommand::parse(sqe, data.len() as u32, Some(&NAMESPACE), &limits)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, parse);
criterion_main!(benches);
