use super::*;

const FIRST: Sender = Sender {
    host: 1,
    association: 1,
};
const SECOND: Sender = Sender {
    host: 1,
    association: 2,
};
const OTHER_HOST: Sender = Sender {
    host: 2,
    association: 3,
};

struct Bed {
    order: Arc<DiskOrder>,
    works: u64,
}

impl Bed {
    fn new() -> Self {
        Self {
            order: Arc::<DiskOrders>::default().of(DiskKey::Named(Uuid::nil())),
            works: 0,
        }
    }

    fn enter(&mut self, from: Sender, ranges: &[Range<u64>]) -> Ticket {
        self.works += 1;
        let waiter = Waiter {
            reactor: 0,
            work: self.works,
        };
        self.order
            .enter(from, waiter, Entrance::Change, ranges.iter().cloned())
    }

    fn excludes(&mut self, from: Sender, bytes: Range<u64>) -> (Ticket, Arrival) {
        self.works += 1;
        let waiter = Waiter {
            reactor: 0,
            work: self.works,
        };
        let ranges = std::iter::once(bytes);
        let ticket = self.order.enter(from, waiter, Entrance::Exclusive, ranges);
        (ticket, self.order.arrive(ticket, false))
    }

    fn join(&self, reactors: usize) {
        assert!(self.order.exclude(reactors));
        for reactor in 0..reactors {
            self.order.joined(reactor);
        }
    }

    fn comes(&mut self, from: Sender, bytes: Range<u64>) -> (Ticket, Arrival) {
        let ticket = self.enter(from, &[bytes]);
        (ticket, self.order.arrive(ticket, false))
    }

    fn check(&self) {
        let entries = self.order.entries();
        let at_disk = |entry: &&Entry| entry.stage == Stage::AtDisk;
        for entry in entries.list.iter().filter(at_disk) {
            let earlier = entries.list.iter().filter(at_disk);
            assert!(!earlier.into_iter().any(|other| other.excludes(entry)));
        }
    }

    fn leaves(&self, ticket: Ticket) -> Vec<u64> {
        let mut woken = Vec::new();
        self.order.leave(ticket, |waiter| woken.push(waiter.work));
        woken
    }
}

#[test]
fn a_change_waits_for_older_ones_of_other_associations_of_its_host() {
    let mut bed = Bed::new();
    let (old, arrival) = bed.comes(FIRST, 0..8);
    assert_eq!(arrival, Arrival::Go);
    let (newer, arrival) = bed.comes(SECOND, 7..9);
    assert_eq!(arrival, Arrival::Wait);
    assert_eq!(bed.comes(SECOND, 9..10).1, Arrival::Go);
    assert_eq!(bed.comes(SECOND, 8..9).1, Arrival::Go);
    assert_eq!(bed.comes(OTHER_HOST, 0..8).1, Arrival::Go);
    assert_eq!(bed.comes(FIRST, 0..4).1, Arrival::Go);
    assert_eq!(bed.leaves(old), [2]);
    assert_eq!(bed.order.arrive(newer, false), Arrival::Go);
}

#[test]
fn changes_that_wait_keep_their_order() {
    let mut bed = Bed::new();
    let (held, _) = bed.comes(FIRST, 0..8);
    let (second, arrival) = bed.comes(SECOND, 0..8);
    assert_eq!(arrival, Arrival::Wait);
    let (third, arrival) = bed.comes(FIRST, 0..8);
    assert_eq!(arrival, Arrival::Wait);
    assert_eq!(bed.leaves(held), [2]);
    assert_eq!(bed.order.arrive(third, false), Arrival::Wait);
    assert_eq!(bed.order.arrive(second, false), Arrival::Go);
    assert_eq!(bed.leaves(second), [3]);
    assert_eq!(bed.order.arrive(third, false), Arrival::Go);
}

#[test]
fn a_change_that_does_not_come_is_overtaken() {
    let mut bed = Bed::new();
    let slow = bed.enter(FIRST, std::slice::from_ref(&(0..8)));
    let (newer, arrival) = bed.comes(SECOND, 0..8);
    assert_eq!(arrival, Arrival::Wait);
    assert_eq!(bed.order.arrive(newer, true), Arrival::Go);
    assert_eq!(bed.order.arrive(slow, false), Arrival::Overtaken);
    assert!(bed.leaves(newer).is_empty());
    assert_eq!(
        bed.order.arrive(slow, false),
        Arrival::Overtaken,
        "when the newer one is done, too"
    );
    bed.leaves(slow);
    assert_eq!(bed.order.len(), 0);
}

#[test]
fn a_change_at_the_disk_is_not_overtaken() {
    let mut bed = Bed::new();
    let (held, _) = bed.comes(FIRST, 0..8);
    let (newer, _) = bed.comes(SECOND, 0..8);
    assert_eq!(bed.order.arrive(newer, true), Arrival::Wait);
    let (newest, _) = bed.comes(FIRST, 0..8);
    assert_eq!(bed.order.arrive(newest, true), Arrival::Wait);
    bed.leaves(held);
    assert_eq!(bed.order.arrive(newer, false), Arrival::Go);
}

#[test]
fn all_ranges_of_a_change_count() {
    let mut bed = Bed::new();
    let ranges = bed.enter(FIRST, &[0..8, 32..40]);
    assert_eq!(bed.order.arrive(ranges, false), Arrival::Go);
    assert_eq!(bed.comes(SECOND, 36..37).1, Arrival::Wait);
    assert_eq!(bed.comes(SECOND, 8..32).1, Arrival::Go);
    assert_eq!(bed.leaves(ranges), [2]);
    assert_eq!(bed.order.len(), 2);
}

#[test]
fn exclusive_commands_wait_until_all_reactors_register_their_changes() {
    let mut bed = Bed::new();
    let (ticket, arrival) = bed.excludes(FIRST, 0..8);
    assert_eq!(arrival, Arrival::Wait);
    assert!(bed.order.exclude(2) && !bed.order.exclude(2));
    assert!(bed.order.joined(1).is_empty() && bed.order.joined(1).is_empty());
    assert_eq!(bed.order.arrive(ticket, true), Arrival::Wait);
    let woken: Vec<u64> = bed.order.joined(0).iter().map(|it| it.work).collect();
    assert_eq!(woken, [1]);
    assert_eq!(bed.order.arrive(ticket, false), Arrival::Go);
    assert!(bed.order.stays_exclusive(0) && bed.order.stays_exclusive(5 * LINGER_NS));
    bed.leaves(ticket);
    assert!(bed.order.stays_exclusive(5 * LINGER_NS));
    assert!(bed.order.stays_exclusive(6 * LINGER_NS - 1));
    assert!(!bed.order.stays_exclusive(6 * LINGER_NS) && !bed.order.is_exclusive());
}

#[test]
fn exclusive_commands_and_others_take_turns_at_their_blocks() {
    let mut bed = Bed::new();
    bed.join(1);
    let (write, arrival) = bed.comes(FIRST, 0..8);
    assert_eq!(arrival, Arrival::Go);
    let (pair, arrival) = bed.excludes(OTHER_HOST, 4..8);
    assert_eq!(arrival, Arrival::Wait);
    assert_eq!(bed.excludes(OTHER_HOST, 8..12).1, Arrival::Go, "elsewhere");
    let (late, arrival) = bed.comes(FIRST, 0..5);
    assert_eq!(arrival, Arrival::Wait, "no write passes a waiting pair");
    assert_eq!(bed.comes(FIRST, 0..4).1, Arrival::Go, "elsewhere");
    let (last, arrival) = bed.excludes(OTHER_HOST, 7..8);
    assert_eq!(arrival, Arrival::Wait);
    assert_eq!(bed.leaves(write), [2]);
    assert_eq!(bed.order.arrive(last, true), Arrival::Wait);
    assert_eq!(bed.order.arrive(pair, false), Arrival::Go);
    let mut woken = bed.leaves(pair);
    woken.sort_unstable();
    assert_eq!(woken, [4, 6]);
    assert_eq!(bed.order.arrive(late, false), Arrival::Go);
    assert_eq!(bed.order.arrive(last, false), Arrival::Go);
}

#[test]
fn a_command_without_its_data_excludes_nothing() {
    let mut bed = Bed::new();
    bed.join(1);
    let slow = bed.enter(FIRST, std::slice::from_ref(&(0..8)));
    let (pair, arrival) = bed.excludes(OTHER_HOST, 0..8);
    assert_eq!(arrival, Arrival::Go);
    assert_eq!(bed.order.arrive(slow, false), Arrival::Wait);
    assert_eq!(bed.leaves(pair), [1]);
    assert_eq!(bed.order.arrive(slow, false), Arrival::Go);
}

#[test]
fn a_change_found_at_the_disk_is_waited_for() {
    let mut bed = Bed::new();
    bed.works += 1;
    let waiter = Waiter {
        reactor: 0,
        work: 1,
    };
    let range = std::iter::once(0..8);
    let found = bed.order.enter(FIRST, waiter, Entrance::AtDisk, range);
    bed.join(1);
    let (pair, arrival) = bed.excludes(OTHER_HOST, 0..8);
    assert_eq!(arrival, Arrival::Wait);
    assert_eq!(bed.leaves(found), [2]);
    assert_eq!(bed.order.arrive(pair, false), Arrival::Go);
}

proptest::proptest! {
    #[test]
    fn random_commands_neither_meet_nor_wait_for_ever(
        steps in proptest::collection::vec((0_u8..4, 0_u64..6, 1_u64..4, 0_u8..5), 1..60),
    ) {
        let mut bed = Bed::new();
        bed.join(1);
        let senders = [FIRST, SECOND, OTHER_HOST];
        let (mut coming, mut waiting, mut running) = (Vec::new(), Vec::new(), Vec::new());
        for (kind, start, length, pick) in steps {
            let from = senders[usize::from(pick) % 3];
            let range = start..start + length;
            match kind {
                0 => coming.push(bed.enter(from, &[range])),
                1 | 2 => {
                    let (ticket, arrival) = match kind {
                        1 => bed.comes(from, range),
                        _ => bed.excludes(from, range),
                    };
                    match arrival {
                        Arrival::Go => running.push(ticket),
                        _ => waiting.push(ticket),
                    }
                }
                _ if running.is_empty() => {}
                _ => bed.order.leave(running.remove(usize::from(pick) % running.len()), |_| {}),
            }
            bed.check();
        }
        waiting.append(&mut coming);
        while !waiting.is_empty() {
            running.drain(..).for_each(|ticket| bed.order.leave(ticket, |_| {}));
            let before = waiting.len();
            waiting.retain(|&ticket| match bed.order.arrive(ticket, false) {
                Arrival::Wait => true,
                Arrival::Go => {
                    running.push(ticket);
                    false
                }
                Arrival::Overtaken => unreachable!("no change is late"),
            });
            bed.check();
            proptest::prop_assert!(waiting.len() < before, "all wait for each other");
        }
    }
}

#[test]
fn namespaces_of_one_disk_share_their_order() {
    let orders = Arc::<DiskOrders>::default();
    let place = DiskKey::File(1, 1);
    let (first, second) = (orders.of(place), orders.of(place));
    assert!(Arc::ptr_eq(&first, &second));
    let other = orders.of(DiskKey::File(1, 2));
    assert!(!Arc::ptr_eq(&first, &other));
    drop((first, second));
    assert_eq!(orders.disks().len(), 1, "the other one");
}
