//! Files that the target reads or writes for itself. An export of them would let hosts change the
//! target.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cairn_config::{Config, KeySource, Keys};
use cairn_disk::FoundPath;

/// Paths of the target's own files.
#[derive(Clone)]
pub(crate) struct OwnFiles {
    files: Vec<(PathBuf, &'static str)>,
    state_directory: Option<PathBuf>,
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
        Self {
            files: named.chain(keys).collect(),
            state_directory: config.target.state_directory.clone(),
        }
    }

    /// Returns the use that the target makes of a file, or `None` if the file is not its own. The
    /// call may block.
    pub(crate) fn role(&self, found: &FoundPath) -> Option<&'static str> {
        let is_found =
            |path: &PathBuf| FoundPath::find(path).is_ok_and(|own| own.place() == found.place());
        let file = self.files.iter().find(|(path, _)| is_found(path));
        let file = file.map(|(_, role)| *role);
        file.or_else(|| {
            self.is_state(found)
                .then_some("part of its state_directory")
        })
    }

    /// Returns each file's [place](FoundPath::place) and use, without those in the
    /// `state_directory`.
    pub(crate) fn places(&self) -> HashMap<(u64, u64), &'static str> {
        let found = |(path, role): &(PathBuf, &'static str)| {
            FoundPath::find(path)
                .ok()
                .map(|found| (found.place(), *role))
        };
        self.files.iter().filter_map(found).collect()
    }

    pub(crate) fn is_state(&self, found: &FoundPath) -> bool {
        let folder = self
            .state_directory
            .as_ref()
            .and_then(|path| location(path));
        let found = found.location().ok();
        folder
            .zip(found)
            .is_some_and(|(folder, found)| found.starts_with(folder))
    }
}

fn location(path: &Path) -> Option<PathBuf> {
    FoundPath::find(path).ok()?.location().ok()
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
