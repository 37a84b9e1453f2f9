//! Model of reservations, written only from NVMe Base 2.1, 8.1.22.
//!
//! [`State::execute`] returns every permitted result of a command with the state after it.

use std::collections::{BTreeMap, BTreeSet};

use nvme_proto::wire::Status;

/// Hosts that share the namespaces, numbered from 1. A host's key is its number in most commands.
pub(super) const HOSTS: u8 = 3;
/// Host of each controller: the first host has two.
pub(super) const CONTROLLERS: [u8; 4] = [1, 1, 2, 3];
/// Number of namespaces: NSIDs 1 and 2 exist, 3 does not.
pub(super) const NAMESPACES: usize = 2;
pub(super) const BLOCKS: usize = 2;
pub(super) const NSID_ALL: u32 = u32::MAX;

const OK: Status = Status::SUCCESS;
const CONFLICT: Status = Status::RESERVATION_CONFLICT;
const FIELD: Status = Status::INVALID_FIELD;
const NSID: Status = Status::INVALID_NAMESPACE_OR_FORMAT;

const UNREGISTERED: u8 = 1;
const RELEASED: u8 = 2;
const CLEARED: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Io {
    Read,
    Verify,
    Compare(u8),
    Write(u8),
    WriteZeroes,
    Deallocate,
    /// From the other block of the namespace.
    Copy,
}

impl Io {
    fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Verify | Self::Compare(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) action: u8,
    pub(super) rtype: u8,
    pub(super) iekey: bool,
    pub(super) current: u64,
    /// NRKEY or PRKEY.
    pub(super) other: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Register { keys: Keys, cptpl: u8 },
    Acquire(Keys),
    Release(Keys),
    Report { extended: bool },
    Io { io: Io, block: usize },
    Flush,
    SetMask(u8),
    GetMask,
    SetPersistence(bool),
    GetPersistence,
    Log,
    Identify,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) generation: u32,
    pub(super) rtype: u8,
    pub(super) ptpls: u8,
    /// Key and RCSTS by host.
    pub(super) registrants: BTreeMap<u8, (u64, u8)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    Dword(u32),
    Block(u8),
    /// NSID and type of the oldest notification, and the number of others; zeroes without one.
    Notice(u32, u8, u8),
    Report(Report),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) shown: Shown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Namespace {
    pub(super) keys: BTreeMap<u8, u64>,
    pub(super) rtype: u8,
    holder: u8,
    pub(super) generation: u32,
    pub(super) ptpl: bool,
    pub(super) blocks: [u8; BLOCKS],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Told {
    pub(super) unread: Vec<(u32, u8)>,
    masks: [u8; NAMESPACES],
    /// True if a notification was added since [`State::begin_batch`].
    pub(super) raised: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct State {
    pub(super) namespaces: [Namespace; NAMESPACES],
    pub(super) told: [Told; CONTROLLERS.len()],
}

type Notices = Vec<(u8, u8)>;
/// Refusals of which the target chooses one, or the notifications of a success.
type Verdict = Result<Notices, Vec<Status>>;

impl Namespace {
    fn is_holder(&self, host: u8) -> bool {
        match self.rtype {
            0 => false,
            5 | 6 => self.keys.contains_key(&host),
            _ => self.holder == host,
        }
    }

    fn permits(&self, host: u8, is_read: bool) -> bool {
        let registered = self.keys.contains_key(&host);
        match self.rtype {
            0 => true,
            1 => is_read || self.is_holder(host),
            2 => self.is_holder(host),
            3 | 5 => is_read || registered,
            _ => registered,
        }
    }

    fn others(&self, host: u8, notice: u8) -> Notices {
        let others = self.keys.keys().filter(|other| **other != host);
        others.map(|other| (*other, notice)).collect()
    }

    fn hold(&mut self, rtype: u8, host: u8) {
        self.rtype = rtype;
        self.holder = if rtype < 5 { host } else { 0 };
    }

    fn end_if_unheld(&mut self) {
        let held = self.keys.keys().any(|host| self.is_holder(*host));
        if !held {
            self.hold(0, 0);
        }
    }

    fn register(&mut self, host: u8, keys: &Keys, cptpl: u8) -> Verdict {
        let own = self.keys.get(&host).copied();
        let unregisters = keys.action == 1;
        let mut refusals = Vec::new();
        if keys.action > 2 || cptpl == 1 || !unregisters && keys.other == 0 {
            refusals.push(FIELD);
        }
        let matches = own == Some(keys.current);
        let conflicts = match keys.action {
            0 => own.is_some_and(|own| own != keys.other),
            1 => own.is_none() || !keys.iekey && !matches,
            _ => !keys.iekey && !matches,
        };
        if conflicts {
            refusals.push(CONFLICT);
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        self.generation = self.generation.wrapping_add(1);
        self.ptpl = [self.ptpl, self.ptpl, false, true][usize::from(cptpl)];
        if !unregisters {
            self.keys.insert(host, keys.other);
            return Ok(Notices::new());
        }
        let before = self.rtype;
        self.keys.remove(&host);
        self.end_if_unheld();
        let released = matches!(before, 3 | 4) && self.rtype == 0;
        let notices = self.others(host, RELEASED);
        Ok(if released { notices } else { Notices::new() })
    }

    fn acquire(&mut self, host: u8, keys: &Keys) -> Verdict {
        let mut refusals = Vec::new();
        let preempts = keys.action != 0;
        let one_holds = (1..5).contains(&self.rtype);
        let nobody = preempts && keys.other == 0;
        let no_type = !(1..=6).contains(&keys.rtype);
        if keys.action > 2 || no_type || keys.iekey || nobody && one_holds {
            refusals.push(FIELD);
        }
        let matches = self.keys.get(&host) == Some(&keys.current);
        if !matches {
            refusals.push(CONFLICT);
        } else if !preempts {
            let again = self.rtype == keys.rtype && self.is_holder(host);
            if self.rtype != 0 && !again {
                refusals.push(CONFLICT);
            }
        } else if self.preempted(host, keys.other).is_none() {
            refusals.push(CONFLICT);
            if nobody {
                refusals.push(FIELD);
            }
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        if preempts {
            return Ok(self.preempt(host, keys));
        }
        if self.rtype == 0 {
            self.hold(keys.rtype, host);
        }
        Ok(Notices::new())
    }

    /// Returns the hosts to unregister, and whether `host` takes the reservation. `None` if the key
    /// matches no registrant.
    fn preempted(&self, host: u8, key: u64) -> Option<(BTreeSet<u8>, bool)> {
        let with_key = self.keys.iter().filter(|(_, own)| **own == key);
        let mut gone: BTreeSet<u8> = with_key.map(|(host, _)| *host).collect();
        let takes = match self.rtype {
            0 => false,
            5 | 6 => key == 0,
            _ => gone.contains(&self.holder),
        };
        if takes && key == 0 {
            gone = self.keys.keys().copied().collect();
        }
        if takes {
            gone.remove(&host);
        }
        (takes || !gone.is_empty()).then_some((gone, takes))
    }

    fn preempt(&mut self, host: u8, keys: &Keys) -> Notices {
        let (gone, takes) = self.preempted(host, keys.other).expect("it was checked");
        let before = self.rtype;
        self.generation = self.generation.wrapping_add(1);
        self.keys.retain(|host, _| !gone.contains(host));
        let lost = gone.iter().filter(|gone| **gone != host);
        let mut notices: Notices = lost.map(|gone| (*gone, UNREGISTERED)).collect();
        if takes {
            self.hold(keys.rtype, host);
        } else {
            self.end_if_unheld();
        }
        if before != 0 && before != self.rtype {
            notices.extend(self.others(host, RELEASED));
        }
        notices
    }

    /// A command that violates two rules may be refused for either.
    fn release(&mut self, host: u8, keys: &Keys) -> Verdict {
        let mut refusals = Vec::new();
        let releases = keys.action == 0;
        let holds = self.is_holder(host);
        if keys.action > 1 || keys.iekey || releases && holds && self.rtype != keys.rtype {
            refusals.push(FIELD);
        }
        if self.keys.get(&host) != Some(&keys.current) {
            refusals.push(CONFLICT);
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        if releases && !holds {
            return Ok(Notices::new());
        }
        let before = self.rtype;
        let notice = if releases { RELEASED } else { CLEARED };
        let notices = self.others(host, notice);
        self.hold(0, 0);
        if releases {
            return Ok(if before < 3 { Notices::new() } else { notices });
        }
        self.keys.clear();
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    fn report(&self) -> Report {
        let registrants = self.keys.iter();
        let registrants = registrants.map(|(host, key)| {
            let holds = u8::from(self.is_holder(*host));
            (*host, (*key, holds))
        });
        Report {
            generation: self.generation,
            rtype: self.rtype,
            ptpls: self.ptpl.into(),
            registrants: registrants.collect(),
        }
    }

    fn access(&self, io: Io, block: usize) -> Vec<(Status, Shown, u8)> {
        let now = self.blocks[block];
        let done = |value| vec![(OK, Shown::Nothing, value)];
        match io {
            Io::Read => vec![(OK, Shown::Block(now), now)],
            Io::Verify => done(now),
            Io::Compare(value) if value != now => {
                vec![(Status::COMPARE_FAILURE, Shown::Nothing, now)]
            }
            Io::Compare(_) => done(now),
            Io::Write(value) => done(value),
            Io::WriteZeroes => done(0),
            Io::Deallocate => [done(0), done(now)].concat(),
            Io::Copy => done(self.blocks[1 - block]),
        }
    }
}

fn refused(status: Status) -> Answer {
    let shown = Shown::Nothing;
    Answer { status, shown }
}

fn accepted(shown: Shown) -> Answer {
    Answer { status: OK, shown }
}

type Outcomes = Vec<(Answer, State)>;

impl State {
    pub(super) fn execute(&self, by: usize, nsid: u32, command: &Command) -> Outcomes {
        let host = CONTROLLERS[by];
        match *command {
            Command::Log => vec![self.read_log(by)],
            // An inactive NSID has a data structure of zeroes.
            Command::Identify => vec![(accepted(Shown::Nothing), self.clone())],
            Command::SetMask(_) if nsid == NSID_ALL => {
                let mut all = self.clone();
                for at in 0..NAMESPACES {
                    all.set(by, at, command);
                }
                vec![(accepted(Shown::Nothing), all)]
            }
            Command::GetMask | Command::GetPersistence if nsid == NSID_ALL => {
                vec![(refused(FIELD), self.clone())]
            }
            Command::Flush if nsid == NSID_ALL => self.flush(host, 0..NAMESPACES),
            _ => match (nsid as usize).checked_sub(1).filter(|at| *at < NAMESPACES) {
                Some(at) => self.execute_at(by, at, command),
                // A report without EDS and of no namespace violates two rules.
                None => [NSID, FIELD, Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT]
                    .map(|status| (refused(status), self.clone()))
                    .into(),
            },
        }
    }

    fn execute_at(&self, by: usize, at: usize, command: &Command) -> Outcomes {
        let (host, namespace) = (CONTROLLERS[by], &self.namespaces[at]);
        let unchanged = |answer| vec![(answer, self.clone())];
        let mut next = self.clone();
        let changed = &mut next.namespaces[at];
        let verdict = match command {
            Command::Register { keys, cptpl } => changed.register(host, keys, *cptpl),
            Command::Acquire(keys) => changed.acquire(host, keys),
            Command::Release(keys) => changed.release(host, keys),
            Command::Report { extended: true } => {
                return unchanged(accepted(Shown::Report(namespace.report())));
            }
            Command::Report { .. } => {
                return unchanged(refused(Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT));
            }
            Command::Io { io, .. } if !namespace.permits(host, io.is_read()) => {
                return unchanged(refused(CONFLICT));
            }
            Command::Io { io, block } => return self.access(at, *io, *block),
            Command::Flush => return self.flush(host, at..at + 1),
            Command::SetMask(_) | Command::SetPersistence(_) => {
                next.set(by, at, command);
                return vec![(accepted(Shown::Nothing), next)];
            }
            Command::GetMask => {
                let mask = self.told[by].masks[at];
                return unchanged(accepted(Shown::Dword(mask.into())));
            }
            Command::GetPersistence => {
                return unchanged(accepted(Shown::Dword(namespace.ptpl.into())));
            }
            Command::Log | Command::Identify => unreachable!("every NSID has them"),
        };
        match verdict {
            Err(refusals) => {
                let refusals = refusals.into_iter();
                let refusals = refusals.map(|status| (refused(status), self.clone()));
                refusals.collect()
            }
            Ok(notices) => {
                next.notify(at, &notices);
                let mut outcomes = vec![(accepted(Shown::Nothing), next)];
                // The specification leaves open whether a reserved type is refused if nothing is
                // released.
                if let Command::Release(Keys { rtype: 0 | 7.., .. }) = command {
                    outcomes.push((refused(FIELD), self.clone()));
                }
                outcomes
            }
        }
    }

    fn access(&self, at: usize, io: Io, block: usize) -> Outcomes {
        let results = self.namespaces[at].access(io, block).into_iter();
        let outcomes = results.map(|(status, shown, value)| {
            let mut next = self.clone();
            next.namespaces[at].blocks[block] = value;
            (Answer { status, shown }, next)
        });
        outcomes.collect()
    }

    /// The specification leaves open whether a flush of all namespaces fails if one forbids it.
    fn flush(&self, host: u8, of: std::ops::Range<usize>) -> Outcomes {
        let permitted = self.namespaces[of].iter();
        let permitted: Vec<bool> = permitted.map(|one| one.permits(host, false)).collect();
        let mut outcomes = Vec::new();
        if permitted.contains(&true) {
            outcomes.push((accepted(Shown::Nothing), self.clone()));
        }
        if permitted.contains(&false) {
            outcomes.push((refused(CONFLICT), self.clone()));
        }
        outcomes
    }

    fn set(&mut self, by: usize, at: usize, command: &Command) {
        match command {
            Command::SetMask(mask) => self.told[by].masks[at] = *mask,
            Command::SetPersistence(ptpl) => self.namespaces[at].ptpl = *ptpl,
            _ => unreachable!("{command:?} sets no feature"),
        }
    }

    fn notify(&mut self, at: usize, notices: &[(u8, u8)]) {
        for (told, of) in self.told.iter_mut().zip(CONTROLLERS) {
            for (host, notice) in notices {
                if *host == of && told.masks[at] >> notice & 1 == 0 {
                    told.unread.push((at as u32 + 1, *notice));
                    told.raised = true;
                }
            }
        }
    }

    fn read_log(&self, by: usize) -> (Answer, Self) {
        let mut next = self.clone();
        let unread = &mut next.told[by].unread;
        if unread.is_empty() {
            return (accepted(Shown::Notice(0, 0, 0)), next);
        }
        let (nsid, notice) = unread.remove(0);
        let others = unread.len() as u8;
        (accepted(Shown::Notice(nsid, notice, others)), next)
    }

    pub(super) fn begin_batch(mut self) -> Self {
        self.told.iter_mut().for_each(|told| told.raised = false);
        self
    }

    pub(super) fn forget(mut self, by: usize) -> Self {
        self.told[by] = Told::default();
        self
    }

    /// Removes all notifications and masks, and the reservations of namespaces without PTPL.
    pub(super) fn lose_power(mut self) -> Self {
        self.told = Default::default();
        for namespace in &mut self.namespaces {
            if !namespace.ptpl {
                let blocks = namespace.blocks;
                *namespace = Namespace {
                    blocks,
                    ..Namespace::default()
                };
            }
        }
        self
    }
}
