//! Host keys, read from files and systemd credentials at start and reload.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cairn_config::{Authentication, Config, KeySource, Keys};
use nvme_auth::{Policy, Secret, Secrets};
use nvme_proto::wire::Nqn;
use zeroize::Zeroizing;

use super::error::{KeyError, StartError};
use super::exports::Exports;
use crate::files;
use cairn_data_path::registry::{Authenticator, HostKeys};

/// Maximum bytes of a key file, enough for the longest secret and spaces.
const FILE_BYTES_MAX: usize = 1024;

const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

pub(crate) type SubsystemKeys = HashMap<Nqn, HostKeys>;

/// Reads the keys of hosts. Fails if a key is unusable, or if its file system does not answer in
/// time.
pub(crate) async fn load(config: &Config) -> Result<SubsystemKeys, StartError> {
    let mut all = HashMap::new();
    for subsystem in &config.subsystems {
        let keys = of_subsystem(&subsystem.authentication).await;
        let keys = keys.map_err(|source| StartError::Key {
            nqn: subsystem.nqn.to_string(),
            source,
        })?;
        if !keys.is_empty() {
            all.insert(subsystem.nqn, keys);
        }
    }
    Ok(all)
}

pub(crate) fn wait_to_load(config: &Config) -> Result<SubsystemKeys, StartError> {
    files::wait_for(load(config)).map_err(StartError::Control)?
}

pub(super) struct InForce {
    keys: SubsystemKeys,
    authenticator: Authenticator,
}

impl InForce {
    pub(super) fn load(config: &Config) -> Result<Self, StartError> {
        Ok(Self {
            keys: wait_to_load(config)?,
            authenticator: Authenticator::default(),
        })
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

async fn of_subsystem(config: &Authentication) -> Result<HostKeys, KeyError> {
    let mut hosts = HashMap::new();
    let mut keyless = HashSet::new();
    for (nqn, keys) in &config.hosts {
        if keys.host.is_removed() {
            keyless.insert(*nqn);
        }
        hosts.insert(*nqn, secrets(keys).await?);
    }
    let others = match &config.others {
        Some(keys) => Some(secrets(keys).await?),
        None if config.is_required => Some(Secrets {
            host: nobodys()?,
            controller: None,
        }),
        None => None,
    };
    Ok(HostKeys {
        others,
        hosts,
        policy: Policy {
            hashes: parsed(&config.policy.hashes),
            groups: parsed(&config.policy.groups),
        },
        keyless,
        are_others_keyless: config.others.is_none(),
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

/// Returns a random secret for a removed key, so that its hosts cannot authenticate.
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
