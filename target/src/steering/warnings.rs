//! Warnings about valid settings that are probably mistakes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use cairn_config::Config;

use super::refusals::{OddHost, odd_hosts};

/// Maximum warnings in a status response; `cairn-target check` prints all.
const SHOWN_MAX: usize = 64;

#[derive(Debug, Default, Clone)]
struct Known {
    warnings: Arc<[String]>,
    odd_hosts: Arc<[OddHost]>,
}

/// Warnings about the latest configuration, computed once, because monitors may request the status
/// every second.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    known: Mutex<(Weak<Config>, Known)>,
    /// Warning about the state at the start, shown until the target ends.
    pub(super) of_start: OnceLock<String>,
}

impl Warnings {
    fn of(&self, config: &Arc<Config>) -> Known {
        // Poisoning is harmless, because each change is one assignment.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Equal addresses mean the same configuration, because the weak reference prevents their
        // reuse.
        if !std::ptr::eq(known.0.as_ptr(), Arc::as_ptr(config)) {
            let of = Known {
                warnings: config.warnings().into(),
                odd_hosts: odd_hosts(config).into(),
            };
            *known = (Arc::downgrade(config), of);
        }
        known.1.clone()
    }

    pub(super) fn odd_hosts(&self, config: &Arc<Config>) -> Arc<[OddHost]> {
        self.of(config).odd_hosts
    }

    pub(super) fn shown(&self, config: &Arc<Config>) -> Vec<String> {
        let all = self.of(config).warnings;
        let mut shown = all[..all.len().min(SHOWN_MAX)].to_vec();
        if all.len() > shown.len() {
            let more = all.len() - shown.len();
            shown.push(format!(
                "there are {more} more: `cairn-target check` shows all"
            ));
        }
        shown.extend(self.of_start.get().cloned());
        shown
    }

    pub(super) fn log_new(&self, now: &Arc<Config>, before: &Arc<Config>) {
        let former = self.of(before).warnings;
        let former: HashSet<&String> = former.iter().collect();
        let all = self.of(now).warnings;
        for warning in all.iter().filter(|one| !former.contains(one)) {
            // Logged for a control socket request.
            tracing::warn!("{warning}");
        }
    }
}
