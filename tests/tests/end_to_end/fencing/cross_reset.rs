//! Cross-Controller Reset: a host ends its association on another path.

use super::*;
use cairn_initiator::{Event, Notice};
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
