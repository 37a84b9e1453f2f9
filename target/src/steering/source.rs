//! Where the configuration comes from, and how it is written back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use cairn_config::{
    Access, Backing, Config, ConfigError, Draft, EditError, Flags, NewListener, NewNamespace,
    NewSubsystem, Reactors,
};

use crate::pool::Pools;

/// What errors call the configuration of a target without a file.
const NO_FILE: &str = "the configuration";

/// A file and the options of the command line, or these alone.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    path: Option<PathBuf>,
    flags: Flags,
    reactors: Option<u16>,
    pools: Pools,
}

/// Why the file cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// Someone else has changed it.
    #[error(
        "{0} has changed since the target read it: look at what changed, let the target read \
         it (cairn-target reload), then try again"
    )]
    Changed(PathBuf),
    /// The system refuses.
    #[error("cannot write {path}: {source}: make the file and its folder writable for the target")]
    System {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Source {
    /// `path`: the file, if there is one. `reactors` overrides what it says.
    pub(crate) fn new(path: Option<PathBuf>, flags: Flags, reactors: Option<u16>) -> Self {
        Self {
            path,
            flags,
            reactors,
            pools: Pools::default(),
        }
    }

    /// The directories whose files are namespaces.
    pub(super) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// The file.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Reads the file: its text, and what that means with the options.
    pub(crate) fn read(&self) -> Result<(String, Config), ConfigError> {
        let text = match &self.path {
            Some(path) => cairn_config::read_file(path)?,
            None => String::new(),
        };
        let config = self.parse(&text)?;
        Ok((text, config))
    }

    /// What a text means with the options.
    pub(super) fn parse(&self, text: &str) -> Result<Config, ConfigError> {
        let mut config = match &self.path {
            Some(path) => Config::parse(&path.display().to_string(), text, &self.flags)?,
            None if text.is_empty() => Config::from_flags(&self.flags)?,
            None => Config::parse(NO_FILE, text, &self.flags)?,
        };
        if let Some(reactors) = self.reactors {
            config.target.reactors = Reactors::Count(usize::from(reactors));
        }
        self.pools.expand(&mut config, true);
        Ok(config)
    }

    /// Without a file, what the options add becomes a text that can be edited.
    pub(crate) fn spell_out(&mut self, config: &Config) -> Result<String, EditError> {
        if self.path.is_some() {
            return Ok(String::new());
        }
        let mut draft = Draft::new("")?;
        for listener in &config.listeners {
            draft.add_listener(&NewListener {
                address: listener.address,
                port: listener.port,
                provider: None,
                ana: None,
                pkey: self.flags.pkey.map(|pkey| pkey.bits()),
                port_id: None,
            })?;
        }
        for subsystem in &config.subsystems {
            draft.add_subsystem(&NewSubsystem {
                nqn: subsystem.nqn.raw().to_owned(),
                allow_any_host: subsystem.access == Access::AnyHost,
                ..NewSubsystem::default()
            })?;
            let own = subsystem.namespaces.iter();
            for namespace in own.filter(|namespace| namespace.pooled.is_none()) {
                let new = NewNamespace {
                    nsid: Some(namespace.nsid),
                    export: export_of(&namespace.backing),
                    ..NewNamespace::default()
                };
                draft.add_namespace(subsystem.nqn.raw(), &new)?;
            }
            for pool in &subsystem.pools {
                let new = NewNamespace {
                    nsid: Some(pool.like.nsid),
                    export: format!("dir:{}", pool.folder.display()),
                    ..NewNamespace::default()
                };
                draft.add_namespace(subsystem.nqn.raw(), &new)?;
            }
        }
        self.flags = Flags {
            listen: Vec::new(),
            export: Vec::new(),
            nqn: None,
            pkey: None,
            ..std::mem::take(&mut self.flags)
        };
        Ok(draft.text())
    }

    /// Writes `text` beside the file, which must be `old` still. Blocks.
    pub(super) fn prepare(&self, old: &str, text: &str) -> Result<Option<Prepared>, WriteError> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let system = |source: io::Error| WriteError::System {
            path: path.clone(),
            source,
        };
        // A link stays one.
        let path = fs::canonicalize(path).map_err(system)?;
        let mut prepared = Prepared {
            new: beside(&path),
            path,
            old: old.to_owned(),
            is_done: false,
        };
        prepared.check()?;
        prepared.write(text).map_err(system)?;
        Ok(Some(prepared))
    }
}

/// What names a backing in a file.
pub(super) fn export_of(backing: &Backing) -> String {
    match backing {
        Backing::Disk(path) => path.display().to_string(),
        Backing::Rbd(image) => image.to_string(),
        Backing::Memory { bytes } => format!("mem:{bytes}"),
        Backing::Null { bytes } => format!("null:{bytes}"),
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// A text that is on the disk, under another name. Dropped, it goes.
#[derive(Debug)]
pub(super) struct Prepared {
    path: PathBuf,
    new: PathBuf,
    old: String,
    is_done: bool,
}

impl Prepared {
    fn check(&self) -> Result<(), WriteError> {
        match fs::read(&self.path) {
            Ok(now) if now == self.old.as_bytes() => Ok(()),
            Ok(_) => Err(WriteError::Changed(self.path.clone())),
            Err(source) => Err(self.system(source)),
        }
    }

    fn system(&self, source: io::Error) -> WriteError {
        WriteError::System {
            path: self.path.clone(),
            source,
        }
    }

    /// With owner and mode of the old file.
    fn write(&mut self, text: &str) -> io::Result<()> {
        // One that a crash has left.
        let _ = fs::remove_file(&self.new);
        let like = fs::metadata(&self.path)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.new)?;
        let now = file.metadata()?;
        if (now.uid(), now.gid()) != (like.uid(), like.gid()) {
            fchown(&file, Some(like.uid()), Some(like.gid()))?;
        }
        file.set_permissions(like.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Puts it in the old file's place. Blocks.
    pub(super) fn commit(mut self) -> Result<(), WriteError> {
        self.check()?;
        fs::rename(&self.new, &self.path).map_err(|error| self.system(error))?;
        self.is_done = true;
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| self.system(error))
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = fs::remove_file(&self.new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.toml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let source = Source::new(Some(link.clone()), Flags::default(), None);
        let prepared = source.prepare("old", "new").unwrap().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        prepared.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(link.is_symlink());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_others_changed_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.toml");
        fs::write(&path, "theirs").unwrap();
        let source = Source::new(Some(path.clone()), Flags::default(), None);
        let refused = source.prepare("old", "new");
        assert!(matches!(refused, Err(WriteError::Changed(_))));
        let prepared = source.prepare("theirs", "new").unwrap().unwrap();
        fs::write(&path, "theirs again").unwrap();
        assert!(matches!(prepared.commit(), Err(WriteError::Changed(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs again");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_options_say_can_be_edited() {
        let flags = Flags {
            listen: vec!["192.0.2.1".into(), "[2001:db8::1]:4421".into()],
            export: vec![
                "mem:1MiB".into(),
                "null:1GiB".into(),
                "dir:/nonexistent".into(),
            ],
            pkey: cairn_rdma::PKey::new(0x8001),
            provider: Some("soft".into()),
            ..Flags::default()
        };
        let mut source = Source::new(None, flags, Some(3));
        let (_, config) = source.read().unwrap();
        let text = source.spell_out(&config).unwrap();
        assert_eq!(source.parse(&text).unwrap(), config, "{text}");
    }
}
