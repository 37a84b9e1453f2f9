use std::fs::File;
use std::os::unix::fs::FileExt;

use super::*;

const BLOCK: u32 = 4096;

struct Rig {
    ring: Ring,
    clock: Clock,
    file: File,
    slot: FileSlot,
    sevens: Span,
    _buffer: Arc<Mapping>,
}

impl Rig {
    fn new() -> Self {
        let clock = Clock::simulated();
        let mut ring = Ring::new(64).unwrap();
        ring.set_clock(clock.clone(), clock.now());
        let buffer = Arc::new(Mapping::anonymous(BLOCK as usize).unwrap());
        buffer.write(0, &[7; BLOCK as usize]);
        let sevens = Span {
            buffer: ring.add_buffer(&buffer).unwrap(),
            addr: buffer.addr(),
            length: BLOCK,
        };
        let file = tempfile::tempfile().unwrap();
        file.set_len(u64::from(8 * BLOCK)).unwrap();
        let slot = ring
            .add_file(Arc::new(file.try_clone().unwrap()), Handover::default())
            .unwrap();
        Self {
            ring,
            clock,
            file,
            slot,
            sevens,
            _buffer: buffer,
        }
    }

    fn write(&mut self, block: u64, until_ms: u64) {
        self.ring.set_lease(until_ms * 1_000_000);
        let offset = block * u64::from(BLOCK);
        let (slot, sevens) = (self.slot, self.sevens);
        self.ring.write(block, slot, offset, sevens, false, false);
    }

    fn open(&self) -> Open {
        Arc::new(self.file.try_clone().unwrap())
    }

    fn pass(&mut self, time: Duration) {
        self.clock.advance_to(self.clock.now() + time);
    }

    fn ended(&mut self) -> Vec<(u64, Result<u32, i32>)> {
        self.ring.settle().unwrap();
        let ended = std::iter::from_fn(|| self.ring.pop());
        ended
            .map(|finished| match finished {
                Finished::Operation { tag, result } => (tag, result),
                Finished::Readable { token } => panic!("{token} was not asked for"),
            })
            .collect()
    }

    fn written(&self) -> Vec<u64> {
        use std::os::unix::fs::FileExt;
        let is_written = |block: &u64| {
            let mut byte = [0];
            let offset = block * u64::from(BLOCK);
            self.file.read_exact_at(&mut byte, offset).unwrap();
            byte == [7]
        };
        (0..8).filter(is_written).collect()
    }
}

#[test]
fn a_change_whose_lease_ends_before_the_ring_is_entered_is_not_made() {
    let mut rig = Rig::new();
    rig.write(0, 100);
    rig.write(1, 200);
    rig.write(2, u64::MAX / 1_000_000);
    rig.ring.set_lease(100_000_000);
    let (slot, sevens) = (rig.slot, rig.sevens);
    rig.ring.read(3, slot, 0, sevens.part(512, 512));
    let file = (slot, rig.open());
    rig.ring
        .fallocate(4, file, 0, 512, libc::FALLOC_FL_KEEP_SIZE);
    rig.pass(Duration::from_millis(150));
    rig.ring.submit().unwrap();
    let (late, full) = (Err(libc::ECANCELED), Ok(BLOCK));
    let expected = [(0, late), (1, full), (2, full), (3, Ok(512)), (4, late)];
    assert_eq!(rig.ended(), expected);
    assert_eq!(rig.written(), [1, 2]);
    assert_eq!(rig.ring.in_flight(), 0);
}

#[test]
fn what_the_kernel_did_not_get_soon_after_the_look_is_looked_at_again() {
    let mut rig = Rig::new();
    rig.write(0, 100);
    rig.write(1, 200);
    rig.ring.release_changes();
    rig.ring.outgoing.forget_look();
    rig.pass(Duration::from_millis(150));
    rig.ring.enter().unwrap();
    let mut ended = rig.ended();
    ended.sort_unstable();
    assert_eq!(ended, [(0, Err(libc::ECANCELED)), (1, Ok(BLOCK))]);
    assert_eq!(rig.ring.in_flight(), 0);
    let mut blocks = [0; 2 * BLOCK as usize];
    rig.file.read_exact_at(&mut blocks, 0).unwrap();
    let (first, second) = blocks.split_at(BLOCK as usize);
    assert!(
        first.iter().all(|&byte| byte == 0),
        "a stale write was made"
    );
    assert!(second.iter().all(|&byte| byte == 7));
}

#[test]
fn a_lease_that_holds_costs_a_change_nothing() {
    let mut rig = Rig::new();
    rig.pass(Duration::from_millis(99));
    for block in 0..8 {
        rig.write(block, 100);
    }
    rig.pass(Duration::from_secs(10));
    let all: Vec<u64> = (0..8).collect();
    assert_eq!(rig.ended().len(), all.len());
    assert_eq!(rig.written(), all, "the kernel had them in time");
}

#[test]
fn who_waits_gets_what_was_refused() {
    let mut rig = Rig::new();
    rig.write(0, 100);
    rig.pass(Duration::from_millis(100));
    rig.ring.wait(None).unwrap();
    assert!(rig.ring.has_ended());
    assert_eq!(rig.ended(), [(0, Err(libc::ECANCELED))]);
}

#[test]
fn a_change_that_is_cancelled_on_its_way_ends_once() {
    let mut rig = Rig::new();
    rig.write(0, 100);
    rig.write(1, 100);
    rig.ring.cancel(0);
    let ended = rig.ended();
    assert_eq!(ended, [(0, Err(libc::ECANCELED)), (1, Ok(BLOCK))]);
    assert_eq!(rig.written(), [1]);
}

#[test]
fn what_was_not_submitted_reaches_no_file_that_was_removed() {
    const FOR_EVER: u64 = u64::MAX / 1_000_000;
    let mut rig = Rig::new();
    rig.write(0, FOR_EVER);
    rig.ring.submit().unwrap();
    rig.write(1, FOR_EVER);
    let (slot, sevens) = (rig.slot, rig.sevens);
    rig.ring.read(2, slot, 0, sevens.part(512, 512));
    rig.ring.remove_all_files().unwrap();
    let gone = Err(libc::EBADF);
    assert_eq!(rig.ended(), [(0, Ok(BLOCK)), (1, gone), (2, gone)]);
    assert_eq!(rig.written(), [0]);
    assert_eq!(rig.ring.in_flight(), 0);
}

#[test]
fn after_a_gap_changes_wait_until_the_reactor_knows_who_has_left() {
    const FOR_EVER: u64 = u64::MAX / 1_000_000;
    let gap_ns = ROUND_GAP.as_nanos() as u64;
    let mut rig = Rig::new();
    rig.ring.begin_round(0);
    rig.write(0, FOR_EVER);
    rig.write(1, FOR_EVER);
    rig.write(2, 200);
    let (slot, sevens) = (rig.slot, rig.sevens);
    rig.ring.read(3, slot, 0, sevens.part(512, 512));
    rig.pass(ROUND_GAP);
    assert_eq!(rig.ended(), [(3, Ok(512))]);
    assert!(rig.ring.keeps_changes());
    assert_eq!(rig.ended(), []);
    assert_eq!((rig.written(), rig.ring.in_flight()), (vec![], 3));
    rig.ring.take_back(1);
    rig.pass(Duration::from_millis(150));
    rig.ring.begin_round(gap_ns + 150_000_000);
    let late = Err(libc::ECANCELED);
    assert_eq!(rig.ended(), [(0, Ok(BLOCK)), (1, late), (2, late)]);
    assert_eq!((rig.written(), rig.ring.in_flight()), (vec![0], 0));
    assert!(!rig.ring.keeps_changes());
}

#[test]
fn those_that_the_kernel_did_not_get_before_a_gap_are_taken_back() {
    let mut rig = Rig::new();
    rig.ring.begin_round(0);
    rig.write(0, 1000);
    rig.ring.release_changes();
    rig.ring.outgoing.forget_look();
    rig.pass(ROUND_GAP);
    assert_eq!(rig.ended(), [(0, Err(libc::ECANCELED))]);
    assert_eq!((rig.written(), rig.ring.in_flight()), (vec![], 0));
}

fn next(rig: &mut Rig) -> Finished {
    for _ in 0..30 {
        if let Some(ended) = rig.ring.pop() {
            return ended;
        }
        rig.ring.wait(Some(Duration::from_secs(1))).unwrap();
    }
    panic!("nothing has ended");
}

#[test]
fn a_worker_begins_nothing_whose_lease_is_over() {
    let mut rig = Rig::new();
    let run = |rig: &mut Rig, until_ms: u64| {
        rig.ring.set_lease(until_ms * 1_000_000);
        let file = rig.open();
        rig.ring.run_apart(1, file, Box::new(|| Ok(7)));
        next(rig)
    };
    let ended = |result| Finished::Operation { tag: 1, result };
    rig.pass(Duration::from_millis(10));
    assert_eq!(run(&mut rig, 10), ended(Err(libc::ECANCELED)));
    assert_eq!(run(&mut rig, 11), ended(Ok(7)));
}

fn hang(rig: &mut Rig, file: &Open) -> Vec<std::sync::mpsc::Sender<()>> {
    let hanging = (0..apart::WITH_WORKERS_MAX as u64).map(|tag| {
        let (let_go, held) = std::sync::mpsc::channel();
        let hang = move || held.recv().map(|()| 7).map_err(|_| libc::EIO);
        let file = Arc::clone(file);
        rig.ring.run_apart(100 + tag, file, Box::new(hang));
        let_go
    });
    let hanging = hanging.collect();
    rig.ring.submit().unwrap();
    hanging
}

#[test]
fn what_waits_for_a_worker_is_not_made_when_its_lease_has_ended() {
    let mut rig = Rig::new();
    let file = rig.open();
    let hanging = hang(&mut rig, &file);
    let (slot, sevens) = (rig.slot, rig.sevens);
    for (block, until_ms) in [(0, 20), (1, 40)] {
        rig.ring.set_lease(until_ms * 1_000_000);
        let offset = block * u64::from(BLOCK);
        let file = (slot, Arc::clone(&file));
        rig.ring
            .write_apart(block, file, offset, sevens, false, false);
    }
    rig.ring.submit().unwrap();
    assert_eq!(rig.ring.in_flight(), hanging.len() as u32 + 2);
    rig.pass(Duration::from_millis(30));
    hanging.into_iter().for_each(|it| it.send(()).unwrap());
    let mut ended = std::collections::BTreeMap::new();
    while rig.ring.in_flight() > 0 {
        ended.extend(rig.ended());
    }
    ended.extend(rig.ended());
    assert_eq!(ended[&0], Err(libc::ECANCELED));
    assert_eq!(ended[&1], Ok(BLOCK));
    assert_eq!(rig.written(), [1]);
    assert_eq!(rig.ring.in_flight(), 0);
}

#[test]
fn what_a_worker_got_before_a_gap_comes_back() {
    let mut rig = Rig::new();
    let file = rig.open();
    rig.ring.begin_round(0);
    rig.pass(ROUND_GAP);
    let begun = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = Arc::clone(&begun);
    let call = move || Ok(count.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    rig.ring.set_lease(u64::MAX);
    rig.ring.run_apart(1, Arc::clone(&file), Box::new(call));
    rig.ring.submit().unwrap();
    while rig.ring.begun_apart() > 0 {
        rig.ring.wait(Some(Duration::from_secs(1))).unwrap();
        assert_eq!(rig.ring.pop(), None);
    }
    rig.ring.submit().unwrap();
    assert_eq!(rig.ring.begun_apart(), 0);
    assert_eq!(begun.load(std::sync::atomic::Ordering::Relaxed), 0);
    rig.ring.begin_round(ROUND_GAP.as_nanos() as u64);
    let result = Ok(0);
    assert_eq!(next(&mut rig), Finished::Operation { tag: 1, result });
}

#[test]
fn what_comes_back_of_a_queue_that_has_ended_is_not_made() {
    let mut rig = Rig::new();
    let file = (rig.slot, rig.open());
    rig.ring.begin_round(0);
    rig.pass(ROUND_GAP);
    rig.ring.set_lease(u64::MAX);
    let sevens = rig.sevens;
    rig.ring.write_apart(1, file, 0, sevens, false, false);
    rig.ring.submit().unwrap();
    let now_ns = ROUND_GAP.as_nanos() as u64;
    rig.ring.take_back(1);
    rig.ring.begin_round(now_ns);
    assert_eq!(next(&mut rig), cancelled(1));
    assert_eq!((rig.written(), rig.ring.in_flight()), (vec![], 0));
}

#[test]
fn what_comes_back_is_not_handed_over_again_while_it_settles() {
    let mut rig = Rig::new();
    let file = rig.open();
    rig.ring.begin_round(0);
    rig.pass(ROUND_GAP);
    rig.ring.set_lease(u64::MAX);
    let tags = 0..apart::WITH_WORKERS_MAX as u64;
    for tag in tags.clone() {
        rig.ring
            .run_apart(tag, Arc::clone(&file), Box::new(|| Ok(0)));
    }
    rig.ring.settle().unwrap();
    assert_eq!(rig.ring.pop(), None);
    rig.ring.begin_round(ROUND_GAP.as_nanos() as u64);
    rig.ring.settle().unwrap();
    let result = Ok(0);
    for tag in tags {
        assert_eq!(rig.ring.pop(), Some(Finished::Operation { tag, result }));
    }
}

#[test]
fn what_waits_for_a_worker_can_be_cancelled() {
    let mut rig = Rig::new();
    let file = rig.open();
    let hanging = hang(&mut rig, &file);
    rig.ring.run_apart(1, file, Box::new(|| Ok(7)));
    rig.ring.cancel(1);
    assert_eq!(next(&mut rig), cancelled(1));
    drop(hanging);
    assert_eq!(rig.ended().len(), apart::WITH_WORKERS_MAX);
}

#[test]
fn what_a_worker_has_counts_as_in_flight() {
    let mut rig = Rig::new();
    let (begins, has_begun) = std::sync::mpsc::channel();
    let (let_go, held) = std::sync::mpsc::channel();
    let hang = move || {
        let _ = begins.send(());
        held.recv().map_err(|_| libc::EIO)
    };
    let file = rig.open();
    rig.ring.run_apart(1, file, Box::new(hang));
    rig.ring.submit().unwrap();
    has_begun.recv().unwrap();
    assert_eq!(rig.ring.in_flight(), 1);
    rig.ring.remove_all_files().unwrap();
    assert_eq!(rig.ring.in_flight(), 1);
    let_go.send(7).unwrap();
    let result = Ok(7);
    assert_eq!(next(&mut rig), Finished::Operation { tag: 1, result });
    assert_eq!(rig.ring.in_flight(), 0);
}

#[test]
fn what_ends_after_it_was_settled_waits_for_the_next_time() {
    let mut rig = Rig::new();
    assert_eq!(rig.ended(), []);
    let (slot, sevens) = (rig.slot, rig.sevens);
    rig.ring.read(0, slot, 0, sevens);
    rig.ring.wait(None).unwrap();
    assert_eq!(rig.ring.pop(), None, "the read has ended by now");
    assert_eq!(rig.ended(), [(0, Ok(BLOCK))]);
}

#[test]
fn a_ring_that_ends_with_an_operation_in_flight_does_not_close_its_file() {
    let close = |waits: bool| {
        let mut rig = Rig::new();
        let (reader, _writer) = io::pipe().unwrap();
        let pipe: Open = Arc::new(reader);
        let slot = rig.ring.add_file(Arc::clone(&pipe), Handover::default());
        if waits {
            rig.ring.read(1, slot.unwrap(), 0, rig.sevens);
        }
        rig.ring.submit().unwrap();
        drop(rig);
        Arc::strong_count(&pipe)
    };
    assert_eq!((close(false), close(true)), (1, 2));
}

#[test]
fn a_change_that_the_kernel_left_is_not_made_for_a_closed_queue() {
    let mut rig = Rig::new();
    rig.ring.begin_round(0);
    for block in 0..3 {
        rig.write(block, 1000);
    }
    rig.ring.release_changes();
    rig.ring.take_back(1);
    let full = Ok(BLOCK);
    let expected = [(0, full), (1, Err(libc::ECANCELED)), (2, full)];
    assert_eq!(rig.ended(), expected);
    assert_eq!((rig.written(), rig.ring.in_flight()), (vec![0, 2], 0));
}

#[test]
fn changes_beyond_the_room_of_the_queue_wait_for_a_look_of_their_own() {
    let mut rig = Rig::new();
    rig.ring.begin_round(0);
    rig.pass(ROUND_GAP);
    let count = 2 * rig.ring.uring.submission().capacity() as u64 + 1;
    (0..count).for_each(|block| rig.write(block, 1000));
    let begin = |rig: &mut Rig, at: Duration| rig.ring.begin_round(at.as_nanos() as u64);
    begin(&mut rig, ROUND_GAP);
    rig.ring.release_changes();
    rig.ring.outgoing.forget_look();
    rig.pass(Duration::from_secs(1));
    begin(&mut rig, ROUND_GAP + Duration::from_secs(1));
    let ended = rig.ended();
    assert_eq!(ended.len() as u64, count);
    let late = |&(_, result): &(u64, _)| result == Err(libc::ECANCELED);
    assert!(ended.iter().all(late), "a stale write was made");
    assert_eq!((rig.written(), rig.ring.in_flight()), (vec![], 0));
}

#[test]
fn changes_beyond_the_room_of_the_queue_are_made() {
    let mut rig = Rig::new();
    rig.ring.begin_round(0);
    rig.pass(ROUND_GAP);
    let count = 2 * rig.ring.uring.submission().capacity() as u64 + 1;
    (0..count).for_each(|block| rig.write(block, 1000));
    rig.ring.begin_round(ROUND_GAP.as_nanos() as u64);
    let mut ended = 0;
    while ended < count {
        rig.ring.wait(Some(Duration::from_secs(1))).unwrap();
        while let Some(finished) = rig.ring.pop() {
            let Finished::Operation { result, .. } = finished else {
                panic!("{finished:?}");
            };
            assert_eq!(result, Ok(BLOCK));
            ended += 1;
        }
    }
    assert_eq!(rig.ring.in_flight(), 0);
}

#[test]
fn the_look_at_a_new_change_does_not_cover_an_expired_one_in_the_queue() {
    let mut rig = Rig::new();
    rig.write(0, 100);
    rig.ring.release_changes();
    rig.pass(Duration::from_millis(150));
    rig.write(1, 1000);
    rig.ring.submit().unwrap();
    let expected = [(0, Err(libc::ECANCELED)), (1, Ok(BLOCK))];
    assert_eq!(rig.ended(), expected);
    assert_eq!(rig.written(), [1]);
}
