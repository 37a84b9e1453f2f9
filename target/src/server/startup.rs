use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use super::error::StartError;
use super::exports::{DiskRules, Replaced};
use super::lookup::missing_pools;
use super::opening::{Found, Returned};
use super::runtime;
use super::service::Service;
use crate::health::{Place, Thing};
use cairn_data_path::namespace::Namespace;

/// A missing object is an error unless `is_patient`. Meanwhile, the only accepted order is a stop.
pub(super) fn open_all<T>(
    service: &mut Service,
    orders: &mut UnboundedReceiver<T>,
    unreadable: Vec<(Thing, StartError)>,
    is_patient: bool,
) -> Result<(), StartError> {
    for (thing, error) in unreadable {
        if !is_patient {
            return Err(error);
        }
        service.missing.note(thing, &error);
    }
    service.exports.lock_state()?;
    service.keys.start_authenticator(None)?;
    let config = Arc::clone(&service.config);
    let (exports, now) = (&service.exports, service.clock.now());
    let may_fail = |_: &Place| is_patient;
    let replaced = Replaced::default();
    let openings = &mut service.openings;
    openings.begin(exports, &config, false, &replaced, may_fail, now);
    let mut disks = wait_for_disks(service, orders, is_patient)?;
    let rules = DiskRules::of(&config);
    for subsystem in &config.subsystems {
        let keys = service.keys.of(&subsystem.nqn);
        let (exports, missing) = (&mut service.exports, &mut service.missing);
        let is_missing = |place: &Place| missing.has(place);
        let refused = exports.export(
            (&rules, subsystem),
            keys,
            &mut disks,
            is_missing,
            is_patient,
        )?;
        missing.note_disks(&[], refused);
    }
    for (thing, error) in missing_pools(&config) {
        service.missing.note(thing, &error);
    }
    for listener in &config.listeners {
        match service.listeners.listen(listener) {
            Ok(listener) => service.listeners.add(listener),
            Err(error) if is_patient => {
                let thing = Thing::Listener(listener.trid());
                service.missing.note(thing, &error);
            }
            Err(error) => return Err(error),
        }
    }
    let metrics = config.metrics.listen;
    service.metrics.serve(metrics, &mut service.missing);
    service.apply_audit(&config)?;
    service.audit.begin();
    service.update_discovery();
    service.publish_health();
    Ok(())
}

fn wait_for_disks<T>(
    service: &mut Service,
    orders: &mut UnboundedReceiver<T>,
    is_patient: bool,
) -> Result<HashMap<Place, Arc<Namespace>>, StartError> {
    while let Ok(returned) = service.openings.returned.try_recv() {
        service.openings.end(returned, service.clock.now());
    }
    let found = match service.openings.take_found() {
        Some(found) => found,
        None => wait_for_threads(service, orders)?,
    };
    match (found.failure, found.late.first()) {
        (Some(error), _) => return Err(error),
        (None, Some(late)) if !is_patient => return Err(late.error()),
        (None, _) => {}
    }
    service.missing.note_disks(&found.late, found.missing);
    Ok(found.opened)
}

fn wait_for_threads<T>(
    service: &mut Service,
    orders: &mut UnboundedReceiver<T>,
) -> Result<Found, StartError> {
    let runtime = runtime::new().map_err(StartError::Control)?;
    loop {
        let returned = runtime.block_on(next_of_disks(service, orders))?;
        let (openings, now) = (&mut service.openings, service.clock.now());
        match returned {
            Some(returned) => openings.end(returned, now),
            None => openings.advance(now),
        }
        if let Some(found) = openings.take_found() {
            return Ok(found);
        }
    }
}

async fn next_of_disks<T>(
    service: &mut Service,
    orders: &mut UnboundedReceiver<T>,
) -> Result<Option<Returned>, StartError> {
    let timer = runtime::timer(&service.clock, service.openings.next_deadline());
    tokio::select! {
        Some(returned) = service.openings.returned.recv() => Ok(Some(returned)),
        _ = orders.recv() => Err(StartError::Stopped),
        () = timer => Ok(None),
    }
}
