//! Changes of registrants and reservation (Base 2.1, 8.1.22.5 to 8.1.22.9).

use alloc::vec::Vec;

use super::{Held, HostId, REGISTRANTS_MAX, Registrant, ReservationType, Reservations};
use crate::wire::Status;
use crate::wire::reservation::{AcquireCdw10, RegisterCdw10, ReleaseCdw10};

const CONFLICT: Status = Status::RESERVATION_CONFLICT.with_dnr();
const INVALID_FIELD: Status = Status::INVALID_FIELD.with_dnr();

/// Change of registrants or reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Reservation Register.
    Register {
        /// RREGA, IEKEY and CPTPL.
        fields: RegisterCdw10,
        /// CRKEY: current key.
        current: u64,
        /// NRKEY: new key.
        new: u64,
    },
    /// Reservation Acquire.
    Acquire {
        /// RACQA, a constant of [`AcquireCdw10`].
        action: u8,
        /// RTYPE to acquire.
        rtype: ReservationType,
        /// CRKEY: current key.
        current: u64,
        /// PRKEY: key to preempt.
        preempted: u64,
    },
    /// Reservation Release.
    Release {
        /// RRELA and RTYPE.
        fields: ReleaseCdw10,
        /// CRKEY: current key.
        current: u64,
    },
    /// Set Features of Reservation Persistence (83h).
    Persist(bool),
    /// Clear by an administrator, without host or key.
    Clear,
}

/// Type of a reservation notification (log page 80h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Notice {
    /// The host is no longer registered.
    RegistrationPreempted = 1,
    /// The reservation was released.
    ReservationReleased = 2,
    /// The reservation and all registrations were cleared.
    ReservationPreempted = 3,
}

/// Result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// State after the change.
    pub next: Reservations,
    /// Notifications, by host.
    pub notices: Vec<(HostId, Notice)>,
    /// Hosts whose commands must end before the response (Preempt and Abort).
    pub aborted: Vec<HostId>,
}

impl Outcome {
    pub(super) fn of(next: &Reservations) -> Self {
        Self {
            next: next.clone(),
            notices: Vec::new(),
            aborted: Vec::new(),
        }
    }

    fn notify(&mut self, except: &HostId, notice: Notice) {
        let others = self.next.registrants.iter().map(|one| one.host);
        let others = others.filter(|host| host != except);
        self.notices.extend(others.map(|host| (host, notice)));
    }

    fn count(mut self) -> Self {
        self.next.generation = self.next.generation.wrapping_add(1);
        self
    }
}

impl Reservations {
    /// Executes a command of `host`. `can_persist` is true if the target can keep the state through
    /// power loss. [`Change::Persist`] and [`Change::Clear`] ignore `host`.
    ///
    /// # Errors
    /// Status of the command, which then changes nothing.
    pub fn execute(
        &self,
        host: &HostId,
        change: &Change,
        can_persist: bool,
    ) -> Result<Outcome, Status> {
        match *change {
            Change::Register {
                fields,
                current,
                new,
            } => {
                let persistent = match fields.cptpl() {
                    RegisterCdw10::CPTPL_KEEP => self.persistent,
                    RegisterCdw10::CPTPL_CLEAR => false,
                    _ if can_persist => true,
                    _ => return Err(INVALID_FIELD),
                };
                let mut outcome = self.register(host, fields, current, new)?;
                outcome.next.persistent = persistent;
                Ok(outcome.count())
            }
            Change::Acquire {
                action,
                rtype,
                current,
                preempted,
            } => {
                self.check_key(host, current)?;
                match action {
                    AcquireCdw10::ACQUIRE => self.acquire(host, rtype),
                    _ => {
                        let aborts = action == AcquireCdw10::PREEMPT_AND_ABORT;
                        let outcome = self.preempt(host, rtype, preempted, aborts)?;
                        Ok(outcome.count())
                    }
                }
            }
            Change::Release { fields, current } => {
                self.check_key(host, current)?;
                match fields.rrela() {
                    ReleaseCdw10::RELEASE => self.release(host, fields.rtype()),
                    _ => Ok(self.clear(Some(host))),
                }
            }
            Change::Clear if self.registrants.is_empty() => Ok(Outcome::of(self)),
            Change::Clear => Ok(self.clear(None)),
            Change::Persist(true) if !can_persist => Err(INVALID_FIELD),
            Change::Persist(persistent) => {
                let mut outcome = Outcome::of(self);
                outcome.next.persistent = persistent;
                Ok(outcome)
            }
        }
    }

    pub(super) fn check_key(&self, host: &HostId, key: u64) -> Result<(), Status> {
        let found = self.find(host).map(|at| self.registrants[at].key);
        if found == Some(key) {
            Ok(())
        } else {
            Err(CONFLICT)
        }
    }

    fn register(
        &self,
        host: &HostId,
        fields: RegisterCdw10,
        current: u64,
        new: u64,
    ) -> Result<Outcome, Status> {
        let registered = self.find(host);
        let own = registered.map(|at| self.registrants[at].key);
        let fits = own.is_some_and(|own| fields.iekey() || own == current);
        match fields.rrega() {
            RegisterCdw10::UNREGISTER if fits => Ok(self.unregister(host)),
            RegisterCdw10::UNREGISTER => Err(CONFLICT),
            _ if new == 0 => Err(INVALID_FIELD),
            RegisterCdw10::REGISTER if own.is_some_and(|own| own != new) => Err(CONFLICT),
            RegisterCdw10::REPLACE if !fits && (own.is_some() || !fields.iekey()) => Err(CONFLICT),
            _ => {
                let mut outcome = Outcome::of(self);
                let registrants = &mut outcome.next.registrants;
                match registered {
                    Some(at) => registrants[at].key = new,
                    None if registrants.len() == REGISTRANTS_MAX => {
                        return Err(Status::INTERNAL_ERROR.with_dnr());
                    }
                    None => {
                        let at = registrants.partition_point(|one| one.host < *host);
                        registrants.insert(
                            at,
                            Registrant {
                                host: *host,
                                key: new,
                            },
                        );
                    }
                }
                Ok(outcome)
            }
        }
    }

    fn unregister(&self, host: &HostId) -> Outcome {
        let mut outcome = Outcome::of(self);
        outcome.next.registrants.retain(|one| one.host != *host);
        let released = outcome.next.release_without_holder();
        if released.is_some_and(ReservationType::concerns_registrants) {
            outcome.notify(host, Notice::ReservationReleased);
        }
        outcome
    }

    /// Releases the reservation if no holder is registered; returns its type.
    fn release_without_holder(&mut self) -> Option<ReservationType> {
        let held = self.held?;
        let stays = match held.holder {
            Some(holder) => self.find(&holder).is_some(),
            None => !self.registrants.is_empty(),
        };
        if stays {
            return None;
        }
        self.held = None;
        Some(held.rtype)
    }

    fn acquire(&self, host: &HostId, rtype: ReservationType) -> Result<Outcome, Status> {
        let mut outcome = Outcome::of(self);
        match self.rtype() {
            None => outcome.next.held = Some(Held::by(rtype, host)),
            Some(held) if held == rtype && self.is_holder(host) => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(outcome)
    }

    fn preempt(
        &self,
        host: &HostId,
        rtype: ReservationType,
        key: u64,
        aborts: bool,
    ) -> Result<Outcome, Status> {
        let takes = match self.held {
            None => false,
            Some(Held { holder: None, .. }) => key == 0,
            Some(_) if key == 0 => return Err(INVALID_FIELD),
            Some(Held {
                holder: Some(holder),
                ..
            }) => self.check_key(&holder, key).is_ok(),
        };
        let goes = |one: &Registrant| match takes {
            true => one.host != *host && (key == 0 || one.key == key),
            false => one.key == key,
        };
        let gone = self.registrants.iter().filter(|one| goes(one));
        let gone: Vec<HostId> = gone.map(|one| one.host).collect();
        if gone.is_empty() && !takes {
            return Err(CONFLICT);
        }
        let mut outcome = Outcome::of(self);
        outcome.next.registrants.retain(|one| !goes(one));
        let others = gone.iter().filter(|gone| *gone != host);
        let preempted = others.map(|gone| (*gone, Notice::RegistrationPreempted));
        outcome.notices.extend(preempted);
        if takes {
            outcome.next.held = Some(Held::by(rtype, host));
            if self.rtype() != Some(rtype) {
                outcome.notify(host, Notice::ReservationReleased);
            }
        } else {
            outcome.next.release_without_holder();
        }
        if aborts {
            outcome.aborted = gone;
        }
        Ok(outcome)
    }

    /// Changes nothing if the host does not hold the reservation.
    fn release(&self, host: &HostId, rtype: u8) -> Result<Outcome, Status> {
        let mut outcome = Outcome::of(self);
        let Some(held) = self.rtype().filter(|_| self.is_holder(host)) else {
            return Ok(outcome);
        };
        if held.code() != rtype {
            return Err(INVALID_FIELD);
        }
        outcome.next.held = None;
        if held.concerns_registrants() {
            outcome.notify(host, Notice::ReservationReleased);
        }
        Ok(outcome)
    }

    fn clear(&self, host: Option<&HostId>) -> Outcome {
        let mut outcome = Outcome::of(self);
        let hosts = self.registrants.iter().map(|one| one.host);
        let others = hosts.filter(|one| Some(one) != host);
        let notices = others.map(|one| (one, Notice::ReservationPreempted));
        outcome.notices.extend(notices);
        outcome.next.registrants.clear();
        outcome.next.held = None;
        outcome.count()
    }
}
