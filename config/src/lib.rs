//! Cairn's configuration: text in, a checked [`Config`] out, once.
//!
//! A configuration comes from a TOML file, from the command line, or from
//! both; either way it goes through one set of checks. Past them, a `Config`
//! needs no second look: sizes are bytes, names are [`Nqn`]s, and what was not
//! given has its default or an identity that stays the same from start to
//! start.
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
//! A person reads the errors, so each says what is wrong, where, and what to
//! write instead, and all of a file's are reported at once:
//!
//! ```text
//! error: unknown key "adress" in [[listener]]
//!   --> cairn.toml:2:1
//!   |
//! 2 | adress = "192.0.2.1"
//!   | ^^^^^^
//!   help: did you mean "address"?
//! ```

mod check;
mod config;
mod document;
mod edit;
mod file;
mod flags;
mod identity;
mod place;
mod problem;
mod schema;
mod size;
mod suggest;

use std::collections::HashSet;
use std::path::Path;

use serde::Deserialize;

pub use cairn_rbd::Spec as ImageSpec;
pub use config::{
    ALLOWED_ADDRESSES_MAX, ALLOWED_HOSTS_MAX, Access, Audit, Authentication, BURST_DEFAULT,
    Backing, BlockSize, Config, Control, ControlSocket, DHCHAP_GROUPS, DHCHAP_HASHES, FileId,
    GROUP_PREFIX, HOST_GROUPS_MAX, HostGroup, HostList, KEY_PREFIX, KEYS_MAX, KeySource, Keys,
    LISTENERS_MAX, LeftOut, Limits, Listener, Log, LogFormat, MARKING_RULES_MAX,
    METRICS_PORT_DEFAULT, Metrics, NSID_MAX, NamedKey, Namespace, POLL_IDLE_DEFAULT_US,
    PORT_DEFAULT, Pool, PooledFile, Provider, REACTORS_MAX, REFERRALS_MAX, Reactors, Referral,
    Roce, SUBSYSTEMS_MAX, Subsystem, Target,
};
pub use edit::{Draft, EditError, LimitsOf, NewLimits, NewListener, NewNamespace, NewSubsystem};
pub use flags::Flags;
pub use identity::machine;
pub use nvme_proto::ana::AnaStates;
pub use nvme_proto::wire::Nqn;
pub use problem::{ConfigError, Problem};
pub use schema::schema;
pub use size::{format as format_size, parse_size};
pub use uuid::Uuid;

use check::Check;
use document::Document;
use file::File;
use place::Place;
use problem::Excerpt;

/// Bytes of a configuration file: beyond this it is some other file.
const FILE_MAX_BYTES: u64 = 16 << 20;

impl Config {
    /// Reads the file at `path`, with `flags` laid over it.
    ///
    /// # Errors
    /// The file cannot be read, or all that is wrong with it and the flags.
    pub fn from_file(path: &Path, flags: &Flags) -> Result<Self, ConfigError> {
        let text = read_file(path)?;
        Self::parse(&path.display().to_string(), &text, flags)
    }

    /// Reads `text`, with `flags` laid over it; errors call it `name`.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn parse(name: &str, text: &str, flags: &Flags) -> Result<Self, ConfigError> {
        let (document, problems) = Document::parse(name, text);
        if !problems.is_empty() {
            // What a broken line hides would only look wrong by its absence.
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

    /// What is odd in it but works, a sentence each: names that are no NQNs. Hosts and
    /// subsystems of other targets have such names, so they are not refused; but a
    /// mistyped name looks the same, and some hosts refuse to connect to one.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let odd = |what: &str, nqn: &Nqn| {
            let why = nqn.irregularity()?;
            Some(format!("{what} \"{nqn}\" is not an NQN: {why}"))
        };
        let of_subsystem = |subsystem: &Subsystem| {
            let list = subsystem.access.list();
            let hosts = list
                .into_iter()
                .flat_map(|list| list.single(&self.host_groups));
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
        let others = groups.chain(marked).chain(removed);
        subsystems.chain(others).collect()
    }

    /// The keys of single hosts that are no longer in the keyring: subsystem, host, key.
    fn removed_keys(&self) -> impl Iterator<Item = (&Nqn, &Nqn, &NamedKey)> {
        self.subsystems.iter().flat_map(|subsystem| {
            let hosts = subsystem.authentication.hosts.iter();
            hosts.filter_map(move |(host, keys)| match &keys.host {
                KeySource::Named(key) if key.is_removed => Some((&subsystem.nqn, host, key)),
                _ => None,
            })
        })
    }

    /// What the command line alone says.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn from_flags(flags: &Flags) -> Result<Self, ConfigError> {
        finish(File::default(), flags, None, &HashSet::new(), Vec::new())
    }
}

/// Lays the flags over the file and checks the whole.
fn finish(
    mut file: File,
    flags: &Flags,
    document: Option<&Document<'_>>,
    dropped: &HashSet<Place>,
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

/// The text of a configuration file.
///
/// # Errors
/// It cannot be read, or is too long for one.
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
    let length = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if length > FILE_MAX_BYTES {
        let message = format!("the file has {length} bytes, too many for a configuration");
        return Err(failed(message, "is this the right file?"));
    }
    std::fs::read_to_string(path).map_err(|error| {
        failed(
            format!("the file cannot be read: {error}"),
            "check its name, its permissions, and that it is text in UTF-8",
        )
    })
}
