//! Host keys, read from files and systemd credentials at start and reload.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cairn_config::{Authentication, Config, KeySource, Keys};
use nvme_auth::{Policy, Secret, Secrets};
use nvme_proto::wire::Nqn;
use zeroize::Zeroizing;

use super::error::{KeyError, StartError};
use super::exports::Exports;
use super::jobs::Jobs;
use super::lookup::of_nqn;
use crate::files;
use crate::health::Thing;
use cairn_data_path::registry::{Authenticator, HostKeys};

/// Maximum bytes of a key file, enough for the longest secret and spaces.
const FILE_BYTES_MAX: usize = 1024;

const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

pub(crate) type SubsystemKeys = HashMap<Nqn, HostKeys>;

/// Keys of a configuration. In place of an unreadable key, its hosts have a random secret.
pub(crate) struct Loaded {
    keys: SubsystemKeys,
    unreadable: Vec<Unreadable>,
}

struct Unreadable {
    subsystem: Nqn,
    /// Host with this key; `None` for all hosts without their own.
    host: Option<Nqn>,
    error: KeyError,
}

impl From<Unreadable> for StartError {
    fn from(it: Unreadable) -> Self {
        Self::Key {
            nqn: it.subsystem.to_string(),
            source: it.error,
        }
    }
}

/// Returns the first error of each subsystem. The errors are ordered by subsystem.
fn missing(mut unreadable: Vec<Unreadable>) -> Vec<(Thing, StartError)> {
    unreadable.dedup_by_key(|one| one.subsystem);
    let of = |one: Unreadable| (Thing::Keys(one.subsystem), one.into());
    unreadable.into_iter().map(of).collect()
}

/// Reads the keys of hosts.
pub(crate) async fn load(config: &Config) -> Result<Loaded, StartError> {
    let mut keys = HashMap::new();
    let mut unreadable = Vec::new();
    for subsystem in &config.subsystems {
        let nqn = subsystem.nqn;
        let own = of_subsystem(&subsystem.authentication).await;
        let (own, failed) = own.map_err(|source| StartError::Key {
            nqn: nqn.to_string(),
            source,
        })?;
        if !own.is_empty() {
            keys.insert(nqn, own);
        }
        unreadable.extend(failed.into_iter().map(|(host, error)| Unreadable {
            subsystem: nqn,
            host,
            error,
        }));
    }
    Ok(Loaded { keys, unreadable })
}

pub(crate) fn wait_to_load(config: &Config) -> Result<Loaded, StartError> {
    files::wait_for(load(config)).map_err(StartError::Control)?
}

/// Keys read by a job for this configuration.
type ReadAgain = Arc<Mutex<Option<(Arc<Config>, Loaded)>>>;

pub(super) struct InForce {
    keys: SubsystemKeys,
    authenticator: Authenticator,
    read_again: ReadAgain,
}

impl InForce {
    /// Takes the keys of a start. Hosts with an unreadable key are refused.
    pub(super) fn new(loaded: Loaded) -> (Self, Vec<(Thing, StartError)>) {
        let keys = Self {
            keys: loaded.keys,
            authenticator: Authenticator::default(),
            read_again: ReadAgain::default(),
        };
        (keys, missing(loaded.unreadable))
    }

    pub(super) fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    pub(super) fn all(&self) -> &SubsystemKeys {
        &self.keys
    }

    pub(super) fn of(&self, nqn: &Nqn) -> HostKeys {
        self.keys.get(nqn).cloned().unwrap_or_default()
    }

    pub(super) fn start_authenticator(
        &self,
        next: Option<&SubsystemKeys>,
    ) -> Result<(), StartError> {
        if next.unwrap_or(&self.keys).is_empty() {
            return Ok(());
        }
        let started = self.authenticator.start();
        started.map_err(StartError::Authenticator)
    }

    pub(super) fn set(&mut self, keys: SubsystemKeys, exports: &Exports) {
        self.keys = keys;
        exports.set_keys(&self.keys);
    }

    /// Returns the keys for the configuration `now`, and the unreadable ones. Hosts of an unreadable
    /// key keep the secret in force.
    ///
    /// # Errors
    /// An unreadable key is not the one in force of its hosts.
    pub(super) fn complete(
        &self,
        loaded: Loaded,
        before: &Config,
        now: &Config,
    ) -> Result<(SubsystemKeys, Vec<(Thing, StartError)>), StartError> {
        let Loaded {
            mut keys,
            unreadable,
        } = loaded;
        let mut kept_keys = Vec::new();
        for one in unreadable {
            let of = |config| keys_of(config, &one);
            let is_kept = of(before).is_some() && of(before) == of(now);
            let kept = self.keys.get(&one.subsystem).filter(|_| is_kept);
            let next = keys.get_mut(&one.subsystem);
            let mut both = kept.into_iter().zip(next);
            if !both.any(|(kept, next)| keep(kept, next, one.host)) {
                return Err(one.into());
            }
            kept_keys.push(one);
        }
        Ok((keys, missing(kept_keys)))
    }

    /// Begins to read the keys again.
    pub(super) fn read_again(&self, config: &Arc<Config>, jobs: &Jobs) {
        let (config, read) = (Arc::clone(config), Arc::clone(&self.read_again));
        jobs.run(Box::new(move || {
            let Ok(loaded) = wait_to_load(&config) else {
                return;
            };
            *locked(&read) = Some((config, loaded));
        }));
    }

    /// Returns the keys of [`Self::read_again`], unless another configuration is in force since.
    pub(super) fn take_read(&self, config: &Arc<Config>) -> Option<Loaded> {
        let (of, loaded) = locked(&self.read_again).take()?;
        Arc::ptr_eq(&of, config).then_some(loaded)
    }
}

fn locked(read: &ReadAgain) -> MutexGuard<'_, Option<(Arc<Config>, Loaded)>> {
    // Poisoning is harmless, because each change is one assignment.
    read.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keys_of<'a>(config: &'a Config, of: &Unreadable) -> Option<&'a Keys> {
    let own = &of_nqn(config, &of.subsystem)?.authentication;
    match &of.host {
        Some(host) => {
            let mut hosts = own.hosts.iter();
            hosts.find(|(nqn, _)| nqn == host).map(|(_, keys)| keys)
        }
        None => own.others.as_ref(),
    }
}

/// Copies the secrets of a host, or of all hosts without their own; returns false without any.
fn keep(from: &HostKeys, to: &mut HostKeys, host: Option<Nqn>) -> bool {
    let Some(host) = host else {
        to.others.clone_from(&from.others);
        to.are_others_keyless = from.are_others_keyless;
        return from.others.is_some();
    };
    let Some(secrets) = from.hosts.get(&host) else {
        return false;
    };
    to.hosts.insert(host, secrets.clone());
    if !from.keyless.contains(&host) {
        to.keyless.remove(&host);
    }
    true
}

pub(crate) fn key_errors(config: &Config) -> Vec<(Nqn, KeyError)> {
    let mut errors = Vec::new();
    for subsystem in &config.subsystems {
        let Authentication { others, hosts, .. } = &subsystem.authentication;
        let hosts = hosts.iter().map(|(_, keys)| keys);
        for keys in others.iter().chain(hosts) {
            for source in std::iter::once(&keys.host).chain(&keys.controller) {
                let read = files::wait_for(secret(source));
                let error = read.map_or_else(|error| Some(KeyError::Runtime(error)), Result::err);
                errors.extend(error.map(|error| (subsystem.nqn, error)));
            }
        }
    }
    errors
}

/// Host with an unreadable key, or `None` for all hosts without their own.
type Failed = (Option<Nqn>, KeyError);

async fn of_subsystem(config: &Authentication) -> Result<(HostKeys, Vec<Failed>), KeyError> {
    let (mut hosts, mut keyless, mut failed) = (HashMap::new(), HashSet::new(), Vec::new());
    for (nqn, keys) in &config.hosts {
        let (secrets, error) = readable(keys).await?;
        if keys.host.is_removed() || error.is_some() {
            keyless.insert(*nqn);
        }
        hosts.insert(*nqn, secrets);
        failed.extend(error.map(|error| (Some(*nqn), error)));
    }
    let mut are_others_keyless = config.others.is_none();
    let others = match &config.others {
        Some(keys) => {
            let (secrets, error) = readable(keys).await?;
            are_others_keyless = error.is_some();
            failed.extend(error.map(|error| (None, error)));
            Some(secrets)
        }
        None if config.is_required => Some(nobodys_pair()?),
        None => None,
    };
    let keys = HostKeys {
        others,
        hosts,
        policy: Policy {
            hashes: parsed(&config.policy.hashes),
            groups: parsed(&config.policy.groups),
        },
        keyless,
        are_others_keyless,
    };
    Ok((keys, failed))
}

/// Returns the secrets, or random ones with the error of an unusable file.
async fn readable(keys: &Keys) -> Result<(Secrets, Option<KeyError>), KeyError> {
    match secrets(keys).await {
        Ok(secrets) => Ok((secrets, None)),
        Err(error) if error.is_of_a_file() => Ok((nobodys_pair()?, Some(error))),
        Err(error) => Err(error),
    }
}

fn nobodys_pair() -> Result<Secrets, KeyError> {
    Ok(Secrets {
        host: nobodys()?,
        controller: None,
    })
}

fn parsed<T: std::str::FromStr>(words: &[&str]) -> Vec<T> {
    let known = |word: &&str| word.parse().ok();
    let parsed: Vec<T> = words.iter().filter_map(known).collect();
    assert_eq!(parsed.len(), words.len(), "{words:?} are all known");
    parsed
}

async fn secrets(keys: &Keys) -> Result<Secrets, KeyError> {
    let controller = match &keys.controller {
        Some(source) => Some(secret(source).await?),
        None => None,
    };
    Ok(Secrets {
        host: secret(&keys.host).await?,
        controller,
    })
}

async fn secret(source: &KeySource) -> Result<Secret, KeyError> {
    let (path, is_credential) = match source {
        KeySource::File(path) => (path.clone(), false),
        KeySource::Credential(name) => {
            let folder = std::env::var_os(CREDENTIALS_DIRECTORY);
            let folder = folder.ok_or_else(|| KeyError::NoCredentials(name.clone()))?;
            (PathBuf::from(folder).join(name), true)
        }
        KeySource::Inline(key) => return key.secret().parse().map_err(KeyError::Inline),
        KeySource::Named(key) if key.is_removed => return nobodys(),
        KeySource::Named(key) => (key.path.clone(), false),
    };
    let called = files::call(&path, read).await;
    let (text, mode) = called.unwrap_or_else(|source| {
        let path = path.clone();
        Err(KeyError::Read { path, source })
    })?;
    let text = std::str::from_utf8(&text).unwrap_or_default();
    match text.parse() {
        // The mode of a file without a secret is irrelevant: /etc/passwd is readable by design.
        Err(source) => Err(KeyError::Secret { path, source }),
        // Credentials are exempt: systemd protects their folder, and group bits may show an ACL.
        Ok(_) if !is_credential && mode & 0o077 != 0 => Err(KeyError::Open { path, mode }),
        Ok(secret) => Ok(secret),
    }
}

/// Returns a random secret for a removed or unreadable key, so that its hosts cannot authenticate.
fn nobodys() -> Result<Secret, KeyError> {
    let mut failed = None;
    let secret = Secret::generate(64, None, &mut |bytes| failed = getrandom::fill(bytes).err());
    match failed {
        None => Ok(secret),
        Some(error) => Err(KeyError::NoRandom(error)),
    }
}

/// Reads a file into a buffer that does not grow and is wiped when dropped. Also returns the
/// permission bits. May block.
#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
fn read(path: &Path) -> Result<(Zeroizing<Vec<u8>>, u32), KeyError> {
    let fail = |source| KeyError::Read {
        path: path.to_owned(),
        source,
    };
    let mut options = File::options();
    // `O_NONBLOCK` keeps a FIFO from blocking the open.
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if !metadata.is_file() {
        return Err(fail(io::Error::other("not a regular file")));
    }
    let mode = metadata.permissions().mode() & 0o7777;
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX));
    let mut limited = file.take(FILE_BYTES_MAX as u64);
    limited.read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() == FILE_BYTES_MAX {
        return Err(fail(io::Error::other("the file is too large for a secret")));
    }
    Ok((bytes, mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret_of(path: &Path) -> Result<Secret, KeyError> {
        files::wait_for(secret(&KeySource::File(path.to_owned()))).unwrap()
    }

    fn write(path: &Path, mode: u32, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn keys_that_others_can_read_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.key");
        let text = Secret::generate(32, None, &mut |bytes| bytes.fill(7)).to_text();
        for mode in [0o640, 0o604, 0o620] {
            write(&path, mode, &text);
            let error = secret_of(&path).unwrap_err();
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        write(&path, 0o600, &text);
        secret_of(&path).unwrap();
        write(&path, 0o600, "DHHC-1:00:secret!:");
        let error = secret_of(&path).unwrap_err().to_string();
        assert!(!error.contains("secret!"), "{error}");
        write(&path, 0o644, "root:x:0:0:root:/root:/bin/bash\n");
        let error = secret_of(&path).unwrap_err().to_string();
        assert!(!error.contains("chmod"), "{error}");
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = secret_of(folder.path()).unwrap_err();
        assert!(error.to_string().contains("regular file"), "{error}");
    }
}
