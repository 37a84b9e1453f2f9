//! Speed of RoCE without storage: two threads, each with an endpoint, over the loopback interface.
//!
//! `cargo run --release -p cairn-roce --example loopback_speed [SECONDS]`, where SECONDS is the
//! length of each measurement.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cairn_roce::Soft;
use cairn_roce::rdma::{
    Access, Completion, ConnectOptions, Device, Endpoint, EndpointOptions, Event, ListenOptions,
    ListenerEvent, Mapping, Operation, PKey, Provider, QpId, QpOptions, Region, RemoteBuffer,
    SendWork,
};

const SIZE: usize = 32 << 20;
const TIME_S: f64 = 2.0;

fn open(device: &Arc<dyn Device>) -> (Box<dyn Endpoint>, Region) {
    let mapping = Arc::new(Mapping::anonymous(SIZE).expect("32 MiB"));
    let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let region = device.register(mapping, rights).expect("a region");
    let options = EndpointOptions {
        receives: 16,
        completions: 1024,
        queue_pairs: 4,
    };
    (
        Arc::clone(device).open(&options).expect("an endpoint"),
        region,
    )
}

fn measure(
    end: &mut dyn Endpoint,
    qp: QpId,
    region: &Region,
    (depth, length): (usize, usize),
    time: Duration,
    op: impl Fn(usize) -> Operation,
) -> (f64, f64) {
    let work = |slot: usize| SendWork {
        id: slot as u64,
        op: op(slot * length),
        sges: region.sge(slot * length, length as u32).into(),
        signaled: true,
    };
    let first: Vec<_> = (0..depth).map(work).collect();
    end.post(qp, &first).expect("room for work");
    let started = Instant::now();
    let mut done = 0_u64;
    let mut out = [Completion::EMPTY; 64];
    let mut again = Vec::with_capacity(64);
    while started.elapsed() < time {
        let count = end.poll(&mut out);
        again.clear();
        for completion in &out[..count] {
            assert!(completion.status.is_success(), "{completion:?}");
            again.push(work(completion.id as usize));
        }
        done += count as u64;
        end.post(qp, &again).expect("room for work");
    }
    let seconds = started.elapsed().as_secs_f64();
    let mut left = depth;
    while left > 0 {
        left -= end.poll(&mut out);
    }
    let rate = done as f64 / seconds;
    (rate, rate * length as f64 / 1e9)
}

/// Measures round trips of UDP datagrams per second between two polling threads, for comparison
/// with RoCE.
fn there_and_back(time: Duration) -> std::io::Result<f64> {
    const CAPSULE: usize = 92;
    const BLOCK: usize = 4200;
    let socket = || UdpSocket::bind("127.0.0.1:0");
    let (near, far) = (socket()?, socket()?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let stop = AtomicBool::new(false);
    let answer = |buffer: &mut [u8]| -> std::io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            if far.recv(buffer).is_ok() {
                far.send(buffer)?;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let answering = scope.spawn(|| answer(&mut [0; BLOCK]));
        let started = Instant::now();
        let mut buffer = [0; BLOCK];
        let mut done = 0_u64;
        while started.elapsed() < time {
            near.send(&buffer[..CAPSULE])?;
            while near.recv(&mut buffer).is_err() && started.elapsed() < 2 * time {}
            done += 1;
        }
        let seconds = started.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        answering.join().expect("the other thread ends well")?;
        Ok(done as f64 / seconds)
    })
}

#[expect(
    clippy::too_many_lines,
    reason = "a measurement is read from top to bottom"
)]
fn main() {
    let seconds = std::env::args().nth(1);
    let seconds = seconds.map_or(TIME_S, |text| text.parse().expect("SECONDS is a number"));
    let time = Duration::from_secs_f64(seconds);
    println!(
        "{:<24} {:>12} {:>10} {:>12}",
        "", "per second", "GB/s", "us each"
    );
    let rate = there_and_back(time).expect("sockets of this machine");
    let (name, bandwidth, each) = ("UDP 4096 B x 1", rate * 4096.0 / 1e9, 1e6 / rate);
    println!("{name:<24} {rate:>12.0} {bandwidth:>10.2} {each:>12.1}");
    let ip: IpAddr = "127.0.0.1".parse().expect("an address");
    let provider = Soft::default();
    let (sender, requests) = channel();
    let sink = Box::new(move |event| {
        let _ = sender.send(event);
    });
    let address = SocketAddr::new(ip, 4420);
    let options = ListenOptions {
        address,
        backlog: 4,
        pkey: PKey::DEFAULT,
        roce: None,
    };
    let _listener = provider.listen(&options, sink).expect("to listen");
    let device = provider.device_for(address, None).expect("a device");
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = channel();
    let passive = {
        let (device, stop) = (Arc::clone(&device), Arc::clone(&stop));
        thread::spawn(move || {
            let (mut end, region) = open(&device);
            sender
                .send(region.remote(0).expect("it is for peers"))
                .expect("the other thread lives");
            let Ok(ListenerEvent::Request(request)) = requests.recv() else {
                panic!("no request came");
            };
            let qp = end
                .accept(*request, &QpOptions::default(), &[])
                .expect("to accept");
            let mut out = [Completion::EMPTY; 16];
            while !stop.load(Ordering::Relaxed) {
                end.poll(&mut out);
                end.poll_events(&mut Vec::new());
            }
            end.disconnect(qp);
        })
    };
    let there = receiver.recv().expect("the other thread lives");
    let (mut end, region) = open(&device);
    let options = ConnectOptions {
        remote: address,
        local: None,
        pkey: PKey::DEFAULT,
        qp: QpOptions::default(),
        timeout: Duration::from_secs(5),
    };
    let qp = end.connect(&options, &[]).expect("to connect");
    let mut events = Vec::new();
    while events.is_empty() {
        end.poll(&mut [Completion::EMPTY; 1]);
        end.poll_events(&mut events);
    }
    assert!(matches!(events[0], Event::Established { .. }), "{events:?}");
    for (length, depth) in [
        (64, 1),
        (4096, 1),
        (4096, 32),
        (4096, 128),
        (131_072, 8),
        (1 << 20, 8),
    ] {
        for read in [false, true] {
            let op = |offset: usize| {
                let remote = RemoteBuffer {
                    addr: there.addr + offset as u64,
                    ..there
                };
                if read {
                    Operation::Read(remote)
                } else {
                    Operation::Write(remote)
                }
            };
            let (rate, bandwidth) = measure(&mut *end, qp, &region, (depth, length), time, op);
            let name = if read { "READ" } else { "WRITE" };
            let name = format!("{name} {length} B x {depth}");
            let each = 1e6 / rate * depth as f64;
            println!("{name:<24} {rate:>12.0} {bandwidth:>10.2} {each:>12.1}");
        }
    }
    end.disconnect(qp);
    stop.store(true, Ordering::Relaxed);
    passive.join().expect("the other thread ends well");
    drop(end);
    for (device, counters) in provider.counters() {
        let counted = counters.iter().filter(|(_, value)| *value > 0);
        let text: Vec<_> = counted
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        println!("{device}: {}", text.join(", "));
    }
}
