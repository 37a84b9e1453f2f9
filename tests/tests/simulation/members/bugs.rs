//! Faults of a target, planted between it and the hosts, which the simulation must find.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::spec::{Answer, Command, Io, Keys, Report, Shown};
use nvme_proto::wire::Status;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// A preempted host is reported as registered.
    PreemptedStays,
    /// The reservation of a host that unregisters is reported as held.
    UnregisteredHolds,
    /// Register changes no PTPL state.
    ForgetsCptpl,
    /// Set Features changes PTPL of namespace 1, whatever NSID it has.
    PersistsOne,
    OthersWrite,
    /// Conflicting commands without data are executed.
    OthersVerify,
    /// A change is answered as it arrives, before it applies on all reactors.
    AnswersEarly,
    /// Notifications are not in the log page.
    NoNotice,
    /// The host gets no event for notifications in the log page.
    NoEvent,
    IgnoresMask,
    IgnoresKey,
    OldReport,
    StoresNothing,
    StoresLate,
}

pub(super) const ALL: [Bug; 14] = [
    Bug::PreemptedStays,
    Bug::UnregisteredHolds,
    Bug::ForgetsCptpl,
    Bug::PersistsOne,
    Bug::OthersWrite,
    Bug::OthersVerify,
    Bug::AnswersEarly,
    Bug::NoNotice,
    Bug::NoEvent,
    Bug::IgnoresMask,
    Bug::IgnoresKey,
    Bug::OldReport,
    Bug::StoresNothing,
    Bug::StoresLate,
];

pub(super) struct Planted {
    pub(super) bug: Option<Bug>,
    folder: PathBuf,
    reports: BTreeMap<u32, Report>,
    lies: bool,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Planted {
    pub(super) fn new(bug: Option<Bug>, folder: &Path) -> Self {
        Self {
            bug,
            folder: folder.to_owned(),
            reports: BTreeMap::new(),
            lies: false,
            files: Vec::new(),
        }
    }

    pub(super) fn on_the_way(&self, command: Command, nsid: &mut u32) -> Command {
        match (self.bug, command) {
            (Some(Bug::ForgetsCptpl), Command::Register { keys, cptpl: 2.. }) => {
                Command::Register { keys, cptpl: 0 }
            }
            (Some(Bug::IgnoresKey), Command::Register { keys, cptpl }) => {
                let keys = Keys {
                    iekey: true,
                    ..keys
                };
                Command::Register { keys, cptpl }
            }
            (Some(Bug::IgnoresMask), Command::SetMask(_)) => Command::SetMask(0),
            (Some(Bug::PersistsOne), Command::SetPersistence(_)) => {
                *nsid = (*nsid).min(1);
                command
            }
            _ => command,
        }
    }

    pub(super) fn answered(&mut self, nsid: u32, command: &Command, answer: &mut Answer) {
        let is_done = answer.status.is_success();
        match (self.bug, command) {
            (
                Some(Bug::OthersWrite),
                Command::Io {
                    io: Io::Write(_), ..
                },
            )
            | (Some(Bug::OthersVerify), Command::Io { io: Io::Verify, .. })
                if answer.status == Status::RESERVATION_CONFLICT =>
            {
                answer.status = Status::SUCCESS;
            }
            (Some(Bug::NoNotice), Command::Log) => answer.shown = Shown::Notice(0, 0, 0),
            (Some(Bug::PreemptedStays), Command::Acquire(Keys { action: 1.., .. }))
            | (
                Some(Bug::UnregisteredHolds),
                Command::Register {
                    keys: Keys { action: 1, .. },
                    ..
                },
            )
            | (Some(Bug::OldReport), Command::Register { .. }) => self.lies |= is_done,
            _ => {}
        }
        if let Shown::Report(report) = &mut answer.shown {
            let before = self.reports.insert(nsid, report.clone());
            if let Some(before) = before.filter(|_| self.lies) {
                self.lies = false;
                self.change(report, &before);
            }
        }
    }

    fn change(&self, report: &mut Report, before: &Report) {
        match self.bug {
            Some(Bug::PreemptedStays) => {
                let registrants = before.registrants.iter();
                for (host, of) in registrants {
                    report.registrants.entry(*host).or_insert(*of);
                }
            }
            Some(Bug::UnregisteredHolds) => report.rtype = before.rtype,
            _ => *report = before.clone(),
        }
    }

    pub(super) fn settled(&mut self) {
        if self.bug == Some(Bug::StoresLate) {
            let files = fs::read_dir(&self.folder).expect("the state directory");
            let paths = files.map(|file| file.expect("a file").path());
            let with_content = paths.map(|path| {
                let content = fs::read(&path).expect("the file is there");
                (path, content)
            });
            self.files = with_content.collect();
        }
    }

    /// After a kill, deletes the target's state files, or restores older files for `StoresLate`.
    pub(super) fn killed(&self) {
        if matches!(self.bug, Some(Bug::StoresNothing | Bug::StoresLate)) {
            for file in fs::read_dir(&self.folder).expect("the state directory") {
                let _ = fs::remove_file(file.expect("a file").path());
            }
            for (path, content) in &self.files {
                fs::write(path, content).expect("the file was there");
            }
        }
    }
}
