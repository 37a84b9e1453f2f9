//! Reservation features and notifications of a controller (Base 2.1, 5.1.25.1.39, 5.1.25.1.40 and
//! 5.1.12.1.32).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use zerocopy::{FromZeros, IntoBytes};

use crate::common::Common;
use crate::namespace::{Namespace, NsidSet};
use crate::reservation::{HostId, Notice};
use crate::window::Window;
use crate::wire::aen::AsyncEvent;
use crate::wire::feature::Feature;
use crate::wire::reservation::NotificationLog;
use crate::wire::{NSID_ALL, Status};

use super::command::{GetFeatures, SetFeatures};
use super::refusal::byte;
use super::{Action, Completion, Controller, Outcome, Refusal};

/// Maximum unread notifications; when exceeded, the oldest is lost.
const NOTIFICATIONS_MAX: usize = 256;

/// Valid bits of the Reservation Notification Mask; bit n masks notification type n.
const MASK_BITS: u32 = 0b1110;

#[derive(Debug, Default)]
pub(super) struct ReservationNotices {
    count: u64,
    unread: VecDeque<(u64, u32, Notice)>,
    masks: BTreeMap<u32, u32>,
    persisting: Vec<Persisting>,
}

/// Set Features command that changes PTPL states.
#[derive(Debug)]
struct Persisting {
    cid: u16,
    /// Whether the command concerns all namespaces.
    all: bool,
    /// First failure of a change.
    status: Status,
    /// Numbers of the changes in progress, by NSID.
    changes: BTreeMap<u32, u64>,
}

impl ReservationNotices {
    pub(super) fn put_log(&self, page: &mut Window<'_>) {
        let mut log = NotificationLog::new_zeroed();
        if let Some(&(count, nsid, notice)) = self.unread.front() {
            log.count.set(count);
            log.notice = notice as u8;
            log.available = (self.unread.len() - 1) as u8;
            log.nsid.set(nsid);
        }
        page.put(0, log.as_bytes());
    }

    pub(super) fn log_was_read(&mut self) {
        self.unread.pop_front();
    }

    pub(super) fn reset(&mut self) {
        *self = Self {
            count: self.count,
            ..Self::default()
        };
    }

    fn mask(&self, nsid: u32) -> u32 {
        self.masks.get(&nsid).copied().unwrap_or(0)
    }
}

impl Controller {
    pub(super) fn get_reservation_feature(
        &self,
        common: &Common,
        get: &GetFeatures,
    ) -> Result<u32, Refusal> {
        if get.nsid == NSID_ALL {
            return Err(in_nsid(Status::INVALID_FIELD));
        }
        let namespace = common.namespaces.reservable(get.nsid, &self.seen);
        let namespace = namespace.map_err(in_nsid)?;
        Ok(match get.fid {
            Feature::RESERVATION_PERSISTENCE => namespace.reservations_persist.into(),
            _ => self.reservation_notices.mask(get.nsid),
        })
    }

    pub(super) fn set_notification_mask(
        &mut self,
        common: &Common,
        set: &SetFeatures,
    ) -> Result<(), Refusal> {
        if set.cdw11 & !MASK_BITS != 0 {
            return Err(Refusal::field(byte::CDW11));
        }
        if set.nsid != NSID_ALL {
            let namespace = common.namespaces.reservable(set.nsid, &self.seen);
            namespace.map_err(in_nsid)?;
            self.reservation_notices.masks.insert(set.nsid, set.cdw11);
            return Ok(());
        }
        for namespace in common.namespaces.iter() {
            if namespace.reservable && self.seen.contains(namespace.nsid) {
                let masks = &mut self.reservation_notices.masks;
                masks.insert(namespace.nsid, set.cdw11);
            }
        }
        Ok(())
    }

    pub(super) fn set_persistence(
        &mut self,
        common: &mut Common,
        cid: u16,
        set: &SetFeatures,
        actions: &mut Vec<Action>,
    ) -> Result<Outcome, Refusal> {
        super::features::check_settable(set)?;
        let persistent = set.cdw11 == 1;
        let may_change = |one: &Namespace| !persistent || one.keeps_reservations;
        let all = set.nsid == NSID_ALL;
        let nsids: Vec<u32> = if all {
            let namespaces = common.namespaces.iter();
            let reservable = |one: &&Namespace| one.reservable && self.seen.contains(one.nsid);
            let changing = namespaces.filter(reservable).filter(|one| may_change(one));
            changing.map(|one| one.nsid).collect()
        } else {
            let namespace = common.namespaces.reservable(set.nsid, &self.seen);
            let namespace = namespace.map_err(in_nsid)?;
            may_change(namespace)
                .then_some(set.nsid)
                .into_iter()
                .collect()
        };
        if set.cdw11 > 1 || persistent && nsids.is_empty() {
            return Err(Refusal::field(byte::CDW11));
        }
        let persisting = &mut self.reservation_notices.persisting;
        let is_changing = |nsid| persisting.iter().any(|one| one.changes.contains_key(nsid));
        if nsids.iter().any(is_changing) {
            return Err(Refusal::transient(Status::COMMAND_INTERRUPTED));
        }
        if nsids.is_empty() {
            return Ok(Outcome::Complete(Completion::success(cid, 0)));
        }
        let number = |nsid| (nsid, common.namespaces.next_change());
        let changes: BTreeMap<u32, u64> = nsids.into_iter().map(number).collect();
        for (&nsid, &change) in &changes {
            actions.push(Action::PersistReservations {
                cntlid: self.cntlid,
                nsid,
                change,
                persistent,
            });
        }
        persisting.push(Persisting {
            cid,
            all,
            status: Status::SUCCESS,
            changes,
        });
        Ok(Outcome::Parked)
    }

    /// Ends the change with this number; the last change of a Set Features completes the command.
    pub(crate) fn persistence_done(
        &mut self,
        nsid: u32,
        change: u64,
        status: Status,
        actions: &mut Vec<Action>,
    ) {
        let is_it = |one: &Persisting| one.changes.get(&nsid) == Some(&change);
        self.end_change(is_it, nsid, |_| status, actions);
    }

    /// Ends the change of a removed namespace, as failed if the command names this NSID.
    pub(crate) fn persistence_removed(&mut self, nsid: u32, actions: &mut Vec<Action>) {
        let is_it = |one: &Persisting| one.changes.contains_key(&nsid);
        let status = |one: &Persisting| match one.all {
            true => Status::SUCCESS,
            false => Status::INVALID_NAMESPACE_OR_FORMAT,
        };
        self.end_change(is_it, nsid, status, actions);
    }

    fn end_change(
        &mut self,
        is_it: impl Fn(&Persisting) -> bool,
        nsid: u32,
        status: impl Fn(&Persisting) -> Status,
        actions: &mut Vec<Action>,
    ) {
        let persisting = &mut self.reservation_notices.persisting;
        let Some(at) = persisting.iter().position(is_it) else {
            return;
        };
        let command = &mut persisting[at];
        command.changes.remove(&nsid);
        if command.status.is_success() {
            command.status = status(command);
        }
        if command.changes.is_empty() {
            let Persisting { cid, status, .. } = persisting.swap_remove(at);
            self.complete_parked(cid, status, actions);
        }
    }

    pub(crate) fn notify_of_reservation(
        &mut self,
        nsid: u32,
        notices: &[(HostId, Notice)],
        actions: &mut Vec<Action>,
    ) {
        for (host, notice) in notices {
            if *host == self.host.id {
                self.note_reservation(nsid, *notice, actions);
            }
        }
    }

    fn note_reservation(&mut self, nsid: u32, notice: Notice, actions: &mut Vec<Action>) {
        let masked = self.reservation_notices.mask(nsid) >> notice as u32 & 1 != 0;
        if masked || !self.seen.contains(nsid) || !self.is_ready() {
            return;
        }
        let notices = &mut self.reservation_notices;
        notices.count += 1;
        if notices.unread.len() == NOTIFICATIONS_MAX {
            notices.unread.pop_front();
        }
        notices.unread.push_back((notices.count, nsid, notice));
        self.raise(AsyncEvent::RESERVATION_LOG_AVAILABLE, actions);
    }
}

impl crate::namespace::Namespaces {
    fn reservable(&self, nsid: u32, seen: &NsidSet) -> Result<&Namespace, Status> {
        let namespace = self.seen(nsid, seen);
        let namespace = namespace.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)?;
        if namespace.reservable {
            Ok(namespace)
        } else {
            Err(Status::INVALID_FIELD)
        }
    }
}

fn in_nsid(status: Status) -> Refusal {
    Refusal::new(status).at(byte::NSID)
}
