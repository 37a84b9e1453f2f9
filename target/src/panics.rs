//! Panics: a broken invariant ends what it broke, and no more.
//!
//! [`confine`] runs what owns its state alone, and returns what it panicked with. Any other
//! panic ends the process ([`end_process_on_others`]): the state that it broke is shared, and
//! hosts would wait for answers that do not come. The service manager starts the process
//! again, hosts reconnect, and what was acknowledged as durable is on the disk.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{LockResult, Mutex, PoisonError};

/// A panic that was confined.
#[derive(Debug)]
pub(crate) struct Panic {
    /// What it says.
    pub(crate) message: String,
    /// The line of code.
    pub(crate) place: String,
    /// The calls that led there, if `RUST_BACKTRACE` asks for them.
    pub(crate) calls: Option<String>,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.message, self.place)
    }
}

/// The last panic that the hook saw and did not print, for those who find what it broke.
/// It is written whole.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// What the hook saw of a panic.
#[derive(Debug)]
struct Seen {
    place: Option<String>,
    calls: Option<String>,
}

thread_local! {
    /// Whether a panic of this thread is confined.
    static CONFINED: Cell<bool> = const { Cell::new(false) };
    /// The last panic of this thread that was confined.
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// Runs `job`. If it panics, what it owned is dropped, and what it borrowed is suspect.
pub(crate) fn confine<T>(job: impl FnOnce() -> T) -> Result<T, Panic> {
    let outer = CONFINED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(job));
    CONFINED.set(outer);
    result.map_err(|payload| {
        let seen = SEEN.take();
        let (place, calls) = seen.map_or((None, None), |seen| (seen.place, seen.calls));
        Panic {
            message: message_of(&*payload),
            // Another hook than ours has printed it.
            place: place.unwrap_or_else(|| "see standard error".to_owned()),
            calls,
        }
    })
}

/// Has every panic that is not confined end the process, and no other print anything: who
/// confines one reports it.
pub(crate) fn end_process_on_others() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !note(panic) {
            default(panic);
            std::process::abort();
        }
    }));
}

/// Whether a panic is confined, and the first one: a second one cannot be.
fn note(panic: &PanicHookInfo<'_>) -> bool {
    let calls = Backtrace::capture();
    let seen = Seen {
        place: panic.location().map(ToString::to_string),
        calls: (calls.status() == BacktraceStatus::Captured).then(|| calls.to_string()),
    };
    let is_confined = CONFINED.get() && SEEN.replace(Some(seen)).is_none();
    if is_confined {
        // Before anything is unwound, and with it a lock released.
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic.to_string());
    }
    is_confined
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

/// Ends the process, for this reason.
pub(crate) fn end_process(reason: &str) -> ! {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
    let last = last.as_deref().unwrap_or("none that was not printed");
    // Cause: a bug, once.
    tracing::error!(last_panic = last, "the process ends: {reason}");
    if !tracing::dispatcher::has_been_set() {
        eprintln!("the process ends: {reason}; last panic: {last}");
    }
    std::process::abort();
}

/// What a lock guards that threads share. If one of them panicked in the middle of a change,
/// nobody knows what it is now: then the process ends.
pub(crate) fn intact<T>(locked: LockResult<T>, what: &str) -> T {
    locked.unwrap_or_else(|_| {
        end_process(&format!(
            "a thread panicked as it changed {what}, which all threads share. This is a bug in \
             Cairn: please report it"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_panic_is_a_value() {
        assert_eq!(confine(|| 7).unwrap(), 7);
        let panic = confine(|| panic!("block {}", 7)).unwrap_err();
        assert_eq!(panic.message, "block 7");
        assert_eq!(confine(|| panic!("plain")).unwrap_err().message, "plain");
        let odd = confine(|| std::panic::panic_any(7)).unwrap_err();
        assert_eq!(odd.message, "a panic without a message");
    }

    #[test]
    fn only_the_innermost_panic_is_confined() {
        let outer = confine(|| {
            confine(|| panic!("inner")).unwrap_err();
            panic!("outer")
        });
        assert_eq!(outer.unwrap_err().message, "outer");
        assert!(!CONFINED.get());
    }
}
