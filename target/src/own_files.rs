//! Files that the target itself reads or writes. If exported, they would let hosts change the
//! target.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cairn_config::{Config, KeySource, Keys};
use cairn_disk::FoundPath;

use crate::files;

/// Time limit to look up all own files: a part of the ten seconds for opening a disk.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Pseudo path of the lookup, because [`files`] identifies calls by path.
const LOOKUP: &str = "own files";

#[derive(Clone)]
pub(crate) struct OwnFiles(Arc<Paths>);

struct Paths {
    files: Vec<(PathBuf, &'static str)>,
    state_directory: Option<PathBuf>,
    found: OnceLock<Found>,
}

#[derive(Clone, Default)]
struct Found {
    places: HashMap<(u64, u64), &'static str>,
    state_directory: Option<PathBuf>,
    is_complete: bool,
}

impl OwnFiles {
    pub(crate) fn of(config: &Config) -> Self {
        let named = [
            (&config.file, "its configuration file"),
            (&config.audit.file, "its audit log"),
        ];
        let named = named
            .into_iter()
            .filter_map(|(path, role)| path.clone().map(|path| (path, role)));
        let keys = keys(config).map(|path| (path.to_owned(), "the file of a key"));
        Self(Arc::new(Paths {
            files: named.chain(keys).collect(),
            state_directory: config.target.state_directory.clone(),
            found: OnceLock::new(),
        }))
    }

    /// Returns the target's use of a file, or `None` for other files. May block for
    /// [`LOOKUP_TIMEOUT`].
    pub(crate) fn role(&self, found: &FoundPath) -> Option<&'static str> {
        let known = self
            .role_at(found.place())
            .or_else(|| self.role_by_path(found));
        known.or_else(|| {
            self.is_state(found)
                .then_some("part of its state_directory")
        })
    }

    pub(crate) fn role_at(&self, place: (u64, u64)) -> Option<&'static str> {
        self.found().places.get(&place).copied()
    }

    /// Compares paths if the lookup timed out, because inodes and links are then unknown.
    fn role_by_path(&self, found: &FoundPath) -> Option<&'static str> {
        if self.found().is_complete {
            return None;
        }
        let location = found.location().ok()?;
        let is_it = |path: &Path| path == location || path == found.path();
        let file = self.0.files.iter().find(|(path, _)| is_it(path));
        file.map(|(_, role)| *role)
    }

    pub(crate) fn is_state(&self, found: &FoundPath) -> bool {
        let folder = &self.found().state_directory;
        let folder = folder.as_ref().or(self.0.state_directory.as_ref());
        let found = found.location().ok();
        folder
            .zip(found)
            .is_some_and(|(folder, found)| found.starts_with(folder))
    }

    fn found(&self) -> &Found {
        self.0.found.get_or_init(|| {
            let found = Arc::new(Mutex::new(Found::default()));
            let (paths, out) = (Arc::clone(&self.0), Arc::clone(&found));
            let _ = files::call_here_within(LOOKUP_TIMEOUT, Path::new(LOOKUP), move |_| {
                paths.look_up(&out);
            });
            let found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.clone()
        })
    }
}

impl Paths {
    fn look_up(&self, out: &Mutex<Found>) {
        let found = || out.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.state_directory.as_deref().map(FoundPath::find);
        let folder = folder.and_then(|folder| folder.ok()?.location().ok());
        found().state_directory = folder;
        for (path, role) in &self.files {
            if let Ok(file) = FoundPath::find(path) {
                found().places.entry(file.place()).or_insert(role);
            }
        }
        found().is_complete = true;
    }
}

fn keys(config: &Config) -> impl Iterator<Item = &Path> {
    fn sources(keys: &Keys) -> [Option<&KeySource>; 2] {
        [Some(&keys.host), keys.controller.as_ref()]
    }
    let authentication = config.subsystems.iter().map(|one| &one.authentication);
    let used = authentication.flat_map(|one| {
        one.others
            .iter()
            .chain(one.hosts.iter().map(|(_, keys)| keys))
    });
    let files = used
        .flat_map(sources)
        .flatten()
        .filter_map(|source| match source {
            KeySource::File(path) => Some(&**path),
            KeySource::Named(_) | KeySource::Credential(_) | KeySource::Inline(_) => None,
        });
    files.chain(config.keys.iter().map(|key| &*key.path))
}
