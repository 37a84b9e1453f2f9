use super::*;

#[derive(Default)]
struct Story(History);

const WRITE: fn(Value) -> Kind = |first| Kind::Write {
    first,
    durable: false,
};
const DURABLE: fn(Value) -> Kind = |first| Kind::Write {
    first,
    durable: true,
};

impl Story {
    fn begin(&mut self, kind: Kind) -> Id {
        self.0.begin("a host", kind, 0..1)
    }

    fn done(&mut self, id: Id) {
        self.0.end(id, End::Done);
    }

    fn failed(&mut self, id: Id) {
        self.0.end(id, End::Failed);
    }

    fn write(&mut self, value: Value) {
        let id = self.begin(WRITE(value));
        self.done(id);
    }

    fn flush(&mut self) {
        let id = self.begin(Kind::Flush);
        self.done(id);
    }

    fn read(&mut self, value: Value) {
        let id = self.begin(Kind::Read);
        self.0.end(id, End::Read(vec![value]));
    }

    fn is_good(&self) -> bool {
        self.0.check(1).is_ok()
    }

    fn may_read(&mut self, value: Value) -> bool {
        let (operations, events) = (self.0.operations.len(), self.0.events.len());
        self.read(value);
        let good = self.is_good();
        self.0.operations.truncate(operations);
        self.0.events.truncate(events);
        good
    }

    fn readable<const N: usize>(&mut self, values: [Value; N]) -> [bool; N] {
        values.map(|value| self.may_read(value))
    }
}

#[test]
fn a_read_returns_what_was_written_last() {
    let mut story = Story::default();
    assert_eq!(story.readable([0, 1, GARBAGE]), [true, false, false]);
    story.write(1);
    assert_eq!(story.readable([0, 1]), [false, true]);
    story.write(2);
    assert_eq!(story.readable([0, 1, 2]), [false, false, true]);
    let zeroes = story.begin(Kind::WriteZeroes { durable: false });
    story.done(zeroes);
    assert_eq!(story.readable([0, 1, 2]), [true, false, false]);
}

#[test]
fn writes_at_one_time_may_take_effect_in_any_order() {
    let mut story = Story::default();
    let (one, other) = (story.begin(WRITE(1)), story.begin(WRITE(2)));
    assert_eq!(story.readable([0, 1, 2]), [true, true, true]);
    story.done(other);
    assert_eq!(story.readable([0, 1, 2]), [false, true, true]);
    story.done(one);
    assert_eq!(story.readable([0, 1, 2]), [false, true, true]);
    story.read(1);
    assert_eq!(story.readable([0, 1, 2]), [false, true, false]);
}

#[test]
fn what_was_seen_stays() {
    let mut story = Story::default();
    let write = story.begin(WRITE(1));
    story.read(1);
    assert_eq!(story.readable([0, 1]), [false, true]);
    story.done(write);
    assert!(story.is_good());
}

#[test]
fn a_read_sees_any_moment_of_its_time() {
    for (value, good) in [(0, true), (1, true), (2, true), (3, false)] {
        let mut story = Story::default();
        let read = story.begin(Kind::Read);
        story.write(1);
        story.write(2);
        story.0.end(read, End::Read(vec![value]));
        story.write(3);
        assert_eq!(story.is_good(), good, "{value}");
    }
}

#[test]
fn a_write_that_failed_took_effect_before_its_end_or_never() {
    let mut story = Story::default();
    let write = story.begin(WRITE(1));
    story.failed(write);
    assert_eq!(story.readable([0, 1, 2]), [true, true, false]);
    story.write(2);
    assert_eq!(story.readable([0, 1, 2]), [false, false, true]);
    let write = story.begin(WRITE(3));
    story.failed(write);
    story.read(2);
    assert!(!story.may_read(3), "it was not there before");
}

#[test]
fn a_lost_write_may_land_until_its_association_is_dead() {
    let mut story = Story::default();
    let lost = story.begin(WRITE(1));
    story.write(2);
    assert_eq!(story.readable([1, 2]), [true, true]);
    story.read(2);
    assert_eq!(story.readable([1, 2]), [true, true]);
    story.0.dead(lost);
    assert_eq!(story.readable([1, 2]), [true, true]);
    story.write(3);
    assert_eq!(story.readable([1, 2, 3]), [false, false, true]);
}

#[test]
fn a_crash_keeps_what_was_flushed() {
    let mut story = Story::default();
    story.write(1);
    story.flush();
    story.write(2);
    story.write(3);
    story.0.crash();
    assert_eq!(story.readable([0, 1, 2, 3]), [false, true, true, true]);
    story.read(2);
    assert_eq!(story.readable([1, 2, 3]), [false, true, false]);
    story.0.crash();
    assert_eq!(story.readable([1, 2, 3]), [false, true, false]);
}

#[test]
fn a_durable_write_is_durable_with_its_end() {
    let mut story = Story::default();
    story.write(1);
    let durable = story.begin(DURABLE(2));
    story.done(durable);
    story.0.crash();
    assert_eq!(story.readable([0, 1, 2]), [false, false, true]);

    let mut story = Story::default();
    let durable = story.begin(DURABLE(2));
    story.failed(durable);
    story.0.crash();
    assert_eq!(story.readable([0, 2]), [true, true]);
}

#[test]
fn a_flush_covers_what_ended_before_it_began() {
    let mut story = Story::default();
    story.write(1);
    let flush = story.begin(Kind::Flush);
    story.write(2);
    story.done(flush);
    story.0.crash();
    assert_eq!(story.readable([0, 1, 2]), [false, true, true]);

    for failed in [true, false] {
        let mut story = Story::default();
        story.write(1);
        let flush = story.begin(Kind::Flush);
        if failed {
            story.failed(flush);
        }
        story.0.crash();
        assert_eq!(story.readable([0, 1]), [true, true]);
    }
}

#[test]
fn flushes_and_durable_writes_at_one_time() {
    let mut story = Story::default();
    story.write(1);
    let flush = story.begin(Kind::Flush);
    let durable = story.begin(DURABLE(2));
    story.done(durable);
    story.write(3);
    story.done(flush);
    story.0.crash();
    assert_eq!(
        story.readable([0, 1, 2, 3]),
        [false, false, true, true],
        "the older mark undoes nothing of the newer"
    );
}

#[test]
fn zeroes_of_the_beginning_are_not_those_written_later() {
    let mut story = Story::default();
    let flush = story.begin(Kind::Flush);
    let durable = story.begin(DURABLE(2));
    let zeroes = story.begin(Kind::WriteZeroes { durable: false });
    story.done(durable);
    story.done(zeroes);
    story.done(flush);
    story.read(0);
    story.0.crash();
    assert_eq!(
        story.readable([0, 2]),
        [true, true],
        "the flush began before the zeroes were written"
    );
}

#[test]
fn what_is_under_way_at_a_crash_is_there_or_not_and_never_later() {
    let mut story = Story::default();
    let lost = story.begin(WRITE(1));
    story.0.crash();
    assert_eq!(story.readable([0, 1]), [true, true]);
    story.read(0);
    assert!(!story.may_read(1));
    story.0.dead(lost);
    assert!(!story.may_read(1));
}

#[test]
fn blocks_are_by_themselves_and_a_violation_names_its_own() {
    let mut history = History::default();
    let write = history.begin("a host", WRITE(10), 1..4);
    history.end(write, End::Done);
    let read = history.begin("another", Kind::Read, 0..4);
    history.end(read, End::Read(vec![0, 10, 11, 12]));
    assert_eq!(history.check(5), Ok(()));
    assert_eq!(history.operation(write), (WRITE(10), 1..4));
    let read = history.begin("another", Kind::Read, 2..4);
    history.end(read, End::Read(vec![11, GARBAGE]));
    let violation = history.check(5).unwrap_err();
    assert_eq!(violation.block, 3);
    let text = violation.to_string();
    assert!(text.contains("write of 0xc"), "{text}");
    assert!(text.contains("another"), "{text}");
}

#[test]
fn many_at_a_time_are_followed_in_time() {
    let mut story = Story::default();
    let writes: Vec<Id> = (1..8).map(|value| story.begin(WRITE(value))).collect();
    story.read(5);
    story.read(3);
    assert!(!story.may_read(5));
    writes.into_iter().for_each(|write| story.done(write));
    assert!(story.may_read(7));
}
