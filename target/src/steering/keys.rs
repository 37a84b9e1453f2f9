use cairn_config::{Config, Draft, InlineKey, KeySource, Nqn};
use cairn_control::{Error, Kind, read};
use serde_json::{Map, Value, json};

use rustix::io::Errno;

use super::consequences::Connected;
use super::methods::{Methods, answer};
use super::parameters::{HostAdd, HostKeys, HostOf, KeysOf};
use super::wording::key_command;
use crate::answers::{HostAdded, HostKey, Removed};

impl Methods {
    /// Adds a host with its keys in one change, so that it never connects without.
    pub(super) async fn host_add(&self, params: Map<String, Value>) -> Result<Value, Error> {
        let new: HostAdd = read(params)?;
        for key in new.dhchap_key.iter().chain(&new.dhchap_ctrl_key) {
            refuse_secret(key)?;
        }
        if new.dhchap_key.is_none() && new.dhchap_ctrl_key.is_some() {
            let message = "\"dhchap_ctrl_key\": give the key of the host, too: \"dhchap_key\"";
            return Err(Error::invalid(message));
        }
        let hosts = [new.host.clone()];
        let kind = match new.dhchap_key {
            Some(_) => Kind::Alone,
            None => Kind::Grows,
        };
        let added = self.change(kind, move |stage| {
            let added = stage.draft.add_host(&new.nqn, &new.host)?;
            if give_keys(&mut stage.draft, &new, added)? {
                stage.rereads = true;
            }
            Ok(json!(added))
        });
        let added = added.await? == true;
        let warnings = self.doubts(&hosts).await?;
        answer(&HostAdded { added, warnings })
    }

    pub(super) async fn key_methods(
        &self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, Error> {
        match method {
            "cairn_host_key_list" => {
                let of: KeysOf = read(params)?;
                let snapshot = self.snapshot().await?;
                answer(&host_keys(&snapshot.config, &of))
            }
            "cairn_host_key_set" => {
                let new: HostKeys = read(params)?;
                for key in std::iter::once(&new.dhchap_key).chain(&new.dhchap_ctrl_key) {
                    refuse_secret(key)?;
                }
                self.change(Kind::Alone, move |stage| {
                    let before = stage.draft.host_keys(&new.nqn, &new.host)?;
                    let controller = new.dhchap_ctrl_key.as_deref().or(before[1].as_deref());
                    let keys = Some((&*new.dhchap_key, controller));
                    stage.draft.set_host_keys(&new.nqn, &new.host, keys)?;
                    stage.rereads = true;
                    let after = stage.draft.host_keys(&new.nqn, &new.host)?;
                    Ok(json!(before != after))
                })
                .await
            }
            "cairn_host_key_remove" => {
                let HostOf { nqn, host } = read(params)?;
                let named: Vec<Nqn> = Nqn::parse(&host).into_iter().collect();
                let connected = Connected::of(&self.snapshot().await?, &nqn).among(&named);
                self.change(Kind::Narrows, move |stage| {
                    let removed = stage.draft.set_host_keys(&nqn, &host, None);
                    if !removed? {
                        let message = format!("{nqn} has no key of the host {host}");
                        return Err(Error::errno(Errno::NOENT, message));
                    }
                    Ok(json!(true))
                })
                .await?;
                let now = self.snapshot().await?;
                answer(&Removed::of(connected.shut_out(&now)))
            }
            _ => Err(Error::no_method()),
        }
    }
}

/// Sets the keys of an added host; returns whether they change. Fails if the host has others.
fn give_keys(draft: &mut Draft, new: &HostAdd, is_added: bool) -> Result<bool, Error> {
    let HostAdd { nqn, host, .. } = new;
    let Some(key) = &new.dhchap_key else {
        return Ok(false);
    };
    let controller = new.dhchap_ctrl_key.as_deref();
    let [own, other] = draft.host_keys(nqn, host)?;
    if is_added && own.is_none() {
        draft.set_host_keys(nqn, host, Some((key, controller)))?;
        return Ok(true);
    }
    if own.as_ref() == Some(key) && (controller.is_none() || other.as_deref() == controller) {
        return Ok(false);
    }
    let key = |file: Option<&str>| match file.filter(|file| InlineKey::of(file).is_none()) {
        Some(file) => format!("\"{}\"", file.escape_debug()),
        None => "none, or another".to_owned(),
    };
    Err(Error::errno(
        Errno::EXIST,
        format!(
            "{host} of {nqn} is there already, with dhchap_key {} and dhchap_ctrl_key {}, not {} and \
             {}: to change its keys: {}",
            key(own.as_deref()),
            key(other.as_deref()),
            key(new.dhchap_key.as_deref()),
            key(controller),
            key_command(nqn, host, true, "--key FILE")
        ),
    ))
}

/// Refuses an inline key, because more users may read the configuration file than a key file.
fn refuse_secret(key: &str) -> Result<(), Error> {
    if InlineKey::of(key).is_some() {
        let message = "this is a key itself, which each reader of the configuration file would have: write it into a \
                       file of mode 0600, and name that";
        return Err(Error::invalid(message));
    }
    Ok(())
}

fn host_keys(config: &Config, of: &KeysOf) -> Vec<HostKey> {
    let is_wanted = |wanted: &Option<String>, name: &Nqn| {
        wanted.as_deref().is_none_or(|wanted| wanted == name.raw())
    };
    let subsystems = config.subsystems.iter();
    let subsystems = subsystems.filter(|subsystem| is_wanted(&of.nqn, &subsystem.nqn));
    let keys = subsystems.flat_map(|subsystem| {
        let hosts = subsystem.authentication.hosts.iter();
        let hosts = hosts.filter(|(host, _)| is_wanted(&of.host, host));
        hosts.map(|(host, keys)| HostKey {
            nqn: subsystem.nqn.raw().to_owned(),
            host: host.raw().to_owned(),
            dhchap_key: keys.host.to_string(),
            dhchap_ctrl_key: keys.controller.as_ref().map(KeySource::to_string),
            removed: keys.host.is_removed(),
        })
    });
    keys.collect()
}
