//! Control methods that modify existing objects, hosts and referrals.

use std::net::SocketAddr;

use cairn_config::{Draft, NamespaceSettings, Only, PORT_DEFAULT, SubsystemSettings};
use cairn_control::{Error, Kind, Nothing, read};
use serde_json::{Map, Value, json};

use super::consequences::Served;
use super::losses::Before;
use super::methods::{Methods, answer};
use super::parameters::{Named, NamespaceSet, ReferralTo, SubsystemSet};
use super::policy;
use super::views;
use crate::answers::{AtNextStart, Removed};

type Answer = Result<Value, Error>;
type Params = Map<String, Value>;

impl Methods {
    pub(super) async fn setting_methods(&self, method: &str, params: Params) -> Answer {
        match method {
            "cairn_subsystem_set" => self.subsystem_set(params).await,
            "cairn_namespace_set" => self.namespace_set(params).await,
            "cairn_host_list" => {
                let Named { nqn } = read(params)?;
                let snapshot = self.snapshot().await?;
                let hosts = views::hosts(&snapshot, &nqn);
                let hosts = hosts.ok_or_else(|| views::no_subsystem(&snapshot.config, &nqn))?;
                answer(&hosts)
            }
            "cairn_referral_list" => {
                read::<Nothing>(params)?;
                answer(&views::referrals(&self.snapshot().await?.config))
            }
            "cairn_referral_add" => {
                let (at, nqn) = referral(params)?;
                self.change(Kind::Grows, move |stage| {
                    Ok(json!(stage.draft.add_referral(at, nqn.as_deref())))
                })
                .await
            }
            "cairn_referral_remove" => {
                let (at, nqn) = referral(params)?;
                self.edit(Kind::Shrinks, move |draft| {
                    draft.remove_referral(at, nqn.as_deref())
                })
                .await
            }
            _ => Err(Error::no_method()),
        }
    }

    /// Changes a subsystem. Returns the settings that wait for the next start, because connected
    /// hosts rely on the present values.
    async fn subsystem_set(&self, params: Params) -> Answer {
        let SubsystemSet {
            nqn,
            serial,
            model,
            controller_ids,
            require_key,
            listeners,
            every_listener,
        } = read(params)?;
        let new = SubsystemSettings {
            serial,
            model,
            controller_ids,
            require_key,
            listeners: only("listeners", listeners, "every_listener", every_listener)?,
        };
        if new == SubsystemSettings::default() {
            return Err(nothing(
                "serial, model, controller_ids, require_key, listeners or every_listener",
            ));
        }
        let of = nqn.clone();
        let before = Before::of(&self.snapshot().await?);
        self.change(Kind::Alone, move |stage| {
            stage.draft.set_subsystem(&of, &new)?;
            Ok(Value::Null)
        })
        .await?;
        let end = format!(" of {nqn}");
        let snapshot = self.snapshot().await?;
        let warnings = Removed::of(before.losses_at(&snapshot, &nqn)).warnings;
        let waiting = snapshot.at_next_start;
        let waiting: Vec<String> = waiting
            .into_iter()
            .filter(|it| it.ends_with(&end))
            .collect();
        answer(&AtNextStart {
            at_next_start: waiting,
            warnings,
        })
    }

    async fn namespace_set(&self, params: Params) -> Answer {
        let set: NamespaceSet = read(params)?;
        let new = NamespaceSettings {
            name: set.name,
            export: set.export,
            uuid: set.uuid,
            nguid: set.nguid,
            block_size: set.block_size,
            shared: set.shared,
            read_only: set.read_only,
            write_protection: set.write_protection,
            ana_group: set.ana_group,
            hosts: only("hosts", set.hosts, "every_host", set.every_host)?,
        };
        if new == NamespaceSettings::default() {
            return Err(nothing(
                "name, export, uuid, nguid, block_size, shared, read_only, write_protection, \
                 ana_group, hosts or every_host",
            ));
        }
        if let Some(export) = &new.export {
            let snapshot = self.snapshot().await?;
            policy::refuse_displaced(&snapshot, &set.nqn, Some(set.nsid), export).await?;
        }
        let (nqn, nsid) = (set.nqn.clone(), set.nsid);
        let before = Served::of(&self.snapshot().await?, &nqn, nsid);
        let edit = move |draft: &mut Draft| draft.set_namespace(&set.nqn, set.nsid, &new);
        self.edit(Kind::Alone, edit).await?;
        let now = Served::of(&self.snapshot().await?, &nqn, nsid);
        answer(&Removed::of(before.changes_to(&now, &nqn, nsid)))
    }
}

fn only<T>(
    list: &str,
    these: Option<Vec<T>>,
    every: &str,
    is_every: bool,
) -> Result<Option<Only<T>>, Error> {
    match (these, is_every) {
        (Some(_), true) => Err(Error::invalid(format!(
            "give \"{list}\", or \"{every}\": true, not both"
        ))),
        (None, true) => Ok(Some(Only::Every)),
        (these, false) => Ok(these.map(Only::These)),
    }
}

fn nothing(settings: &str) -> Error {
    Error::invalid(format!("nothing is to be set: give {settings}"))
}

fn referral(params: Params) -> Result<(SocketAddr, Option<String>), Error> {
    let ReferralTo { address, port, nqn } = read(params)?;
    Ok((SocketAddr::new(address, port.unwrap_or(PORT_DEFAULT)), nqn))
}
