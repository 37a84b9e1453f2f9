//! Policy for panics.
//!
//! [`confine`] runs a job that owns its state, and returns the job's panic as an error. Any other
//! panic ends the process ([`end_process_on_panic`]), because shared state may be inconsistent, and
//! hosts would wait forever.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LockResult, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

const PANICS_MAX: usize = 5;

const PANIC_WINDOW: Duration = Duration::from_secs(60);

/// Panic caught by [`confine`].
#[derive(Debug)]
pub struct Panic {
    /// Text passed to `panic!`, or a substitute.
    pub message: String,
    /// File, line and column of the panic.
    pub place: String,
    /// Backtrace, recorded if `RUST_BACKTRACE` is set.
    pub calls: Option<String>,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.message, self.place)
    }
}

/// Text of the last confined panic, which [`end_process`] logs.
static LAST: Mutex<Option<String>> = Mutex::new(None);

#[derive(Debug)]
struct Seen {
    place: Option<String>,
    calls: Option<String>,
}

thread_local! {
    static CONFINED: Cell<bool> = const { Cell::new(false) };
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// Runs `job` and returns its panic as an error.
///
/// Values owned by `job` are dropped; values it borrowed may be inconsistent.
pub fn confine<T>(job: impl FnOnce() -> T) -> Result<T, Panic> {
    let outer = CONFINED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(job));
    CONFINED.set(outer);
    result.map_err(|payload| {
        let seen = SEEN.take();
        let (place, calls) = seen.map_or((None, None), |seen| (seen.place, seen.calls));
        Panic {
            message: message_of(&*payload),
            // If another panic hook is installed, only that hook knows the location.
            place: place.unwrap_or_else(|| "see standard error".to_owned()),
            calls,
        }
    })
}

/// Kind of job whose panic does not end the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Connection request. After a panic, the peer is refused.
    Connect,
    /// Request of the metrics page. After a panic, the request fails with status 500, or its
    /// connection closes.
    Metrics,
    /// Flush of disks, or storing of a namespace's state. After a panic, the job fails.
    Flush,
    /// Open or size query of a disk. After a panic, the call fails.
    Open,
    /// Close of a disk. After a panic, the disk counts as closed.
    Close,
    /// Write or deallocation of blocks on a worker thread. After a panic, the command fails with
    /// EIO.
    Disk,
    /// Request at the control socket. After a panic, the request fails, or the client's connection
    /// closes.
    Control,
    /// Connection management of an RDMA device. After a panic, the device's connections end.
    Device,
    /// Thread that watches a Ceph image. After a panic, all commands of the image fail.
    Image,
    /// Report of suppressed log lines. After a panic, the report is omitted.
    Log,
}

impl Part {
    /// Parts with their metric name and the consequence of a panic.
    pub const ALL: [(Self, &'static str, &'static str); 10] = [
        (Self::Connect, "connect", "a connection request is refused"),
        (Self::Metrics, "metrics", "a request for metrics fails"),
        (Self::Flush, "flush", "a flush fails"),
        (
            Self::Open,
            "open",
            "a disk does not open or report its size",
        ),
        (Self::Close, "close", "a disk is closed early"),
        (Self::Disk, "disk", "a change of a disk fails"),
        (
            Self::Control,
            "control",
            "a request of the control socket fails",
        ),
        (
            Self::Device,
            "device",
            "the connections of an RDMA device end, and it starts again",
        ),
        (Self::Image, "image", "all commands of a Ceph image fail"),
        (
            Self::Log,
            "log",
            "a report of lines that were left out is lost",
        ),
    ];
}

static PROCESS: Panics = Panics::new(true);

/// Calls [`Panics::confine`] for a thread without a target, such as a provider's thread.
pub fn confine_part<T>(part: Part, job: impl FnOnce() -> T) -> Option<T> {
    PROCESS.confine(part, job)
}

/// Logs and counts a panic on a thread without a target.
pub fn survive_part(part: Part, panic: &Panic) {
    PROCESS.survive_part(part, panic);
}

/// Runs a future. Returns `None` if the future panics.
pub async fn confine_future<T>(part: Part, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Some(Box::pin(future));
    std::future::poll_fn(move |context| {
        let Some(pinned) = &mut future else {
            return Poll::Ready(None);
        };
        match confine_part(part, || pinned.as_mut().poll(context)) {
            Some(poll) => poll.map(Some),
            None => {
                let suspect = future.take();
                confine_part(part, || drop(suspect));
                Poll::Ready(None)
            }
        }
    })
    .await
}

/// Counters of confined panics of one target, or of all threads without a target.
#[derive(Debug)]
pub struct Panics {
    confines: bool,
    recent: Mutex<VecDeque<Instant>>,
    by_part: [AtomicU64; Part::ALL.len()],
}

impl Panics {
    /// Creates counters at zero.
    ///
    /// If `confines` is false, panics reach the caller, so that a simulation fails.
    #[must_use]
    pub const fn new(confines: bool) -> Self {
        Self {
            confines,
            recent: Mutex::new(VecDeque::new()),
            by_part: [const { AtomicU64::new(0) }; Part::ALL.len()],
        }
    }

    /// Runs a job. Returns `None` after a panic, which is logged and counted.
    pub fn confine<T>(&self, part: Part, job: impl FnOnce() -> T) -> Option<T> {
        if !self.confines {
            return Some(job());
        }
        match confine(job) {
            Ok(done) => Some(done),
            Err(panic) => {
                self.survive_part(part, &panic);
                None
            }
        }
    }

    /// Logs a panic and counts it for `part`, then calls [`Self::survive`].
    pub fn survive_part(&self, part: Part, panic: &Panic) {
        self.by_part[part as usize].fetch_add(1, Ordering::Relaxed);
        let (_, part, cost) = Part::ALL[part as usize];
        let (message, place, calls) = (&panic.message, &panic.place, &panic.calls);
        // Logged after a bug, at most a few times a minute (`PANICS_MAX`).
        tracing::error!(
            part,
            panic = message,
            place,
            calls,
            version = env!("CARGO_PKG_VERSION"),
            "a job panicked: {cost}; everything else continues. {REPORT}"
        );
        self.survive(panic);
    }

    /// Counts a panic. Ends the process after more than five panics in a minute.
    pub fn survive(&self, panic: &Panic) {
        if let Some(count) = self.count(Instant::now()) {
            end_process(&format!(
                "{count} panics in {} s, the last one {panic}, and {PANICS_MAX} are the most: \
                 what causes them does not go away. {REPORT}",
                PANIC_WINDOW.as_secs()
            ));
        }
    }

    fn count(&self, now: Instant) -> Option<usize> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back(now);
        recent.retain(|at| now.duration_since(*at) < PANIC_WINDOW);
        (recent.len() > PANICS_MAX).then_some(recent.len())
    }

    /// Returns a part's panics since the process started, including panics on threads without a
    /// target.
    #[must_use]
    pub fn of_part(&self, part: Part) -> u64 {
        let own = self.by_part[part as usize].load(Ordering::Relaxed);
        own + PROCESS.by_part[part as usize].load(Ordering::Relaxed)
    }
}

/// Advice at the end of log lines about bugs.
pub const REPORT: &str = "This is a bug in Cairn: please report it with this line, \
    those before it, and what --version prints; RUST_BACKTRACE=1 adds the calls that led there";

/// Installs a panic hook that ends the process after each panic outside [`confine`]. Only for
/// programs, not for libraries.
pub fn end_process_on_panic() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !note(panic) {
            default(panic);
            std::process::abort();
        }
    }));
}

/// Records a panic. Returns true if [`confine`] will catch it. A panic during another panic is not
/// caught.
fn note(panic: &PanicHookInfo<'_>) -> bool {
    let calls = Backtrace::capture();
    let seen = Seen {
        place: panic.location().map(ToString::to_string),
        calls: (calls.status() == BacktraceStatus::Captured).then(|| calls.to_string()),
    };
    let is_confined = CONFINED.get() && SEEN.replace(Some(seen)).is_none();
    if is_confined {
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic.to_string());
    }
    is_confined
}

/// Returns the message of a caught panic.
#[must_use]
pub fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

/// Logs `reason` and the last confined panic, then aborts the process.
pub fn end_process(reason: &str) -> ! {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner).take();
    let last = last.as_deref().unwrap_or("none that was not printed");
    // Logged once, after a bug.
    tracing::error!(last_panic = last, "the process ends: {reason}");
    if !tracing::dispatcher::has_been_set() {
        eprintln!("the process ends: {reason}; last panic: {last}");
    }
    std::process::abort();
}

/// Returns a lock's guard. Ends the process if the lock is poisoned, because the panic may have
/// left the shared state inconsistent.
pub fn intact<T>(locked: LockResult<T>, what: &str) -> T {
    locked.unwrap_or_else(|_| {
        end_process(&format!(
            "a thread panicked as it changed {what}, which all threads share. {REPORT}"
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

    #[test]
    fn few_panics_are_survived_and_many_are_not() {
        let (panics, begun) = (Panics::new(true), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        for second in 0..PANICS_MAX as u64 {
            assert_eq!(panics.count(at(second)), None);
        }
        let later = PANIC_WINDOW.as_secs();
        assert_eq!(panics.count(at(later)), None, "the first is long ago");
        assert_eq!(panics.count(at(later)), Some(PANICS_MAX + 1));
    }

    #[test]
    fn a_job_that_panics_is_counted() {
        let panics = Panics::new(true);
        assert_eq!(panics.confine(Part::Flush, || 7), Some(7));
        let none: Option<()> = panics.confine(Part::Flush, || panic!("a flush"));
        assert_eq!(none, None);
        let counts = Part::ALL.map(|(part, ..)| panics.of_part(part));
        assert_eq!(counts, [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    fn half_changed() -> Mutex<u32> {
        let shared = Mutex::new(1);
        let panic = confine(|| {
            let _change = shared.lock();
            panic!("in the middle of a change")
        });
        let Err::<(), _>(panic) = panic else {
            unreachable!("it panics")
        };
        assert_eq!(panic.message, "in the middle of a change");
        shared
    }

    #[test]
    #[ignore = "ends its process: shared_state_that_is_suspect_ends_the_process runs it"]
    fn child_of_shared_state() {
        end_process_on_panic();
        let shared = half_changed();
        drop(intact(shared.lock(), "the number"));
        println!("it went on");
    }

    #[test]
    fn shared_state_that_is_suspect_ends_the_process() {
        use std::os::unix::process::ExitStatusExt;
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture"])
            .arg("panics::tests::child_of_shared_state")
            .output()
            .unwrap();
        let (out, errors) = (child.stdout, String::from_utf8_lossy(&child.stderr));
        assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{errors}");
        assert!(!String::from_utf8_lossy(&out).contains("it went on"));
        for part in ["the number", "in the middle of a change", "panics.rs:"] {
            assert!(errors.contains(part), "{errors}");
        }
    }
}
