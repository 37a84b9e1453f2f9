//! Worker threads for jobs that io_uring cannot execute. A completion wakes the ring.
//!
//! Each job gets an idle or a new worker, so a hanging worker delays no other job.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cairn_base::panics::{Part, confine_part};
use cairn_base::wake::Wake;

const IDLE: Duration = Duration::from_secs(5);

/// Errno of a job that panicked, which may have changed the disk. No system call of a job returns
/// this errno.
pub(crate) const FATE_UNKNOWN: i32 = libc::ENOTRECOVERABLE;

pub(crate) type Ended = Result<u32, i32>;

#[derive(Debug)]
pub(crate) enum Outcome<J> {
    Ended(Ended),
    Begun,
    /// Unstarted job. The ring decides again whether to start it.
    Undone(J),
}

pub(crate) trait Job: Send + Sized + 'static {
    fn run(self) -> Outcome<Self>;

    fn lose_cancellation(&self);
}

#[derive(Debug)]
pub(crate) struct Workers<J>(Arc<Shared<J>>);

#[derive(Debug)]
struct Shared<J> {
    state: Mutex<JobQueue<J>>,
    called: Condvar,
    wake: Wake,
    stepped: bool,
}

struct JobQueue<J> {
    jobs: VecDeque<(u64, J)>,
    unreported: VecDeque<(u64, Outcome<J>)>,
    ended: VecDeque<(u64, Outcome<J>)>,
    idle: usize,
    out: u32,
    closed: bool,
}

impl<J> std::fmt::Debug for JobQueue<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} jobs, {} ended", self.jobs.len(), self.ended.len())
    }
}

impl<J: Job> Workers<J> {
    /// Returns `None` if no eventfd can be created. If `stepped`, no threads are started, and
    /// [`Self::step`] executes the jobs.
    pub(crate) fn new(stepped: bool) -> Option<Self> {
        let wake = Wake::new().ok()?;
        Some(Self(Arc::new(Shared {
            state: Mutex::new(JobQueue {
                jobs: VecDeque::new(),
                unreported: VecDeque::new(),
                ended: VecDeque::new(),
                idle: 0,
                out: 0,
                closed: false,
            }),
            called: Condvar::new(),
            wake,
            stepped,
        })))
    }

    /// The job completes with `EAGAIN` if no thread can be started.
    pub(crate) fn begin(&self, tag: u64, job: J) {
        let mut state = self.0.state();
        state.jobs.push_back((tag, job));
        state.out += 1;
        if self.0.stepped {
            return;
        }
        if state.jobs.len() <= state.idle {
            self.0.called.notify_one();
            return;
        }
        drop(state);
        let shared = Arc::clone(&self.0);
        let worker = std::thread::Builder::new().name("worker".into());
        if worker.spawn(move || shared.work()).is_err() {
            let mut state = self.0.state();
            if let Some(at) = state.jobs.iter().position(|(other, _)| *other == tag) {
                state.jobs.remove(at);
                self.0
                    .end(&mut state, tag, Outcome::Ended(Err(libc::EAGAIN)));
            }
        }
    }

    pub(crate) fn step(&self, loses: bool) -> bool {
        let mut state = self.0.state();
        let jobs = std::mem::take(&mut state.jobs);
        let unreported = std::mem::take(&mut state.unreported);
        let moved = !jobs.is_empty() || !unreported.is_empty();
        for (tag, outcome) in unreported {
            if let Outcome::Undone(job) = &outcome
                && loses
            {
                job.lose_cancellation();
            }
            self.0.end(&mut state, tag, outcome);
        }
        drop(state);
        let outcomes: Vec<_> = jobs
            .into_iter()
            .map(|(tag, job)| (tag, job.run()))
            .collect();
        self.0.state().unreported.extend(outcomes);
        moved
    }

    pub(crate) fn wake_fd(&self) -> RawFd {
        self.0.wake.fd()
    }

    pub(crate) fn clear(&self) {
        self.0.wake.clear();
    }

    pub(crate) fn pop(&self) -> Option<(u64, Outcome<J>)> {
        let mut state = self.0.state();
        let ended = state.ended.pop_front()?;
        state.out -= 1;
        Some(ended)
    }

    pub(crate) fn out(&self) -> u32 {
        self.0.state().out
    }

    pub(crate) fn refuse_rest(&self) {
        let mut state = self.0.state();
        while let Some((tag, _)) = state.jobs.pop_front() {
            self.0
                .end(&mut state, tag, Outcome::Ended(Err(libc::ECANCELED)));
        }
    }
}

impl<J> Drop for Workers<J> {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.called.notify_all();
    }
}

impl<J> Shared<J> {
    fn state(&self) -> MutexGuard<'_, JobQueue<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: Job> Shared<J> {
    fn end(&self, state: &mut JobQueue<J>, tag: u64, ended: Outcome<J>) {
        state.ended.push_back((tag, ended));
        self.wake.wake();
    }

    fn work(&self) {
        let mut state = self.state();
        while !state.closed {
            if let Some((tag, job)) = state.jobs.pop_front() {
                drop(state);
                let ended = confine_part(Part::Disk, || job.run());
                let ended = ended.unwrap_or(Outcome::Ended(Err(FATE_UNKNOWN)));
                state = self.state();
                self.end(&mut state, tag, ended);
                continue;
            }
            state.idle += 1;
            let waits = |state: &mut JobQueue<J>| state.jobs.is_empty() && !state.closed;
            let waited = self.called.wait_timeout_while(state, IDLE, waits);
            let waited = waited.unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            state.idle -= 1;
            if waited.1.timed_out() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    struct Call(Box<dyn FnOnce() -> Ended + Send>);

    impl Job for Call {
        fn run(self) -> Outcome<Self> {
            Outcome::Ended((self.0)())
        }

        fn lose_cancellation(&self) {}
    }

    fn begin(workers: &Workers<Call>, tag: u64, call: impl FnOnce() -> Ended + Send + 'static) {
        workers.begin(tag, Call(Box::new(call)));
    }

    fn next(workers: &Workers<Call>) -> (u64, Ended) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match workers.pop() {
                Some((tag, Outcome::Ended(ended))) => return (tag, ended),
                Some((tag, _)) => panic!("{tag} has not ended"),
                None => {}
            }
            cairn_base::wake::wait_readable([workers.wake_fd()], Some(Duration::from_secs(1)));
            workers.clear();
            assert!(Instant::now() < deadline, "nothing has ended");
        }
    }

    #[test]
    fn a_job_that_hangs_keeps_no_other_waiting() {
        let workers = Workers::new(false).unwrap();
        let (release, hangs) = channel::<()>();
        begin(&workers, 1, move || {
            let _ = hangs.recv();
            Ok(1)
        });
        for tag in 2..50 {
            begin(&workers, tag, move || Err(tag as i32));
            assert_eq!(next(&workers), (tag, Err(tag as i32)));
        }
        drop(release);
        assert_eq!(next(&workers), (1, Ok(1)));
    }

    #[test]
    fn a_job_that_panics_ends_with_an_error_and_its_worker_goes_on() {
        let workers = Workers::new(false).unwrap();
        for tag in 0..3 {
            begin(&workers, 2 * tag, || panic!("on purpose"));
            assert_eq!(next(&workers), (2 * tag, Err(FATE_UNKNOWN)));
            begin(&workers, 2 * tag + 1, || Ok(1));
            assert_eq!(next(&workers), (2 * tag + 1, Ok(1)));
        }
        assert_eq!(workers.out(), 0);
    }

    #[test]
    fn many_jobs_at_once_all_end() {
        let workers = Workers::new(false).unwrap();
        for tag in 0..200 {
            begin(&workers, tag, || Ok(0));
        }
        let mut ended: Vec<u64> = (0..200).map(|_| next(&workers).0).collect();
        ended.sort_unstable();
        assert!(ended.into_iter().eq(0..200));
    }

    #[test]
    fn a_simulated_worker_reports_one_step_after_its_job() {
        let workers = Workers::new(true).unwrap();
        begin(&workers, 1, || Ok(7));
        assert!(workers.pop().is_none());
        assert!(workers.step(false));
        assert!(workers.pop().is_none(), "the outcome is not reported yet");
        assert!(workers.step(false));
        assert_eq!(next(&workers), (1, Ok(7)));
        assert!(!workers.step(false));
    }
}
