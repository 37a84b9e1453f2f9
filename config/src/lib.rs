//! Cairn's configuration: parses text into a checked [`Config`].
//!
//! A TOML file, the command line, or both form a configuration; all pass the same checks. A
//! `Config` is complete: sizes are in bytes, names are [`Nqn`]s, and each missing value has its
//! default or an identity that is equal at every start.
//!
//! ```
//! use cairn_config::{Config, Flags};
//!
//! let text = r#"
//!     [[listener]]
//!     address = "192.0.2.1"
//!
//!     [[subsystem]]
//!     nqn = "nqn.2024-01.com.example:disks"
//!     allow_any_host = true
//!
//!     [[subsystem.namespace]]
//!     nsid = 1
//!     export = "mem:64MiB"
//! "#;
//! let config = Config::parse("cairn.toml", text, &Flags::default())?;
//! assert_eq!(config.listeners[0].port, 4420);
//! # Ok::<(), cairn_config::ConfigError>(())
//! ```
//!
//! Each error names the problem, its position and the remedy; all errors of a file appear at once.

// Public items are for Cairn's programs; names and types document them.
#![allow(missing_docs)]

mod access;
mod advice;
mod block_size;
mod check;
mod config;
mod document;
mod doubt;
mod edit;
mod exports;
mod file;
mod flags;
mod identity;
mod key_path;
mod limits;
mod problem;
mod reach;
mod schema;
mod secret;
mod size;
mod suggest;

use cairn_base::shell::shell_word;
use std::collections::HashSet;
use std::fmt::Write;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nvme_proto::limits::namespaces_within;
use serde::Deserialize;

pub use access::Widened;
pub use block_size::BlockSize;
pub use cairn_base::{ImageSpec, Traddr, TraddrError, Trid};
pub use cairn_rdma::Roce;
pub use check::MODEL_DEFAULT;
pub use config::{
    ALLOWED_ADDRESSES_MAX, ALLOWED_HOSTS_MAX, ANA_STATES, Access, AnaOverride, Audit,
    Authentication, Backing, Config, ControlSettings, ControlSocket, DHCHAP_GROUPS, DHCHAP_HASHES,
    DhchapPolicy, FileId, GROUP_PREFIX, HOST_GROUPS_MAX, HostGroup, HostList, KEY_PREFIX, KEYS_MAX,
    KeySource, Keys, LISTENERS_MAX, LeftOut, Listener, Log, LogFormat, MARKING_RULES_MAX,
    METRICS_PORT_DEFAULT, Metrics, NSID_MAX, NamedKey, Namespace, Nguid, POLL_IDLE_DEFAULT_US,
    PORT_DEFAULT, Pool, PooledFile, Provider, REACTORS_MAX, REFERRALS_MAX, Reactors, Referral,
    SUBSYSTEMS_MAX, Subsystem, Target, ana_summary, ana_word,
};
pub use doubt::{host_doubt, is_slip, nearest_name};
pub use edit::{
    Draft, EditError, InForce, LimitsOf, Losses, NamespaceSettings, NewCeph, NewLimits,
    NewListener, NewNamespace, NewSubsystem, Only, SubsystemSettings,
};
pub use exports::Exports;
pub use flags::{Flags, absolute_export, absolute_path, resolved_export};
pub use identity::machine;
pub use limits::{BURST_DEFAULT, Limits};
pub use nvme_proto::ana::AnaStates;
pub use nvme_proto::wire::Nqn;
pub use problem::{ConfigError, Problem};
pub use schema::schema;
pub use secret::{InlineKey, without_secrets};
pub use size::{format as format_size, parse_size};
pub use uuid::Uuid;

use check::Check;
use document::Document;
use file::File;
use key_path::KeyPath;
use problem::Excerpt;

const FILE_MAX_BYTES: u64 = 16 << 20;

impl Config {
    pub fn from_file(path: &Path, flags: &Flags) -> Result<Self, ConfigError> {
        let text = read_file(path)?;
        let config = Self::parse(&path.display().to_string(), &text, flags)?;
        Ok(Self {
            file: Some(path.to_owned()),
            ..config
        })
    }

    /// Parses `text` and applies `flags`; errors call the file `name`.
    ///
    /// # Errors
    /// All problems of the text and the flags, or only the syntax errors if there are any.
    pub fn parse(name: &str, text: &str, flags: &Flags) -> Result<Self, ConfigError> {
        Self::parse_text(Some(name), text, flags)
    }

    /// Parses text that is in no file, such as a draft. Errors name objects instead of lines.
    pub fn parse_draft(text: &str, flags: &Flags) -> Result<Self, ConfigError> {
        Self::parse_text(None, text, flags)
    }

    fn parse_text(name: Option<&str>, text: &str, flags: &Flags) -> Result<Self, ConfigError> {
        let (document, mut problems) = Document::parse(name, text);
        if !problems.is_empty() {
            // After a syntax error, the parser may report the rest of the line as another error.
            problems.dedup_by_key(|problem| problem.line_column().map(|(line, _)| line));
            // The parser skips keys after a syntax error, so the checks would report them as
            // missing.
            return Err(ConfigError::new(problems));
        }
        let mut shaped = schema::shape(&document);
        let deserializer = toml::de::Deserializer::from(shaped.root);
        let file = File::deserialize(deserializer).unwrap_or_else(|error| {
            let excerpt = document.excerpt(error.span().unwrap_or(0..0));
            shaped
                .problems
                .push(Problem::new(error.message()).located(excerpt));
            File::default()
        });
        finish(
            file,
            flags,
            Some(&document),
            &shaped.dropped,
            shaped.problems,
        )
    }

    /// Returns the configuration plus the namespaces added by `draft`, and their NQNs and NSIDs.
    ///
    /// A full check would give the same result. Returns `None` for drafts with other changes, and
    /// if only a full check can decide.
    #[must_use]
    pub fn grown(&self, draft: &Draft) -> Option<(Self, Vec<(Nqn, u32)>)> {
        let added = draft.added()?;
        let checked = check_apart(added)?;
        let has_pools = self.subsystems.iter().any(|one| !one.pools.is_empty());
        if has_pools || self.has_disk_of(&checked) {
            return None;
        }
        let mut grown = self.clone();
        let mut places = Vec::new();
        let nsid_max = namespaces_within(self.target.max_transfer_bytes);
        for ((nqn, _), new) in added.iter().zip(checked) {
            let nqn = Nqn::parse(nqn).ok()?;
            let mut subsystems = grown.subsystems.iter_mut();
            let namespaces = &mut subsystems.find(|one| one.nqn == nqn)?.namespaces;
            let is_same = |one: &Namespace| {
                one.nsid == new.nsid
                    || one.uuid.is_some() && one.uuid == new.uuid
                    || one.known_nguid().is_some() && one.known_nguid() == new.known_nguid()
            };
            if new.nsid > nsid_max || namespaces.iter().any(is_same) {
                return None;
            }
            places.push((nqn, new.nsid));
            let at = namespaces.partition_point(|one| one.nsid < new.nsid);
            namespaces.insert(at, new);
        }
        let namespaces = grown.subsystems.iter().flat_map(|one| &one.namespaces);
        let memory = namespaces.filter(|one| matches!(one.backing, Backing::Memory { .. }));
        (memory.count() <= config::MEMORY_NAMESPACES_MAX).then_some((grown, places))
    }

    /// Returns the configuration minus the namespaces removed by `draft`, and their NQNs and NSIDs.
    ///
    /// Returns `None` for drafts with other changes, and if only a full check can decide.
    #[must_use]
    pub fn shrunk(&self, draft: &Draft) -> Option<(Self, Vec<(Nqn, u32)>)> {
        let removed = draft.removed()?;
        // A pool uses all NSIDs up to the next namespace, so a removal can give NSIDs to a pool.
        if self.subsystems.iter().any(|one| !one.pools.is_empty()) {
            return None;
        }
        let mut shrunk = self.clone();
        let mut places = Vec::new();
        for (nqn, nsid) in removed {
            let nqn = Nqn::parse(nqn).ok()?;
            let mut subsystems = shrunk.subsystems.iter_mut();
            let namespaces = &mut subsystems.find(|one| one.nqn == nqn)?.namespaces;
            let at = namespaces.binary_search_by_key(nsid, |one| one.nsid).ok()?;
            namespaces.remove(at);
            places.push((nqn, *nsid));
        }
        Some((shrunk, places))
    }

    fn has_disk_of(&self, new: &[Namespace]) -> bool {
        let place = |one: &Namespace| match &one.backing {
            Backing::Disk(path) => Some(path.clone()),
            _ => None,
        };
        let new: HashSet<PathBuf> = new.iter().filter_map(place).collect();
        let mut all = self.subsystems.iter().flat_map(|one| &one.namespaces);
        let is_known = |one: &Namespace| match &one.backing {
            Backing::Disk(path) => new.contains(path),
            _ => false,
        };
        !new.is_empty() && all.any(is_known)
    }

    /// Returns warnings about valid settings that are probably mistakes.
    ///
    /// A malformed NQN is only a warning: other targets use such names, though some hosts refuse
    /// them.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let odd = |what: &str, nqn: &Nqn| {
            let why = nqn.irregularity()?;
            Some(format!("{what} \"{nqn}\" is not an NQN: {why}"))
        };
        let of_subsystem = |subsystem: &Subsystem| {
            let hosts = subsystem.allowed_hosts.single(&self.host_groups);
            let name = odd("the subsystem's name", &subsystem.nqn);
            let hosts = hosts.filter_map(|host| odd("the allowed host", host));
            name.into_iter().chain(hosts).collect::<Vec<_>>()
        };
        let groups = self.host_groups.iter().flat_map(|group| {
            let what = format!("in the host group \"{}\", the host", group.name);
            let hosts = group.hosts.iter();
            hosts.filter_map(move |host| odd(&what, host))
        });
        let marked = self.marking.iter().filter_map(|rule| {
            let host = Nqn::parse(rule.scope.host_nqn.as_deref()?).ok()?;
            odd("host_nqn of a marking rule:", &host)
        });
        let subsystems = self.subsystems.iter().flat_map(of_subsystem);
        let removed = self.removed_keys().map(|(nqn, host, key)| {
            format!(
                "the host {host} cannot authenticate to {nqn}: its key \"{}\" was removed; give \
                 it another by cairn-target host key set",
                key.name
            )
        });
        let others = groups
            .chain(marked)
            .chain(removed)
            .chain(self.inline_keys());
        subsystems
            .chain(others)
            .chain(self.idle())
            .chain(self.keyless())
            .chain(self.unreachable())
            .chain(self.advice())
            .collect()
    }

    fn idle(&self) -> Vec<String> {
        let mut idle = Vec::new();
        if let (Some(group), None) = (&self.control.group, &self.control.exports) {
            idle.push(format!(
                "members of the group {group} may export every file and device that the target can open: \
                 list the permitted ones in [control] exports"
            ));
        }
        if self.listeners.is_empty() {
            idle.push("there is no listener: no host can connect".to_owned());
        }
        if self.subsystems.is_empty() {
            idle.push("there is no subsystem: hosts find no disk".to_owned());
        }
        for subsystem in &self.subsystems {
            let nqn = &subsystem.nqn;
            if subsystem.namespaces.is_empty() && subsystem.pools.is_empty() {
                idle.push(format!(
                    "{nqn} has no namespace: hosts that connect to it find no disk"
                ));
            }
            if subsystem.listeners.as_ref().is_some_and(Vec::is_empty) {
                idle.push(format!(
                    "no listener leads to {nqn}: no host can connect to it: cairn-target subsystem \
                     set {} --listener ADDR, or --every-listener",
                    shell_word(nqn.raw(), "NQN")
                ));
            }
            let list = &subsystem.allowed_hosts;
            let is_empty = list.hosts.is_empty() && list.groups.is_empty();
            if is_empty && !subsystem.allow_any_host {
                idle.push(format!(
                    "{nqn} allows no host: add one to allowed_hosts, or set allow_any_host = true"
                ));
            }
            if !is_empty && subsystem.allow_any_host {
                idle.push(format!(
                    "{nqn} lists hosts and lets every host connect, also one that it does not \
                     list: set allow_any_host = false if only the listed hosts may connect"
                ));
            }
        }
        idle
    }

    fn inline_keys(&self) -> impl Iterator<Item = String> {
        let has_some = |keys: &Keys| {
            let mut all = std::iter::once(&keys.host).chain(&keys.controller);
            all.any(|key| matches!(key, KeySource::Inline(_)))
        };
        let exposed = self.subsystems.iter().filter(move |subsystem| {
            let of = &subsystem.authentication;
            let hosts = of.hosts.iter().map(|(_, keys)| keys);
            of.others.iter().chain(hosts).any(has_some)
        });
        exposed.map(|subsystem| {
            format!(
                "the configuration file contains keys of {}, and each reader of the file learns them: write \
                 each key into a file of mode 0600, and name that file instead",
                subsystem.nqn
            )
        })
    }

    fn removed_keys(&self) -> impl Iterator<Item = (&Nqn, &Nqn, &NamedKey)> {
        self.subsystems.iter().flat_map(|subsystem| {
            let hosts = subsystem.authentication.hosts.iter();
            hosts.filter_map(move |(host, keys)| match &keys.host {
                KeySource::Named(key) if key.is_removed => Some((&subsystem.nqn, host, key)),
                _ => None,
            })
        })
    }

    pub fn from_flags(flags: &Flags) -> Result<Self, ConfigError> {
        finish(File::default(), flags, None, &HashSet::new(), Vec::new())
    }
}

/// Checks namespaces without the rest of the file. Returns `None` if a namespace is invalid, refers
/// to other parts, or exports a Ceph image or directory.
fn check_apart(added: &[(String, toml_edit::Table)]) -> Option<Vec<Namespace>> {
    let mut text = String::from("control.socket = \"off\"\nlistener = [{ address = \"::1\" }]\n");
    for (index, (_, table)) in added.iter().enumerate() {
        let names = table.get("hosts").and_then(toml_edit::Item::as_array);
        let is_special = |text: &str| text.starts_with("rbd:") || text.starts_with("dir:");
        let export = table.get("export").and_then(toml_edit::Item::as_str);
        if names.is_some_and(|names| !names.is_empty()) || export.is_none_or(is_special) {
            return None;
        }
        let name = format!("nqn.2024-01.com.example:{index}");
        write!(
            text,
            "[[subsystem]]\nnqn = \"{name}\"\nallow_any_host = true\n[[subsystem.namespace]]\n"
        )
        .ok()?;
        write!(text, "{table}").ok()?;
    }
    let config = Config::parse("", &text, &Flags::default()).ok()?;
    let namespaces = config.subsystems.into_iter().map(|one| one.namespaces);
    let alone = namespaces.map(|all| <[Namespace; 1]>::try_from(all).ok());
    alone.map(|one| one.map(|[one]| one)).collect()
}

fn finish(
    mut file: File,
    flags: &Flags,
    document: Option<&Document<'_>>,
    dropped: &HashSet<KeyPath>,
    mut problems: Vec<Problem>,
) -> Result<Config, ConfigError> {
    let origins = flags.apply(&mut file, &mut problems);
    let mut check = Check {
        document,
        origins: &origins,
        dropped,
        problems,
    };
    let config = check::config(&mut check, &file);
    if check.problems.is_empty() {
        Ok(config)
    } else {
        Err(ConfigError::new(check.problems))
    }
}

pub fn read_file(path: &Path) -> Result<String, ConfigError> {
    read(path).map_err(|problem| ConfigError::new(vec![problem]))
}

fn read(path: &Path) -> Result<String, Problem> {
    let name = path.display().to_string();
    let failed = |message: String, help: &str| {
        let mut problem = Problem::new(message).located(Excerpt::of_file(&name));
        problem.help(help);
        problem
    };
    let unreadable = |error: std::io::Error| {
        failed(
            format!("the file cannot be read: {error}"),
            "check its name, its permissions, and that it is text in UTF-8",
        )
    };
    let mut options = std::fs::File::options();
    // Without O_NONBLOCK, open(2) of a FIFO waits for a writer.
    let opened = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        let message = "not a regular file".to_owned();
        return Err(failed(
            message,
            "give the path of a regular file: a reload reads it again, which a pipe does not allow",
        ));
    }
    // The read is limited too: some files, such as those in /proc, report a length of 0.
    let mut text = String::new();
    let mut limited = file.take(FILE_MAX_BYTES + 1);
    limited.read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_MAX_BYTES {
        let length = metadata.len().max(text.len() as u64);
        let message = format!("the file has {length} bytes, too many for a configuration");
        return Err(failed(message, "is this the right file?"));
    }
    Ok(text)
}
