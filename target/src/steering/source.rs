//! Source of the configuration: file and command-line options.

use std::path::{Path, PathBuf};

use cairn_config::{
    Config, ConfigError, Draft, EditError, Flags, NewListener, NewNamespace, NewSubsystem, Reactors,
};

use crate::files;
use crate::pool::Pools;

#[derive(Debug, Clone)]
pub(crate) struct Source {
    path: Option<PathBuf>,
    flags: Flags,
    reactors: Option<u16>,
    pools: Pools,
}

pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

impl Source {
    pub(crate) fn new(path: Option<PathBuf>, flags: Flags, reactors: Option<u16>) -> Self {
        Self {
            path,
            flags,
            reactors,
            pools: Pools::default(),
        }
    }

    pub(super) fn pools(&self) -> &Pools {
        &self.pools
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(crate) fn read(&self) -> Result<(String, Config), String> {
        let text = match &self.path {
            Some(path) => {
                let read = files::call_here(path, cairn_config::read_file);
                let read = read.map_err(|error| format!("error: {}: {error}", path.display()))?;
                read.map_err(|error| error.to_string())?
            }
            None => String::new(),
        };
        let config = self.parse(&text).map_err(|error| error.to_string())?;
        Ok((text, config))
    }

    /// True if a configuration may be derived from the previous one. Command-line namespaces
    /// prevent this, because their NSIDs depend on the NSIDs in the file.
    pub(super) fn may_step(&self) -> bool {
        self.flags.export.is_empty()
    }

    /// Parses `text` without scanning directories.
    pub(super) fn check(&self, text: &str) -> Result<Config, ConfigError> {
        match &self.path {
            Some(path) => Config::parse(&path.display().to_string(), text, &self.flags),
            None if text.is_empty() => Config::from_flags(&self.flags),
            None => Config::parse_draft(text, &self.flags),
        }
    }

    pub(super) fn parse(&self, text: &str) -> Result<Config, ConfigError> {
        self.check(text).map(|config| self.completed(config))
    }

    /// Parses a text that is not in the file yet, and scans directories.
    pub(super) fn parse_draft(&self, text: &str) -> Result<Config, ConfigError> {
        Config::parse_draft(text, &self.flags).map(|config| self.completed(config))
    }

    fn completed(&self, mut config: Config) -> Config {
        if let Some(reactors) = self.reactors {
            config.target.reactors = Reactors::Count(usize::from(reactors));
        }
        config.file.clone_from(&self.path);
        self.pools.expand(&mut config, true);
        config
    }

    pub(crate) fn spell_out(&mut self, config: &Config) -> Result<String, EditError> {
        if self.path.is_some() {
            return Ok(String::new());
        }
        let mut draft = Draft::new("")?;
        for listener in &config.listeners {
            draft.add_listener(&NewListener {
                pkey: self.flags.pkey.map(|pkey| pkey.bits()),
                ..NewListener::at(listener.address, listener.port)
            })?;
        }
        for subsystem in &config.subsystems {
            draft.add_subsystem(&NewSubsystem {
                nqn: subsystem.nqn.raw().to_owned(),
                allow_any_host: subsystem.allow_any_host,
                ..NewSubsystem::default()
            })?;
            let own = subsystem.namespaces.iter();
            for namespace in own.filter(|namespace| namespace.pooled.is_none()) {
                let new = NewNamespace {
                    nsid: Some(namespace.nsid),
                    export: namespace.backing.to_string(),
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
