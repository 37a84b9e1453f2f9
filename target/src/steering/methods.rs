//! Control methods `cairn_*`.

use std::sync::Arc;

use cairn_config::{Draft, EditError, Losses, PORT_DEFAULT, Trid, without_secrets};
use cairn_control::{
    Declared,
    Effect::{self, Changes, Reads, Reloads},
    Error, Handler, Kind, Nothing, Peer, Request, Stage, read, whole_numbers,
};
use cairn_interop::spdk;
use rustix::io::Errno;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use super::changes::{Change, Job, Pending};
use super::consequences::{self, Connected, Served, Unlisted};
use super::doubts::doubts;
use super::last_copies::refusal;
use super::lost_state;
use super::parameters::{
    AnyHost, ControllerOf, HostGroup, HostOf, ListenerAt, ListenerSet, LogSet, MethodsOf,
    NamespaceRemove, SubsystemRemove, parse_nqn,
};
use super::policy;
use super::problems::Observations;
use super::published::{Facts, Published};
use super::refused::{refuse_read_only, stopped};
use super::reserving::{dropped_reservation, reservations};
use super::source::Source;
use super::stale;
use super::views;
use crate::answers::{ConfigText, HostsAdded, Reload, Removed, Status};
use crate::logging::LogFilter;
use crate::panics::{Part, confine_part};
use crate::server::{Handle, Snapshot};
use cairn_data_path::audit::Event;
use cairn_data_path::registry::RefusedFor;

pub(super) const METHODS: Declared = &[
    ("cairn_config_get", Reads),
    ("cairn_connection_list", Reads),
    ("cairn_connection_remove", Changes),
    ("cairn_drain", Changes),
    ("cairn_drain_undo", Changes),
    ("cairn_host_add", Changes),
    ("cairn_host_any", Changes),
    ("cairn_host_group_add", Changes),
    ("cairn_host_group_list", Reads),
    ("cairn_host_group_remove", Changes),
    ("cairn_host_key_list", Reads),
    ("cairn_host_key_remove", Changes),
    ("cairn_host_key_set", Changes),
    ("cairn_host_list", Reads),
    ("cairn_host_remove", Changes),
    ("cairn_limit_list", Reads),
    ("cairn_limit_remove", Changes),
    ("cairn_limit_set", Changes),
    ("cairn_listener_add", Changes),
    ("cairn_listener_list", Reads),
    ("cairn_listener_remove", Changes),
    ("cairn_listener_set", Changes),
    ("cairn_log_get", Reads),
    ("cairn_log_set", Changes),
    ("cairn_metrics_get", Reads),
    ("cairn_namespace_add", Changes),
    ("cairn_namespace_list", Reads),
    ("cairn_namespace_remove", Changes),
    ("cairn_namespace_set", Changes),
    ("cairn_referral_add", Changes),
    ("cairn_referral_list", Reads),
    ("cairn_referral_remove", Changes),
    ("cairn_reload", Reloads),
    ("cairn_reservation_clear", Changes),
    ("cairn_reservation_get", Reads),
    ("cairn_reservation_list", Reads),
    ("cairn_status", Reads),
    ("cairn_subsystem_add", Changes),
    ("cairn_subsystem_list", Reads),
    ("cairn_subsystem_remove", Changes),
    ("cairn_subsystem_set", Changes),
    ("rpc_get_methods", Reads),
];

pub(super) struct Methods {
    pub(super) handle: Handle,
    jobs: mpsc::Sender<Job>,
    pub(super) published: Arc<Published>,
    pub(super) source: Arc<Source>,
    pub(super) log: LogFilter,
}

type Params = Map<String, Value>;
type Answer = Result<Value, Error>;

impl Handler for Methods {
    async fn call(&self, peer: Peer, request: Request) -> Answer {
        let Request { method, mut params } = request;
        let effect = effect(&method).ok_or_else(Error::no_method)?;
        let shown = (effect != Reads).then(|| shown(&params));
        params.values_mut().for_each(whole_numbers);
        let answer = self.carry_out(&method, effect, params).await;
        if let Some(params) = shown {
            let Peer { uid, pid } = peer;
            let audit = &self.handle.audit;
            audit.record(|| record(peer, &method, &params, &answer));
            match &answer {
                _ if effect == Reloads => {}
                Ok(_) => {
                    // Logged for a control socket request.
                    tracing::info!(
                        uid,
                        pid,
                        method,
                        params,
                        "configuration changed at the control socket"
                    );
                }
                Err(error) => {
                    let code = error.code;
                    // Logged for a control socket request.
                    tracing::warn!(uid, pid, method, params, code, %error, "request refused at the control socket");
                }
            }
        }
        answer
    }

    fn is_small(&self, method: &str) -> bool {
        effect(method) != Some(Reads)
    }
}

pub(super) fn answer<T: Serialize>(value: &T) -> Answer {
    serde_json::to_value(value).map_err(|error| Error::new(Error::INTERNAL, error.to_string()))
}

fn record(peer: Peer, method: &str, params: &str, answer: &Answer) -> Event {
    let event = Event::new("change")
        .value("uid", peer.uid)
        .value("pid", peer.pid)
        .text("method", method)
        .text("params", params);
    match answer {
        Ok(_) => event.text("outcome", "done"),
        Err(error) => event
            .text("outcome", "refused")
            .value("code", error.code)
            .text("reason", &error.message),
    }
}

const SHOWN_MAX: usize = 1024;

fn shown(params: &Params) -> String {
    let mut text = serde_json::to_string(params).unwrap_or_default();
    // A client may pass a key instead of its path.
    if text.contains("DHHC-") {
        return "not shown: they have a key".to_owned();
    }
    if text.len() > SHOWN_MAX {
        let end = (0..=SHOWN_MAX)
            .rev()
            .find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

pub(crate) fn effect(method: &str) -> Option<Effect> {
    let of = |all: Declared| {
        let at = all.binary_search_by_key(&method, |(name, _)| name).ok()?;
        Some(all[at].1)
    };
    of(METHODS).or_else(|| of(spdk::METHODS))
}

impl Methods {
    pub(super) fn new(
        handle: Handle,
        jobs: mpsc::Sender<Job>,
        published: Arc<Published>,
        source: Arc<Source>,
        log: LogFilter,
    ) -> Self {
        Self {
            handle,
            jobs,
            published,
            source,
            log,
        }
    }

    async fn carry_out(&self, method: &str, effect: Effect, params: Params) -> Answer {
        if effect == Changes {
            refuse_read_only(&self.snapshot().await?.config)?;
        }
        match method.starts_with("cairn_") || method == "rpc_get_methods" {
            true => self.own(method, params).await,
            false => spdk::call(self, method, params).await,
        }
    }

    async fn own(&self, method: &str, params: Params) -> Answer {
        match method {
            "cairn_status" => {
                read::<Nothing>(params)?;
                self.status().await
            }
            "rpc_get_methods" => {
                let MethodsOf { current, .. } = read(params)?;
                let all = METHODS.iter().chain(spdk::METHODS).map(|(name, _)| *name);
                // Once started, the target hides `framework_start_init`, because clients that load
                // a saved configuration would call it.
                let all = all.filter(|name| !(current && spdk::AT_START.contains(name)));
                Ok(all.collect())
            }
            "cairn_reload" => self.reload(params).await,
            "cairn_config_get" => {
                read::<Nothing>(params)?;
                let facts = self.facts();
                let text = without_secrets(&facts.text).into_owned();
                let file = self.source.path().map(|path| path.display().to_string());
                answer(&ConfigText { file, text })
            }
            "cairn_subsystem_list" => {
                read::<Nothing>(params)?;
                answer(&views::subsystems(&self.snapshot().await?.config))
            }
            "cairn_subsystem_add" => self.subsystem_add(params).await,
            "cairn_subsystem_remove" => {
                let SubsystemRemove { nqn, force } = read(params)?;
                let lost = consequences::of_subsystem(&self.snapshot().await?, &nqn, force)?;
                self.remove(move |draft| {
                    let mut all = lost.clone();
                    all.extend(draft.remove_subsystem(&nqn)?);
                    Ok(all)
                })
                .await
            }
            "cairn_namespace_list" => {
                read::<Nothing>(params)?;
                answer(&views::namespaces(&self.snapshot().await?))
            }
            "cairn_namespace_add" => self.namespace_add(params).await,
            "cairn_namespace_remove" => self.namespace_remove(params).await,
            "cairn_metrics_get" => {
                read::<Nothing>(params)?;
                self.metrics().await
            }
            "cairn_connection_list" => {
                read::<Nothing>(params)?;
                answer(&views::connections(&self.snapshot().await?))
            }
            "cairn_connection_remove" => self.disconnect(params).await,
            "cairn_drain" => self.drain(params).await,
            "cairn_drain_undo" => self.undo_drain(params).await,
            "cairn_log_get" => {
                read::<Nothing>(params)?;
                Ok(json!(self.log.directives()))
            }
            "cairn_log_set" => {
                let LogSet { filter } = read(params)?;
                self.log.set(&filter).map_err(Error::invalid)?;
                Ok(json!(true))
            }
            _ => self.own_methods(method, params).await,
        }
    }

    async fn namespace_remove(&self, params: Params) -> Answer {
        let NamespaceRemove { nqn, nsid, force } = read(params)?;
        // A forced removal must not force the other removals of a batch.
        let kind = if force { Kind::Narrows } else { Kind::Shrinks };
        let before = self.snapshot().await?;
        policy::refuse_directory(&before.config, &nqn, nsid, force)?;
        let mut losses: Losses = dropped_reservation(&before, &nqn, nsid)
            .into_iter()
            .collect();
        losses.extend(Served::of(&before, &nqn, nsid).removed(&nqn, nsid));
        self.change(kind, move |stage| {
            stage.loses_data = force;
            let mut lost = match stage.kept.remove(&(nqn.clone(), nsid)) {
                true if !force => return Err(refusal(&nqn, nsid)),
                true => {
                    stage.rereads = true;
                    Losses::new()
                }
                false => stage.draft.remove_namespace(&nqn, nsid)?,
            };
            lost.extend(losses.clone());
            answer(&Removed::of(lost))
        })
        .await
    }

    async fn own_methods(&self, method: &str, params: Params) -> Answer {
        match method {
            "cairn_listener_list" => {
                read::<Nothing>(params)?;
                answer(&views::listeners(&self.snapshot().await?))
            }
            "cairn_listener_add" => self.listener_add(params).await,
            "cairn_listener_remove" => {
                let at: ListenerAt = read(params)?;
                let port = at.port.unwrap_or(PORT_DEFAULT);
                let local = Trid {
                    address: at.address,
                    port,
                }
                .unscoped();
                let hosts = consequences::of_listener(&self.snapshot().await?, local);
                self.remove(move |draft| {
                    let mut all = draft.remove_listener(at.address, port)?;
                    all.extend(hosts.clone());
                    Ok(all)
                })
                .await
            }
            "cairn_listener_set" => self.listener_set(params).await,
            "cairn_host_add" => self.host_add(params).await,
            "cairn_host_remove" => {
                let HostOf { nqn, host } = read(params)?;
                let unlisted = Unlisted::of_list(&self.snapshot().await?, &nqn, &host);
                let removed = self.remove(move |draft| draft.remove_host(&nqn, &host));
                self.with_hosts(removed.await?, &unlisted).await
            }
            "cairn_host_any" => {
                let AnyHost { nqn, allow } = read(params)?;
                let kind = if allow { Kind::Alone } else { Kind::Narrows };
                let connected = Connected::of(&self.snapshot().await?, &nqn);
                self.edit(kind, move |draft| draft.allow_any_host(&nqn, allow))
                    .await?;
                let now = self.snapshot().await?;
                answer(&Removed::of(connected.shut_out(&now)))
            }
            "cairn_reservation_clear" => self.clear_reservation(params).await,
            "cairn_reservation_get" => self.reservation(params).await,
            "cairn_reservation_list" => {
                read::<Nothing>(params)?;
                answer(&reservations(&self.snapshot().await?))
            }
            _ if method.starts_with("cairn_limit_") => self.limit_methods(method, params).await,
            _ => self.group_methods(method, params).await,
        }
    }

    async fn group_methods(&self, method: &str, params: Params) -> Answer {
        match method {
            "cairn_host_group_list" => {
                read::<Nothing>(params)?;
                answer(&views::host_groups(&self.snapshot().await?.config))
            }
            "cairn_host_group_add" => {
                let HostGroup { name, hosts } = read(params)?;
                let hosts = hosts.unwrap_or_default();
                let named = hosts.clone();
                let group = name.clone();
                let before = self.snapshot().await?;
                let added = self.change(Kind::Grows, move |stage| {
                    let added = stage.draft.add_to_host_group(&name, &hosts);
                    Ok(json!(added?))
                });
                let added = added.await?.as_u64().unwrap_or(0);
                let mut warnings = self.doubts(&named).await?;
                let now = self.snapshot().await?;
                warnings.extend(views::unused_group(&now.config, &group));
                let mut groups = before.config.host_groups.iter();
                let created = !groups.any(|one| *one.name == *group);
                answer(&HostsAdded {
                    added,
                    created,
                    warnings,
                })
            }
            "cairn_host_group_remove" => {
                let HostGroup { name, hosts } = read(params)?;
                let gone = hosts.as_deref().unwrap_or_default();
                let unlisted = Unlisted::of_group(&self.snapshot().await?, &name, gone);
                let removed = self.remove(move |draft| match &hosts {
                    Some(hosts) => draft.remove_from_host_group(&name, hosts),
                    None => draft.remove_host_group(&name).map(|()| Losses::new()),
                });
                self.with_hosts(removed.await?, &unlisted).await
            }
            _ if method.starts_with("cairn_host_key_") => self.key_methods(method, params).await,
            _ => self.setting_methods(method, params).await,
        }
    }

    pub(super) async fn snapshot(&self) -> Result<Snapshot, Error> {
        self.handle.snapshot().await.ok_or_else(stopped)
    }

    async fn metrics(&self) -> Answer {
        let observed = self.handle.observed().await.ok_or_else(stopped)?;
        let page = tokio::task::spawn_blocking(move || {
            confine_part(Part::Metrics, || observed.fine_page())
        });
        let page = page.await.ok().flatten();
        let failed = || Error::new(Error::INTERNAL, "see the error in the target's log");
        page.map(Value::String).ok_or_else(failed)
    }

    async fn status(&self) -> Answer {
        let snapshot = self.snapshot().await?;
        answer(&self.status_of(&snapshot).await)
    }

    async fn status_of(&self, snapshot: &Snapshot) -> Status {
        let known = &self.published.warnings;
        let warnings = known.shown(&snapshot.config);
        let odd_hosts = known.odd_hosts(&snapshot.config);
        let stale = stale::difference(&self.source, &self.published).await;
        let lost_state = lost_state::look(snapshot).await;
        let facts = self.facts();
        let seen = Observations {
            facts: &facts,
            stale,
            lost_state,
            odd_hosts: &odd_hosts,
        };
        views::status(snapshot, &seen, &self.source, &warnings)
    }

    pub(super) async fn doubts(&self, hosts: &[String]) -> Result<Vec<String>, Error> {
        let snapshot = self.snapshot().await?;
        let refused = snapshot.refused.iter();
        let refused = refused.filter(|(one, _, _)| one.reason == RefusedFor::Host);
        let refused: Vec<_> = refused
            .map(|(one, _, _)| (one.host, one.subsystem))
            .collect();
        Ok(doubts(&snapshot.config, &refused, hosts))
    }

    pub(super) fn facts(&self) -> Facts {
        self.published.facts()
    }

    pub(super) async fn change(
        &self,
        kind: Kind,
        change: impl Fn(&mut Stage) -> Answer + Send + Sync + 'static,
    ) -> Answer {
        let (answer, answered) = oneshot::channel();
        let change: Change = Box::new(change);
        let pending = Pending {
            kind,
            change,
            answer,
        };
        let sent = self.jobs.send(Job::Change(pending)).await;
        sent.map_err(|_| stopped())?;
        answered.await.unwrap_or_else(|_| Err(stopped()))
    }

    pub(super) async fn edit<T>(
        &self,
        kind: Kind,
        edit: impl Fn(&mut Draft) -> Result<T, EditError> + Send + Sync + 'static,
    ) -> Answer {
        self.change(kind, move |stage| {
            edit(&mut stage.draft)?;
            Ok(json!(true))
        })
        .await
    }

    async fn remove(
        &self,
        edit: impl Fn(&mut Draft) -> Result<Losses, EditError> + Send + Sync + 'static,
    ) -> Answer {
        self.change(Kind::Shrinks, move |stage| {
            answer(&Removed::of(edit(&mut stage.draft)?))
        })
        .await
    }

    async fn with_hosts(&self, mut removed: Value, unlisted: &Unlisted) -> Answer {
        let sentences = unlisted.sentences(&self.snapshot().await?);
        if let Some(warnings) = removed["warnings"].as_array_mut() {
            warnings.extend(Removed::of(sentences).warnings.into_iter().map(Value::from));
        }
        Ok(removed)
    }

    async fn reload(&self, params: Params) -> Answer {
        read::<Nothing>(params)?;
        let (reloaded, answered) = oneshot::channel();
        let sent = self.jobs.send(Job::Reload { answer: reloaded }).await;
        sent.map_err(|_| stopped())?;
        match answered.await {
            Ok(Ok(changes)) => {
                let status = self.status_of(&self.snapshot().await?).await;
                answer(&Reload { changes, status })
            }
            Ok(Err(error)) => {
                // Logged for a control socket request.
                tracing::error!(
                    "the new configuration is invalid and the old one stays in use: \
                                 {error}"
                );
                Err(Error::invalid(error))
            }
            Err(_) => Err(stopped()),
        }
    }

    async fn listener_set(&self, params: Params) -> Answer {
        let set: ListenerSet = read(params)?;
        if set.inherit && (set.ana.is_some() || set.nqn.is_none()) {
            return Err(Error::invalid(
                "\"inherit\" removes the states of a subsystem: give \"nqn\", and no \"ana\"",
            ));
        }
        if set.ana.is_none() && !set.inherit {
            return Err(Error::invalid("\"ana\" is missing: give a state"));
        }
        self.edit(Kind::Alone, move |draft| {
            let port = set.port.unwrap_or(PORT_DEFAULT);
            let (at, group) = (Trid::new(set.address, port), set.ana_group);
            match (&set.nqn, &set.ana) {
                (Some(nqn), Some(state)) => draft.set_ana_of(nqn, at, group, state),
                (Some(nqn), None) => draft.inherit_ana(nqn, at, group),
                (None, state) => {
                    let state = state.as_deref().unwrap_or_default();
                    draft.set_ana(set.address, port, group, state)
                }
            }
        })
        .await
    }

    async fn disconnect(&self, params: Params) -> Answer {
        let ControllerOf { nqn, cntlid } = read(params)?;
        let parsed = parse_nqn(&nqn)?;
        match self.handle.disconnect(parsed, cntlid).await {
            Some(true) => Ok(json!(true)),
            Some(false) => Err(Error::errno(
                Errno::NOENT,
                format!("{nqn} has no controller {cntlid}: see cairn-target connection list"),
            )),
            None => Err(stopped()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_sorted_and_what_is_named_as_a_look_alone_changes_nothing() {
        for all in [METHODS, spdk::METHODS] {
            assert!(all.is_sorted_by_key(|(name, _)| *name));
        }
        for (name, effect) in METHODS.iter().chain(spdk::METHODS) {
            let looks = ["_list", "_status"].iter().any(|end| name.ends_with(end))
                || name.ends_with("_get")
                || name.contains("_get_")
                || [
                    "framework_start_init",
                    "framework_wait_init",
                    "bdev_examine",
                    "bdev_wait_for_examine",
                ]
                .contains(name);
            assert_eq!(*effect == Reads, looks, "{name}");
        }
    }
}
