//! What a metrics page shows: reads what the target has and counts, when a recorder asks.
//!
//! [`Observed`] goes through the registry and the reactors' counters, and reports to a
//! recorder of the `metrics` façade: [`page`] is the one whose text Prometheus
//! reads, [`http`] serves it. What is gone is not reported any more.
//!
//! docs/metrics.md has all names; they stand in [`families`].

mod families;
mod http;
mod nvme;
mod page;
mod process;
mod rdma;
mod reactors;
mod reporter;

use std::sync::Arc;

use cairn_fabric::source::{Live, Source};
use cairn_rdma::Provider;
use metrics::Recorder;
use nvme_proto::wire::cm::RejectStatus;

use crate::metrics::counter::CodeCounts;
use crate::metrics::reactor::ReactorCounters;
use crate::panics::{Panics, Part};
use crate::registry::Registry;

pub(crate) use http::MetricsServer;
use reporter::Reporter;

/// All that metrics report. Reporting changes nothing of it.
#[derive(Debug)]
pub(crate) struct Observed {
    registry: Arc<Registry>,
    reactors: Vec<Arc<ReactorCounters>>,
    providers: Vec<Arc<dyn Provider>>,
    /// Connection requests that the control plane rejected, by STS.
    rejected: CodeCounts<16>,
    /// Answers of the server, by their HTTP status; it alone writes them.
    pub(super) answers: CodeCounts<16>,
    pub(super) panics: Arc<Panics>,
}

impl Observed {
    /// What these are and do.
    pub(crate) fn new(
        registry: &Arc<Registry>,
        reactors: Vec<Arc<ReactorCounters>>,
        providers: &[Arc<dyn Provider>],
        panics: &Arc<Panics>,
    ) -> Self {
        Self {
            registry: Arc::clone(registry),
            reactors,
            providers: providers.to_vec(),
            rejected: CodeCounts::default(),
            answers: CodeCounts::default(),
            panics: Arc::clone(panics),
        }
    }

    /// The control plane rejected a connection request.
    pub(crate) fn rejected(&self, status: RejectStatus) {
        self.rejected.add(status.0);
    }

    /// Reports everything to a recorder, as it is now.
    pub(crate) fn report(&self, recorder: &dyn Recorder) {
        self.report_with(recorder, &Live::machine());
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
        for (code, count) in self.answers.each() {
            let code = code.map_or_else(|| "other".to_owned(), |code| code.to_string());
            reporter.count(&families::REQUESTS, &[("code", &code)], count);
        }
    }
}
