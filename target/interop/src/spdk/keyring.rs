use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cairn_config::{Config, Draft, EditError, KEY_PREFIX, KeySource, Keys, NamedKey};
use cairn_control::{Error, Kind, Nothing, read};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::parameters::{HostKeys, KeyAdd, KeyOf};
use super::{Answer, Params, edit, of, subsystem, well_formed};
use crate::{Control, Snapshot};

pub(super) async fn call(control: &impl Control, method: &str, params: Params) -> Answer {
    match method {
        "keyring_get_keys" => {
            read::<Nothing>(params)?;
            Ok(keys(control.snapshot().await?.config()))
        }
        "keyring_file_add_key" => {
            let KeyAdd { name, path } = read(params)?;
            if name.find(':').is_some_and(|at| at > 0) {
                let message = "Invalid argument: the name of a key has no \":\"";
                return Err(Error::errno(Errno::INVAL, message));
            }
            let path = PathBuf::from(path);
            check_file(control, &path).await?;
            edit(control, Kind::Grows, move |draft| {
                draft.add_key(&name, &path)
            })
            .await
        }
        "keyring_file_remove_key" => {
            let KeyOf { name } = read(params)?;
            control
                .change(Kind::Narrows, move |stage| {
                    let removed = stage.draft.remove_key(&name);
                    removed.map_err(|error| Error::errno(Errno::NOKEY, error.to_string()))?;
                    Ok(json!(true))
                })
                .await
        }
        _ => Err(Error::no_method()),
    }
}

pub(super) async fn add_host(control: &impl Control, params: Params) -> Answer {
    let new: HostKeys = read(params)?;
    well_formed(&new.host, "host")?;
    control
        .change(Kind::Grows, move |stage| {
            let is_new = stage.draft.add_host(&new.nqn, &new.host).map_err(of)?;
            let Some(keys) = new.names(&mut stage.draft, Error::INTERNAL)? else {
                return Ok(json!(true));
            };
            if !is_new {
                let message = "Internal error: the host may connect already: set its keys by \
                           nvmf_subsystem_set_keys";
                return Err(Error::new(Error::INTERNAL, message));
            }
            set(&mut stage.draft, &new, Some(&keys)).map_err(of)?;
            stage.rereads = true;
            Ok(json!(true))
        })
        .await
}

pub(super) async fn set_keys(control: &impl Control, params: Params) -> Answer {
    let new: HostKeys = read(params)?;
    subsystem(control.snapshot().await?.config(), &new.nqn)?;
    control
        .change(Kind::Alone, move |stage| {
            let code = i64::from(-Errno::INVAL.raw_os_error());
            let keys = new.names(&mut stage.draft, code)?;
            let done = set(&mut stage.draft, &new, keys.as_ref());
            done.map_err(|error| match error {
                EditError::Missing(message) => Error::errno(Errno::INVAL, message),
                other => of(other),
            })?;
            stage.rereads = true;
            Ok(json!(true))
        })
        .await
}

type Names = (String, Option<String>);

impl HostKeys {
    /// Converts keyring names to names of the configuration. `code` is the error code for a
    /// controller key without a host key.
    fn names(&self, draft: &mut Draft, code: i64) -> Result<Option<Names>, Error> {
        for name in self.dhchap_key.iter().chain(&self.dhchap_ctrlr_key) {
            if !draft.has_key(name) {
                return Err(Error::invalid(
                    "Invalid parameters: no such key: add it by keyring_file_add_key",
                ));
            }
        }
        let named = |name: &Option<String>| {
            let name = name.as_ref()?;
            Some(format!("{KEY_PREFIX}{name}"))
        };
        match (named(&self.dhchap_key), named(&self.dhchap_ctrlr_key)) {
            (Some(host), controller) => Ok(Some((host, controller))),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Error::new(
                code,
                "a controller authenticates only to hosts that do: give dhchap_key, too",
            )),
        }
    }
}

fn set(draft: &mut Draft, of: &HostKeys, keys: Option<&Names>) -> Result<bool, EditError> {
    let keys = keys.map(|(host, controller)| (&**host, controller.as_deref()));
    draft.set_host_keys(&of.nqn, &of.host, keys)
}

async fn check_file(control: &impl Control, path: &Path) -> Result<(), Error> {
    let refused = |message: String| Err(Error::errno(Errno::PERM, message));
    if !path.is_absolute() {
        return refused("the path of a key is absolute".to_owned());
    }
    let shown = path.display();
    let looked = control.metadata(path).await;
    let file = looked.map_err(|error| Error::io(&error, format!("{shown}: {error}")))?;
    if file.mode() & 0o077 != 0 {
        return refused(format!(
            "users other than its owner can read or write {shown}: a file of mode 0600 is required"
        ));
    }
    let own = rustix::process::getuid().as_raw();
    if file.uid() != own {
        return refused(format!(
            "{shown} belongs to user {}: a file of the target's user, {own}, is required",
            file.uid()
        ));
    }
    Ok(())
}

fn name_of(source: &KeySource) -> Option<&NamedKey> {
    match source {
        KeySource::Named(key) => Some(key),
        KeySource::File(_) | KeySource::Credential(_) | KeySource::Inline(_) => None,
    }
}

fn used(config: &Config) -> impl Iterator<Item = &KeySource> {
    let each = config.subsystems.iter().map(|one| &one.authentication);
    let keys = each.flat_map(|one| {
        one.others
            .iter()
            .chain(one.hosts.iter().map(|(_, keys)| keys))
    });
    keys.flat_map(|keys| std::iter::once(&keys.host).chain(&keys.controller))
}

fn keys(config: &Config) -> Value {
    let keys = config.keys.iter().map(|key| {
        let uses = used(config).filter_map(name_of);
        let uses = uses.filter(|other| other.name == key.name).count();
        let mut shown = json!({
            "name": key.name,
            "module": "keyring_file",
            "removed": key.is_removed,
            "probed": false,
            "refcnt": uses + usize::from(!key.is_removed),
        });
        if !key.is_removed {
            shown["path"] = json!(key.path);
        }
        shown
    });
    keys.collect()
}

pub(super) fn show(shown: &mut Value, keys: Option<&Keys>) {
    let name = |source: &KeySource| match name_of(source) {
        Some(key) => key.name.clone(),
        None => source.to_string(),
    };
    if let Some(keys) = keys {
        shown["dhchap_key"] = json!(name(&keys.host));
        if let Some(controller) = &keys.controller {
            shown["dhchap_ctrlr_key"] = json!(name(controller));
        }
    }
}

pub(super) fn of_host<'a>(
    subsystem: &'a cairn_config::Subsystem,
    host: &cairn_config::Nqn,
) -> Option<&'a Keys> {
    let all = &subsystem.authentication;
    let own = all.hosts.iter().find(|(other, _)| other == host);
    own.map(|(_, keys)| keys).or(all.others.as_ref())
}
