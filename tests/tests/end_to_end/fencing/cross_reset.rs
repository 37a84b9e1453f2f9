//! Cross-Controller Reset: over one path, a host ends its association on another path.

use super::*;
use cairn_initiator::multipath::{Multipath, MultipathOptions, PathTicket};
use cairn_initiator::{Event, HostError, Notice, Recovery};
use nvme_proto::wire::cross_reset::{
    CrossResetEntry, CrossResetLogHeader, CrossResetState, Instance,
};
use nvme_proto::wire::log::LogPage;
use nvme_proto::wire::{FromBytes, NSID_ALL};

fn instance(host: &Controller) -> Instance {
    Instance::of(host.identity()).unwrap()
}

impl Bed {
    fn resets(&mut self, by: &mut Controller, instance: &Instance) -> Result<bool, Status> {
        let reset = command::cross_controller_reset(instance);
        let ticket = by.submit_admin(reset, Data::None).unwrap();
        for _ in 0..TURNS_MAX {
            self.turn(by);
            if let Some(ended) = by.take(ticket) {
                let cqe = ended.answer.unwrap().cqe;
                return match cqe.status() {
                    Status::SUCCESS => Ok(cqe.dw0.get() == Instance::RESET_SUCCESSFUL),
                    status => Err(status.code()),
                };
            }
        }
        panic!("no answer: {by:?}");
    }

    fn states(&mut self, by: &mut Controller) -> Vec<u8> {
        let get = command::get_log_page(LogPage::CROSS_CONTROLLER_RESET, NSID_ALL, 0, 4096, false);
        let ticket = by.submit_admin(get, Data::whole(by.buffer(4096).unwrap()));
        let (status, buffer) = self.end(by, ticket.unwrap());
        assert_eq!(status, Status::SUCCESS);
        let page = buffer.unwrap().bytes(0, 4096);
        let (header, mut rest) = CrossResetLogHeader::read_from_prefix(&page).unwrap();
        let mut states = Vec::new();
        for _ in 0..header.ne.get() {
            let (entry, after) = CrossResetEntry::read_from_prefix(rest).unwrap();
            states.push(entry.ccrs);
            rest = after;
        }
        states
    }
}

#[test]
fn a_reset_ends_an_association_whose_commands_are_on_their_way() {
    let mut bed = Bed::new("reset-under-load");
    let mut second = bed.live_host("two-paths", 60_000);
    let mut first = bed.live_host("two-paths", 60_000);
    let lost = instance(&first);
    let (old, new) = ([1; BLOCK], [2; BLOCK]);
    let tickets: Vec<Ticket> = (0..64)
        .map(|block| write(&mut first, 1, block, &old))
        .collect();
    assert_eq!(bed.resets(&mut second, &lost), Ok(true));
    for block in 0..64 {
        let ticket = write(&mut second, 1, block, &new);
        assert_eq!(bed.answer(&mut second, ticket), Status::SUCCESS);
    }
    bed.until(&mut first, |first| !first.is_live());
    bed.pass(Duration::from_secs(1));
    for block in 0..64 {
        assert_eq!(bed.block(block), new, "block {block}");
    }
    for ticket in tickets {
        first.forget(ticket);
    }
    assert_eq!(bed.resets(&mut second, &lost), Ok(true), "it has ended");
}

#[test]
fn a_disk_that_hangs_keeps_the_reset_in_progress() {
    for is_noticed in [true, false] {
        let mut bed = Bed::new("reset-hangs");
        let mut second = bed.live_host("two-paths", 60_000);
        let mut first = bed.live_host("two-paths", 60_000);
        let lost = instance(&first);
        bed.holds_a_write(&mut first);
        if is_noticed {
            drop(first);
            bed.pass(Duration::from_millis(100));
        }
        assert_eq!(bed.resets(&mut second, &lost), Ok(false));
        bed.pass(Duration::from_secs(30));
        bed.writes(&mut second, 4);
        assert_eq!(bed.states(&mut second), [CrossResetState::IN_PROGRESS.0]);
        let again = bed.resets(&mut second, &lost);
        assert_eq!(again, Err(Status::CROSS_CONTROLLER_RESET_IN_PROGRESS));
        while second.take_event().is_some() {}
        bed.disk.release(Operation::Write);
        let mut event = None;
        while event.is_none() {
            bed.turn(&mut second);
            event = second.take_event();
        }
        let notice = Event::Notice(Notice::CrossControllerReset);
        assert_eq!(format!("{event:?}"), format!("{:?}", Some(notice)));
        assert_eq!(bed.states(&mut second), [CrossResetState::SUCCESS.0]);
        assert_eq!(bed.resets(&mut second, &lost), Ok(true));
    }
}

#[test]
fn a_stranger_resets_nothing() {
    let mut bed = Bed::new("reset-stranger");
    let mut first = bed.live_host("holds", 60_000);
    let mut stranger = bed.live_host("stranger", 60_000);
    let victim = instance(&first);
    let refused = bed.resets(&mut stranger, &victim);
    assert_eq!(refused, Err(Status::INVALID_FIELD));
    bed.writes(&mut first, 3);
}

/// Returns a multipath host that lost one of two paths, and the ticket of a write still at the
/// disk.
fn lost_path(bed: &mut Bed, write_hold: Option<Duration>) -> (Multipath, PathTicket) {
    let locals = [IpAddr::from([192, 0, 2, 2]), IpAddr::from([192, 0, 2, 3])];
    let paths = locals.map(|local| {
        let options = HostOptions {
            local: Some(local),
            recovery: Recovery::NONE,
            ..bed.options("two-paths", 60_000)
        };
        let device = bed.network.device_for(options.remote, options.local);
        (device.unwrap(), options)
    });
    let now = bed.clock.now();
    let options = MultipathOptions {
        write_hold,
        ..MultipathOptions::new(1)
    };
    let mut disk = Multipath::begin(paths, options, now).unwrap();
    bed.disk_until(&mut disk, |_, disk| disk.paths().all(|path| path.usable));
    bed.disk.hold(Operation::Write);
    let old = bed.submits(&mut disk, 1);
    bed.disk_until(&mut disk, |bed, _| bed.disk.waiting(Operation::Write) > 0);
    bed.disk.hold_no_more(Operation::Write);
    let lost = disk.paths().position(|path| path.outstanding > 0).unwrap();
    bed.network.unplug(locals[lost]);
    bed.disk_until(&mut disk, |_, disk| !disk.paths().all(|path| path.usable));
    (disk, old)
}

impl Bed {
    fn submits(&mut self, disk: &mut Multipath, value: u8) -> PathTicket {
        let mut buffer = disk.buffer(BLOCK).unwrap();
        buffer.write(0, &[value; BLOCK]);
        let write = command::write(0, 3, 1);
        disk.submit(write, Data::whole(buffer)).unwrap()
    }

    fn disk_until(&mut self, disk: &mut Multipath, done: impl Fn(&Self, &Multipath) -> bool) {
        for _ in 0..TURNS_MAX {
            self.target.step();
            disk.poll(self.clock.now());
            self.jump(MOMENT);
            if done(self, disk) {
                return;
            }
        }
        panic!("it did not come about: {disk:?}");
    }
}

#[test]
fn a_multipath_host_writes_again_when_the_disk_of_the_lost_path_lets_go() {
    for moments in [0, 4000] {
        let mut bed = Bed::new("reset-by-multipath");
        let (mut disk, old) = lost_path(&mut bed, None);
        let lost = bed.clock.now();
        bed.disk_until(&mut disk, |_, disk| disk.waiting() == 1);
        for _ in 0..moments {
            bed.disk_until(&mut disk, |_, _| true);
            assert!(disk.waiting() == 1, "a write overtook the held one");
        }
        bed.disk.release(Operation::Write);
        let released = bed.clock.now();
        bed.disk_until(&mut disk, |_, disk| disk.outstanding() == 0);
        let took = bed.clock.now() - released;
        println!("{took:?} from the release of the disk to the answer of the held write");
        assert!(
            bed.clock.now() - lost < Duration::from_secs(60),
            "KATO passed"
        );
        let new = bed.submits(&mut disk, 2);
        bed.disk_until(&mut disk, |_, disk| disk.outstanding() == 0);
        for ticket in [old, new] {
            let answer = disk.take(ticket).unwrap().answer.unwrap();
            assert_eq!(answer.cqe.status(), Status::SUCCESS);
        }
        bed.pass(Duration::from_secs(1));
        assert!(bed.block(3) == [2; BLOCK]);
    }
}

#[test]
fn a_multipath_host_waits_if_the_other_path_is_lost_as_well() {
    let mut bed = Bed::new("reset-both-lost");
    let (mut disk, _) = lost_path(&mut bed, None);
    for local in [2, 3] {
        bed.network.unplug(IpAddr::from([192, 0, 2, local]));
    }
    bed.disk.release(Operation::Write);
    for _ in 0..2000 {
        bed.disk_until(&mut disk, |_, _| true);
    }
    assert_eq!(disk.waiting(), 1, "no reset was confirmed");
    bed.jump(Duration::from_secs(2 * 60 + 2));
    bed.disk_until(&mut disk, |_, disk| disk.outstanding() == 0);
    while let Some((_, ended)) = disk.reap() {
        assert!(matches!(ended.answer, Err(HostError::NoPath { .. })));
    }
}

#[test]
fn an_answer_after_the_end_of_the_wait_changes_nothing() {
    let mut bed = Bed::new("reset-too-late");
    let (mut disk, old) = lost_path(&mut bed, Some(Duration::from_millis(10)));
    bed.disk_until(&mut disk, |_, disk| disk.waiting() == 1);
    bed.disk_until(&mut disk, |_, disk| disk.waiting() == 0);
    for _ in 0..4000 {
        bed.disk_until(&mut disk, |_, _| true);
    }
    assert_eq!(disk.outstanding(), 1, "the target orders both writes");
    bed.disk.release(Operation::Write);
    bed.disk_until(&mut disk, |_, disk| disk.outstanding() == 0);
    let answer = disk.take(old).unwrap().answer.unwrap();
    assert_eq!(answer.cqe.status(), Status::SUCCESS);
    bed.pass(Duration::from_secs(1));
    assert!(bed.block(3) == [1; BLOCK]);
}
