//! Building and verifying a RoCE packet: headers, payload, ICRC.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use cairn_roce_proto::wire::icrc::{self, Checker, Identity, Route};
use cairn_roce_proto::wire::packet::MAX_OVERHEAD;
use cairn_roce_proto::wire::{Opcode, Packet, Reth};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const PAYLOADS: [usize; 2] = [64, 4096];

const ROUTE: Route = Route::Udp {
    source: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    destination: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    source_port: 0xc123,
};

const IDENTITY: Identity = Identity::of_segment(0);

fn build(payload: &[u8], out: &mut [u8]) -> usize {
    let mut packet = Packet::new(Opcode::WriteOnly, 0x12_3456, 0x65_4321);
    packet.reth = Some(Reth {
        va: 0x7f00_0000_0000,
        rkey: 0x1234,
        dma_len: payload.len() as u32,
    });
    packet.payload = payload;
    let length = packet.emit(out);
    icrc::seal(&ROUTE, IDENTITY, out, length)
}

fn packet_path(c: &mut Criterion) {
    for (name, receives) in [
        ("build a packet", false),
        ("build and receive a packet", true),
    ] {
        let mut group = c.benchmark_group(name);
        for length in PAYLOADS {
            let payload = vec![0x5a; length];
            let mut buffer = vec![0; length + MAX_OVERHEAD];
            let mut checker = Checker::new();
            group.throughput(Throughput::Bytes(length as u64));
            group.bench_function(BenchmarkId::from_parameter(length), |b| {
                b.iter(|| {
                    let end = build(black_box(&payload), &mut buffer);
                    if receives {
                        let transport = checker.open(&ROUTE, 0, &buffer[..end]);
                        let packet = Packet::parse(transport.expect("its ICRC is right"));
                        black_box(packet.expect("it is a packet").payload.len());
                    }
                });
            });
        }
        group.finish();
    }
}

fn icrc_alone(c: &mut Criterion) {
    let mut group = c.benchmark_group("ICRC");
    for length in PAYLOADS {
        let transport = vec![0x5a; length];
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(BenchmarkId::from_parameter(length), |b| {
            b.iter(|| icrc::icrc(&ROUTE, IDENTITY, black_box(&transport)));
        });
    }
    group.finish();
}

criterion_group!(benches, packet_path, icrc_alone);
criterion_main!(benches);
