//! Methods that change what is there already, and those about hosts and referrals.

use std::net::SocketAddr;

use cairn_config::{LedToBy, NamespaceSettings, PORT_DEFAULT, SeenBy, SubsystemSettings};
use cairn_control::Error;
use serde_json::{Map, Value, json};

use super::changes::Kind;
use super::methods::Methods;
use super::parameters::{Named, NamespaceSet, Nothing, ReferralTo, SubsystemSet, read};
use super::refused::of_edit;
use super::views;

type Answer = Result<Value, Error>;
type Params = Map<String, Value>;

impl Methods {
    pub(super) async fn setting_methods(&self, method: &str, params: Params) -> Answer {
        match method {
            "cairn_subsystem_set" => self.subsystem_set(params).await,
            "cairn_namespace_set" => self.namespace_set(params).await,
            "cairn_host_list" => {
                let Named { nqn } = read(params)?;
                let hosts = views::hosts(&self.picture().await?, &nqn);
                hosts.ok_or_else(|| views::no_subsystem(&nqn))
            }
            "cairn_referral_list" => {
                read::<Nothing>(params)?;
                Ok(views::referrals(&self.picture().await?.config))
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
                self.change(Kind::Shrinks, move |stage| {
                    let removed = stage.draft.remove_referral(at, nqn.as_deref());
                    removed.map_err(of_edit)?;
                    Ok(json!(true))
                })
                .await
            }
            _ => Err(Error::no_method()),
        }
    }

    /// Answers what of the subsystem waits for the next start: hosts that are connected have seen what
    /// it was at the last one.
    async fn subsystem_set(&self, params: Params) -> Answer {
        let SubsystemSet {
            nqn,
            serial,
            model,
            controller_ids,
            listeners,
            every_listener,
        } = read(params)?;
        let led_to_by = match (listeners, every_listener) {
            (None, false) => None,
            (None, true) => Some(LedToBy::Every),
            (Some(own), false) => Some(LedToBy::Listeners(own)),
            (Some(_), true) => {
                let message = "give \"listeners\", or \"every_listener\": true, not both";
                return Err(Error::invalid(message));
            }
        };
        let new = SubsystemSettings {
            serial,
            model,
            controller_ids,
            led_to_by,
        };
        if new == SubsystemSettings::default() {
            return Err(nothing(
                "serial, model, controller_ids, listeners or every_listener",
            ));
        }
        let of = nqn.clone();
        self.change(Kind::Alone, move |stage| {
            stage.draft.set_subsystem(&of, &new).map_err(of_edit)?;
            Ok(Value::Null)
        })
        .await?;
        let end = format!(" of {nqn}");
        let waiting = self.picture().await?.at_next_start;
        let waiting: Vec<String> = waiting
            .into_iter()
            .filter(|it| it.ends_with(&end))
            .collect();
        Ok(json!({"at_next_start": waiting}))
    }

    async fn namespace_set(&self, params: Params) -> Answer {
        let set: NamespaceSet = read(params)?;
        let seen_by = match (set.hosts, set.every_host) {
            (None, false) => None,
            (None, true) => Some(SeenBy::Every),
            (Some(hosts), false) => Some(SeenBy::Hosts(hosts)),
            (Some(_), true) => {
                let message = "give \"hosts\", or \"every_host\": true, not both";
                return Err(Error::invalid(message));
            }
        };
        let new = NamespaceSettings {
            name: set.name,
            export: set.export,
            read_only: set.read_only,
            write_protection: set.write_protection,
            ana_group: set.ana_group,
            seen_by,
        };
        if new == NamespaceSettings::default() {
            return Err(nothing(
                "name, export, read_only, write_protection, ana_group, hosts or every_host",
            ));
        }
        self.change(Kind::Alone, move |stage| {
            let set = stage.draft.set_namespace(&set.nqn, set.nsid, &new);
            set.map_err(of_edit)?;
            Ok(json!(true))
        })
        .await
    }
}

fn nothing(settings: &str) -> Error {
    Error::invalid(format!("nothing is to be set: give {settings}"))
}

fn referral(params: Params) -> Result<(SocketAddr, Option<String>), Error> {
    let ReferralTo { address, port, nqn } = read(params)?;
    Ok((SocketAddr::new(address, port.unwrap_or(PORT_DEFAULT)), nqn))
}
