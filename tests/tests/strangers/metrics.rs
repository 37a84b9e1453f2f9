use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cairn_tests::harness::{METRICS, NQN, TestTarget, subsystem};

#[test]
fn slow_readers_keep_no_other_from_the_metrics() {
    let exports = subsystem(NQN, &["mem:1MiB"]);
    let target = TestTarget::start(&format!("{exports}\n{METRICS}"));
    let address = target.metrics_address();
    let slow: Vec<_> = (0..256)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /met").unwrap();
            stream
        })
        .collect();
    let start = Instant::now();
    let page = target.scrape();
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    drop((slow, page));
}
