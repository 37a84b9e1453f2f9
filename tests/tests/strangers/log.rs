use std::time::Instant;

use cairn_base::log::{Topic, left_out};
use cairn_roce_proto::cm::CmEvent;
use cairn_roce_proto::wire::udp::ROCE_PORT;
use cairn_tests::harness::own_loopback_address;
use nvme_proto::wire::U16;
use nvme_proto::wire::cm::RequestData;

use super::Victim;
use cairn_tests::logged;
use cairn_tests::stranger::Stranger;

#[test]
fn many_addresses_do_not_fill_the_log() {
    const ADDRESSES: usize = 200;
    logged::listen();
    let victim = Victim::start();
    let remote = victim.address().ip();
    let start = Instant::now();
    let mut request = RequestData::new(0, 32, 31, 0);
    request.recfmt = U16::new(1);
    for _ in 0..ADDRESSES {
        let mut stranger = Stranger::at(own_loopback_address(), ROCE_PORT, remote);
        stranger.ask_with(100, &request);
        assert!(matches!(stranger.receive(), CmEvent::Rejected { .. }));
    }
    let logged = logged::lines(&["connection request refused"]).len();
    let limit = 64 + 2 * (start.elapsed().as_secs() as usize + 1);
    assert!(logged <= limit, "{logged} lines of {ADDRESSES} addresses");
    assert!(logged >= 64, "{logged} lines: some of them are wanted");
    let counts = left_out();
    let refused = counts.iter().find(|(topic, _)| *topic == Topic::Refused);
    let (_, left_out) = refused.unwrap();
    assert_eq!(logged as u64 + left_out, ADDRESSES as u64);
    victim.target.stop().unwrap();
}
