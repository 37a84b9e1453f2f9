//! Checks of the disks and the memory of namespaces. All disks stay open until the last check, so
//! that a disk configured twice is found.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::Instant;

use cairn_config::{Backing, Config, Namespace, Nqn, Uuid};
use cairn_disk::{Backend, FoundPath, IN_USE_PATIENCE, copied_identity};
use rustix::fs::{Access, AtFlags, CWD};

use super::running::{Object, Problem};
use super::{Finding, Severity, writable};
use crate::files;
use crate::server::{DiskRules, Identity, check_stored, tell_apart, try_backend};
use crate::steering::copy_sentence;

const LATE_MAX: u32 = 3;

/// (device, inode) of a file, or (device number, 0) of a device.
type Place = (u64, u64);

struct Opened<'a> {
    nqn: &'a Nqn,
    config: &'a Namespace,
    bytes: u64,
    is_in_memory: bool,
    disk: Backend,
}

struct Probed {
    place: Option<Place>,
    bytes: u64,
    is_in_memory: bool,
    opened: Result<Option<Backend>, String>,
}

impl Probed {
    fn failed(error: String) -> Self {
        Self {
            place: None,
            bytes: 0,
            is_in_memory: false,
            opened: Err(error),
        }
    }

    fn at(rules: &DiskRules, namespace: &Namespace, until: Instant) -> Self {
        let opened = || try_backend(rules, namespace, until).map_err(|error| error.to_string());
        let Backing::Disk(path) = &namespace.backing else {
            return Self {
                place: None,
                bytes: 0,
                is_in_memory: false,
                opened: opened(),
            };
        };
        let found = FoundPath::find(path).ok();
        let opened = may_open(path, namespace.read_only).and_then(|()| opened());
        Self {
            place: found.as_ref().map(FoundPath::place),
            is_in_memory: found.as_ref().is_some_and(FoundPath::is_in_memory),
            bytes: found.map_or(0, |found| found.bytes()),
            opened,
        }
    }
}

/// Opens the disk of a namespace. While the disk is in use, retries until `until`. `late` counts
/// disks that miss the deadline of file accesses.
fn probe_in_time(
    rules: &DiskRules,
    namespace: &Namespace,
    until: Instant,
    late: &mut u32,
) -> Result<Probed, String> {
    let Backing::Disk(path) = &namespace.backing else {
        return Ok(Probed::at(rules, namespace, until));
    };
    let shown = path.display();
    if *late == LATE_MAX {
        return Err(format!(
            "{shown} is not checked, because {LATE_MAX} other disks do not answer"
        ));
    }
    let (rules, config) = (rules.clone(), namespace.clone());
    let probed = files::call_here(path, move |_| Probed::at(&rules, &config, until));
    probed.map_err(|error| {
        *late += 1;
        format!("{shown}: {error}")
    })
}

/// Returns problems of namespaces and memory, and notes on disks in tmpfs or with a partial block.
pub(super) fn problems(config: &Config) -> (Vec<Problem>, Vec<Finding>) {
    let mut problems = Vec::new();
    let mut opened: Vec<Opened<'_>> = Vec::new();
    let mut places = HashSet::new();
    let mut late = 0;
    // All disks share one time limit, because a running target may use all of them.
    let until = Instant::now() + IN_USE_PATIENCE;
    let rules = DiskRules::of(config);
    for subsystem in &config.subsystems {
        for namespace in &subsystem.namespaces {
            let nqn = &subsystem.nqn;
            let probed = probe_in_time(&rules, namespace, until, &mut late);
            let probed = probed.unwrap_or_else(Probed::failed);
            let is_first = probed.place.is_none_or(|place| places.insert(place));
            let disk = match probed.opened {
                Ok(None) => continue,
                Ok(Some(disk)) => disk,
                Err(error) => {
                    let text = format!("namespace {} of {nqn}: {error}", namespace.nsid);
                    let disk = Object::Disk(namespace.backing.to_string());
                    problems.push(match is_first {
                        true => Problem::of(disk, text),
                        false => Problem::of_file(text),
                    });
                    continue;
                }
            };
            opened.push(Opened {
                nqn,
                config: namespace,
                bytes: probed.bytes,
                is_in_memory: probed.is_in_memory,
                disk,
            });
            let all = opened.iter().enumerate();
            if let Err(error) = tell_apart(all.map(|(index, one)| one.identity(index))) {
                opened.pop();
                problems.push(Problem::of_file(error.to_string()));
            }
        }
    }
    if problems.is_empty() {
        problems.extend(memory(config));
    }
    let notes = opened.iter().flat_map(Opened::notes).collect();
    let state = config.target.state_directory.as_deref();
    if let Some(folder) = state.filter(|folder| writable::state_problem(folder).is_none()) {
        let lost = opened.into_iter().filter_map(|one| one.loss(folder));
        problems.extend(lost);
    }
    (problems, notes)
}

impl Opened<'_> {
    fn loss(self, folder: &Path) -> Option<Problem> {
        let (nqn, config, disk) = (*self.nqn, self.config.clone(), self.disk);
        let checked = files::call_here(folder, move |folder| {
            check_stored(folder, nqn, &config, disk).map_err(|error| error.to_string())
        });
        let error = checked
            .unwrap_or_else(|error| Err(error.to_string()))
            .err()?;
        Some(Problem::of_file(format!(
            "namespace {} of {nqn}: {error}; serve starts without it",
            self.config.nsid
        )))
    }

    fn notes(&self) -> Vec<Finding> {
        let Backing::Disk(path) = &self.config.backing else {
            return Vec::new();
        };
        let of = files::call_here(path, copied_identity).ok().flatten();
        let of = of.filter(|_| self.config.uuid.is_none());
        let copied = of.map(|of| copy_sentence(path, of));
        let path = path.display();
        let block = self.disk.geometry().block_bytes;
        let rest = self.bytes % u64::from(block);
        let hidden_end = (rest != 0).then(|| {
            format!(
                "the size of {path} is no multiple of the block, {block} bytes: hosts do not see its \
                 last {rest} bytes"
            )
        });
        let in_memory = self.is_in_memory.then(|| {
            format!("{path} is in memory (tmpfs): its contents are lost when the machine stops")
        });
        let texts = hidden_end.into_iter().chain(in_memory).chain(copied);
        let finding = |text| Finding {
            severity: Severity::Note,
            text: format!("namespace {} of {}: {text}", self.config.nsid, self.nqn),
        };
        texts.map(finding).collect()
    }

    /// Device and inode replace an unconfigured UUID, because the disk's own UUID may not be stored
    /// yet.
    fn identity(&self, index: usize) -> Identity<'_> {
        let place = self.disk.place();
        let derived = match place {
            Some((device, inode)) => Uuid::from_u64_pair(device, inode),
            None => Uuid::from_u64_pair(u64::MAX, index as u64),
        };
        let uuid = self.config.uuid.unwrap_or(derived);
        Identity {
            nqn: self.nqn,
            nsid: self.config.nsid,
            id: index as u64,
            uuid,
            nguid: self.config.nguid.map(|nguid| nguid.with(uuid)),
            is_named: self.config.uuid.is_some(),
            place,
            read_only: self.config.read_only,
        }
    }
}

fn may_open(path: &Path, read_only: bool) -> Result<(), String> {
    let shown = path.display();
    let user = super::user();
    let wanted = if read_only {
        Access::READ_OK
    } else {
        Access::READ_OK | Access::WRITE_OK
    };
    match rustix::fs::accessat(CWD, path, wanted, AtFlags::EACCESS) {
        Err(rustix::io::Errno::ROFS) => {
            Err(format!("{shown} cannot be written: export it read-only"))
        }
        Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => Err(format!(
            "no permission to open {shown}: let {user} read and write it, or export it read-only"
        )),
        _ => Ok(()),
    }
}

fn memory(config: &Config) -> Option<Problem> {
    let namespaces = config.subsystems.iter().flat_map(|one| &one.namespaces);
    let sizes = namespaces.filter_map(|one| match one.backing {
        Backing::Memory { bytes } => Some(bytes),
        _ => None,
    });
    let wanted = sizes.fold(0_u64, u64::saturating_add);
    let there = memory_of_machine().ok()?;
    (wanted > there).then(|| {
        Problem::of_file(format!(
            "the namespaces of memory have {wanted} bytes together, and this machine has {there}: make them smaller"
        ))
    })
}

#[expect(clippy::disallowed_methods, reason = "/proc")]
fn memory_of_machine() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    let kib: u64 = number.and_then(|kib| kib.parse().ok()).unwrap_or(u64::MAX);
    Ok(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::Flags;

    #[test]
    fn a_file_that_is_no_multiple_of_the_block_gets_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let notes = |bytes| {
            let path = folder.path().join("disk");
            std::fs::File::create(&path)
                .unwrap()
                .set_len(bytes)
                .unwrap();
            let text = format!(
                "[[listener]]\naddress = \"127.0.0.1\"\n\
                 [[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n\
                 [[subsystem.namespace]]\nnsid = 7\nexport = \"{}\"\nblock_size = 512\n",
                path.display()
            );
            let (problems, notes) = problems(&Config::parse("", &text, &Flags::default()).unwrap());
            assert!(problems.is_empty());
            notes
        };
        assert!(notes(1 << 20).is_empty());
        let [note] = <[Finding; 1]>::try_from(notes((1 << 20) + 100)).unwrap();
        let note = note.text;
        assert!(
            note.starts_with("namespace 7 of nqn.2024-01.com.example:a"),
            "{note}"
        );
        assert!(note.ends_with("last 100 bytes"), "{note}");
    }
}
