//! Files that the target reads or writes for itself. An export of them would let hosts change the
//! target.

use std::path::PathBuf;

use cairn_config::Config;
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
        let files = named
            .into_iter()
            .filter_map(|(path, role)| path.clone().map(|path| (path, role)));
        Self {
            files: files.collect(),
            state_directory: config.target.state_directory.clone(),
        }
    }

    /// Returns the use that the target makes of a file, or `None` if the file is not its own. The
    /// call may block.
    pub(crate) fn role(&self, found: &FoundPath) -> Option<&'static str> {
        let is_found =
            |path: &PathBuf| FoundPath::find(path).is_ok_and(|own| own.place() == found.place());
        let file = self.files.iter().find(|(path, _)| is_found(path));
        let is_state = || {
            let folder = FoundPath::find(self.state_directory.as_ref()?).ok()?;
            let folder = folder.location().ok()?;
            found
                .location()
                .ok()?
                .starts_with(folder)
                .then_some("part of its state_directory")
        };
        file.map(|(_, role)| *role).or_else(is_state)
    }
}
