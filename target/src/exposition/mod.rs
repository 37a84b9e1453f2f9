//! Metrics page, assembled on each request (docs/metrics.md).
//!
//! [`Observed`] reports values to a recorder of the `metrics` façade, [`page`] writes their text,
//! and [`http`] serves the page.

mod families;
mod http;
mod nvme;
mod page;
mod process;
mod rdma;
mod reactors;
mod reporter;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cairn_doctor::source::{Live, Source};
use cairn_rdma::Provider;
use metrics::Recorder;
use nvme_proto::wire::cm::RejectStatus;
use tokio::sync::watch;

use crate::health::{Health, Thing};
use crate::panics::{Panics, Part};
use cairn_data_path::audit::Audit;
use cairn_data_path::metrics::counter::CodeCounts;
use cairn_data_path::metrics::reactor::ReactorCounters;
use cairn_data_path::registry::{Mailbox, Registry};

pub(crate) use http::MetricsServer;
use reporter::Reporter;

const LOOK_INTERVAL: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Observed {
    registry: Arc<Registry>,
    reactors: Vec<Arc<ReactorCounters>>,
    providers: Vec<Arc<dyn Provider>>,
    rejected: CodeCounts<16>,
    pub(super) answers: CodeCounts<16>,
    pub(super) panics: Arc<Panics>,
    pub(super) health: watch::Receiver<Arc<Health>>,
    mailboxes: Arc<[Mailbox]>,
    reload: Mutex<Option<(SystemTime, bool)>>,
    /// `None` without a state directory.
    is_state_lost: Mutex<Option<bool>>,
    audit: Audit,
}

impl Observed {
    pub(crate) fn reactors(&self) -> &[Arc<ReactorCounters>] {
        &self.reactors
    }

    pub(crate) fn new(
        registry: &Arc<Registry>,
        reactors: Vec<Arc<ReactorCounters>>,
        providers: &[Arc<dyn Provider>],
        panics: &Arc<Panics>,
        health: watch::Receiver<Arc<Health>>,
        mailboxes: &Arc<[Mailbox]>,
        audit: &Audit,
    ) -> Self {
        Self {
            registry: Arc::clone(registry),
            reactors,
            providers: providers.to_vec(),
            rejected: CodeCounts::default(),
            answers: CodeCounts::default(),
            panics: Arc::clone(panics),
            health,
            mailboxes: Arc::clone(mailboxes),
            reload: Mutex::default(),
            is_state_lost: Mutex::default(),
            audit: audit.clone(),
        }
    }

    pub(crate) fn reloaded(&self, succeeded: bool) {
        *self.last_reload() = Some((SystemTime::now(), succeeded));
    }

    pub(crate) fn note_state(&self, is_lost: bool) {
        *self.is_state_lost() = Some(is_lost);
    }

    fn is_state_lost(&self) -> MutexGuard<'_, Option<bool>> {
        self.is_state_lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn last_reload(&self) -> MutexGuard<'_, Option<(SystemTime, bool)>> {
        self.reload.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the reactors. Returns true if each runs its loop within `patience`.
    pub(crate) fn is_alive(&self, patience: Duration) -> bool {
        let rounds = || self.reactors.iter().map(|reactor| reactor.rounds.get());
        let before: Vec<u64> = rounds().collect();
        for mailbox in self.mailboxes.iter() {
            mailbox.wake();
        }
        let deadline = Instant::now() + patience;
        loop {
            if rounds().zip(&before).all(|(now, before)| now != *before) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    pub(crate) fn rejected(&self, status: RejectStatus) {
        self.rejected.add(status.0);
    }

    pub(crate) fn report(&self, recorder: &dyn Recorder) {
        self.report_with(recorder, &Live::machine());
    }

    /// Returns the page with fine buckets, for `cairn-target top`. May block.
    pub(crate) fn fine_page(&self) -> String {
        let page = page::Page::new(page::Buckets::Fine);
        self.report(&page);
        page.write(page::Format::Text)
    }

    fn report_with(&self, recorder: &dyn Recorder, machine: &dyn Source) {
        let reporter = Reporter::new(recorder);
        nvme::report(&reporter, self);
        rdma::report(&reporter, self, machine);
        reactors::report(&reporter, self);
        process::report(&reporter);
        for (part, name, _) in Part::ALL {
            let count = self.panics.of_part(part);
            reporter.count(&families::PANICS, &[("part", name)], count);
        }
        let health = Arc::clone(&self.health.borrow());
        for kind in Thing::KINDS {
            let missing = health.missing.iter();
            let count = missing.filter(|one| one.thing.kind() == kind).count();
            reporter.gauge(&families::MISSING, &[("kind", kind)], count as u64);
        }
        for ((nqn, nsid), count) in &health.left_out {
            let (nqn, nsid) = (nqn.to_string(), nsid.to_string());
            let labels = [("subsystem", nqn.as_str()), ("nsid", nsid.as_str())];
            reporter.gauge(&families::LEFT_OUT, &labels, *count as u64);
        }
        for counts in self.audit.counts() {
            let labels = [("output", counts.output)];
            reporter.count(&families::AUDIT_LINES, &labels, counts.lines);
            reporter.count(&families::AUDIT_LOST, &labels, counts.lost);
        }
        if let Some((at, succeeded)) = *self.last_reload() {
            let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
            reporter.gauge(&families::RELOAD_TIME, &[], since.as_secs());
            reporter.gauge(&families::RELOAD_SUCCEEDED, &[], succeeded.into());
        }
        if let Some(is_lost) = *self.is_state_lost() {
            reporter.gauge(&families::STATE_LOST, &[], is_lost.into());
        }
        for (code, count) in self.answers.each() {
            let code = code.map_or_else(|| "other".to_owned(), |code| code.to_string());
            reporter.count(&families::REQUESTS, &[("code", &code)], count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reactors_that_make_no_rounds_are_not_alive() {
        let (_, health) = watch::channel(Arc::default());
        let panics = Arc::new(Panics::new(true));
        let (mailbox, _inbox) = Mailbox::new().unwrap();
        let reactor = Arc::new(ReactorCounters::default());
        let observed = Observed::new(
            &Arc::default(),
            vec![Arc::clone(&reactor)],
            &[],
            &panics,
            health,
            &vec![mailbox].into(),
            &Audit::default(),
        );
        assert!(!observed.is_alive(Duration::from_millis(20)));
        std::thread::scope(|scope| {
            let alive = scope.spawn(|| observed.is_alive(Duration::from_secs(60)));
            while !alive.is_finished() {
                reactor.rounds.add(1);
                std::thread::yield_now();
            }
            assert!(alive.join().unwrap());
        });
    }
}
