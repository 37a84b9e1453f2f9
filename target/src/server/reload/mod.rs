//! Reload: applies another configuration while hosts are connected.
//!
//! Every step that can fail precedes the first change, so a failed reload leaves the old
//! configuration in force. Hung disks and missing objects are left out until available.

mod scope;
mod served;
mod whole;

use std::collections::HashSet;
use std::sync::Arc;

use cairn_config::Config;
use tokio::sync::oneshot;

use super::error::{ReloadError, StartError};
use super::exports::{Replaced, check_count, check_images};
use super::flushing::Flushes;
use super::keys::Loaded;
use super::opening::Found;
use super::service::Service;
use crate::health::{Place, Thing};

pub(crate) use scope::{ReloadScope, Step};

pub(crate) struct Reloading {
    pub(crate) config: Arc<Config>,
    /// `None` keeps the keys in force.
    pub(crate) keys: Option<Loaded>,
    pub(crate) scope: ReloadScope,
    pub(crate) answer: oneshot::Sender<Result<(), ReloadError>>,
}

struct UnderWay {
    reloading: Reloading,
    replaced: Replaced,
}

#[derive(Default)]
pub(crate) struct Reloads {
    under_way: Option<UnderWay>,
    next: Option<Reloading>,
}

impl Reloads {
    pub(crate) fn are_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    pub(crate) fn reload(
        &mut self,
        reloading: Reloading,
        service: &mut Service,
        flushes: &mut Flushes,
    ) {
        if self.under_way.is_none() {
            service.openings.abandon();
            self.begin(reloading, service);
            self.go_on(service, flushes);
        } else if let Some(earlier) = self.next.replace(reloading) {
            let _ = earlier.answer.send(Err(ReloadError::Superseded));
        }
    }

    fn begin(&mut self, reloading: Reloading, service: &mut Service) {
        let Reloading {
            mut config,
            keys,
            scope,
            answer,
        } = reloading;
        let scope = match scope {
            ReloadScope::Step(step) if !step.fits(service) => ReloadScope::Text,
            scope => scope,
        };
        let is_step = matches!(scope, ReloadScope::Step(_));
        if !is_step {
            Arc::make_mut(&mut config).share_hosts(&service.config);
        }
        let known: HashSet<Place> = service.missing.places().collect();
        let replaced = if is_step {
            Replaced::default()
        } else {
            service.exports.replaced_by(&service.config, &config)
        };
        let check = || {
            if is_step {
                return Ok(check_count(&config)?);
            }
            check_images(&service.config, &config, &replaced)?;
            service.listeners.check(&config)?;
            check_count(&config)?;
            Ok(())
        };
        if let Err(error) = check() {
            let _ = answer.send(Err(error));
            return;
        }
        let may_fail = |place: &Place| known.contains(place);
        let (exports, now) = (&service.exports, service.clock.now());
        let openings = &mut service.openings;
        match &scope {
            ReloadScope::Step(step) => openings.begin_at(exports, &config, &step.added, now),
            ReloadScope::Text => openings.begin(exports, &config, false, &replaced, may_fail, now),
            ReloadScope::Whole => openings.begin(exports, &config, true, &replaced, may_fail, now),
        }
        let reloading = Reloading {
            config,
            keys,
            scope,
            answer,
        };
        self.under_way = Some(UnderWay {
            reloading,
            replaced,
        });
    }

    pub(crate) fn go_on(&mut self, service: &mut Service, flushes: &mut Flushes) {
        while let Some(found) = service.openings.take_found() {
            let Some(under_way) = self.under_way.take() else {
                service.end_reopening(found);
                continue;
            };
            let UnderWay {
                reloading,
                replaced,
            } = under_way;
            let Reloading {
                config,
                keys,
                scope,
                answer,
            } = reloading;
            let before = served::namespaces(service, &scope);
            match change(service, (config, keys), scope, &replaced, found) {
                Ok(()) => served::answer_settled(service, flushes, before, answer),
                Err(error) => drop(answer.send(Err(error))),
            }
            if let Some(next) = self.next.take() {
                self.begin(next, service);
            }
        }
    }
}

fn change(
    service: &mut Service,
    (config, keys): (Arc<Config>, Option<Loaded>),
    scope: ReloadScope,
    replaced: &Replaced,
    mut found: Found,
) -> Result<(), ReloadError> {
    if let Some(failure) = found.failure {
        return Err(failure.into());
    }
    let mut missing: Vec<(Thing, StartError)> = Vec::new();
    for late in &found.late {
        if late.was_opened {
            missing.push((Thing::Namespace(late.place), late.error()));
        } else {
            late.report();
        }
    }
    let failed = std::mem::take(&mut found.missing).into_iter();
    missing.extend(failed.map(|(place, error)| (Thing::Namespace(place), error)));
    if let ReloadScope::Step(step) = scope {
        return step.take(service, config, found.opened, missing);
    }
    let opened = whole::Opened {
        namespaces: found.opened,
        sizes: found.sizes,
        missing,
    };
    Ok(whole::apply(service, (config, keys), replaced, opened)?)
}
