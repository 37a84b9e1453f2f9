//! A target that is stopped for longer than KATO before any of its looks at the clock: what the disk
//! did not have by then, it never gets.
//!
//! Between two looks a program cannot know of a stop, so these are all the places there are. What
//! the host sent waits in the network from the start: whether it arrived before the stop or during
//! it, the target cannot know either.

use nvme_proto::wire::Sqe;
use nvme_proto::wire::feature::{Feature, Select};

use super::*;

const KATO: Duration = Duration::from_secs(5);
const STOP: Duration = Duration::from_secs(9);
/// More looks than the target makes for the commands.
const LOOKS_MAX: u64 = 10_000;

/// Commands of the admin queue, each of which restarts the timer when it arrives.
fn admin_commands() -> [Sqe; 4] {
    let kato_ms = KATO.as_millis() as u32;
    [
        command::keep_alive(),
        command::set_features(Feature::KEEP_ALIVE_TIMER.0, 0, kato_ms),
        command::get_features(Feature::KEEP_ALIVE_TIMER.0, Select::CURRENT, 0, 0),
        command::async_event_request(),
    ]
}

/// Has the target carry out writes around a command of the admin queue, and stops it after so many
/// looks. Whether it made so many.
fn writes_around(admin: Sqe, neighbours: u32, looks: u64) -> bool {
    let mut bed = Bed::new("stopped");
    // The queues of hosts before it decide which reactors it gets.
    let names = ["first", "second"];
    let _neighbours: Vec<Controller> = names[..neighbours as usize]
        .iter()
        .map(|name| bed.live_host(name, 0))
        .collect();
    let mut host = bed.live_host("fails-over", KATO.as_millis() as u32);
    bed.disk.hold(Operation::Write);
    let send_write = |host: &mut Controller, block| {
        let data = Data::InCapsule(&[7; BLOCK]);
        host.submit(1, command::write(1, block, 1), data).unwrap();
    };
    send_write(&mut host, 1);
    host.submit(0, admin, Data::None).unwrap();
    send_write(&mut host, 2);
    let stopped_at = bed.clock.now();
    bed.clock.stop_after(looks, STOP);
    bed.target.step();
    let stopped = !bed.clock.forget_stop();
    send_write(&mut host, 3);
    bed.pass(Duration::from_secs(1));
    if stopped {
        let late = bed.disk.waiting_since(Operation::Write).into_iter();
        let late = late.filter(|&since| since > stopped_at).count();
        assert_eq!(
            late, 0,
            "stale writes, {admin:?}, stopped after {looks} looks"
        );
    }
    bed.disk.release(Operation::Write);
    bed.pass(Duration::from_secs(1));
    let third = if stopped { 0 } else { 7 };
    assert_eq!(bed.block(3), [third; BLOCK], "stopped after {looks} looks");
    stopped
}

#[test]
fn nothing_is_begun_after_one() {
    for admin in admin_commands() {
        for neighbours in 0..2 {
            let stops = (0..LOOKS_MAX).take_while(|&looks| writes_around(admin, neighbours, looks));
            assert!(stops.count() > 4, "the target looks at the clock");
        }
    }
}
