//! Methods for the discovery subsystem. Every host can use it at every listener, so requests to
//! restrict it are refused.

use cairn_config::{Config, EditError, NewListener, Nqn};
use cairn_control::{Error, Kind, read};
use serde_json::{Value, json};

use super::listeners::place;
use super::parameters::{Allow, ControllersOf, HostKeys, HostOf, ListenerOf};
use super::{Answer, Params, edit, views};
use crate::{Control, Snapshot};

pub(super) fn is_named(params: &Params, config: &Config) -> bool {
    let nqn = params.get("nqn").and_then(Value::as_str);
    nqn.is_some_and(|nqn| nqn == Nqn::discovery().raw() || nqn == config.target.discovery_nqn.raw())
}

fn refused(why: &str) -> Error {
    Error::invalid(format!("Invalid parameters: {why}"))
}

const ANY_HOST: &str = "any host may use discovery: a listener's allowed_addresses says from where";

pub(super) async fn call(control: &impl Control, method: &str, params: Params) -> Answer {
    match method {
        "nvmf_get_subsystems" => {
            let snapshot = control.snapshot().await?;
            Ok(json!([views::discovery(snapshot.config())]))
        }
        "nvmf_subsystem_get_controllers" | "nvmf_subsystem_get_qpairs" => {
            read::<ControllersOf>(params)?;
            Ok(json!([]))
        }
        "nvmf_subsystem_get_listeners" => {
            read::<ControllersOf>(params)?;
            Ok(views::discovery_listeners(
                control.snapshot().await?.config(),
            ))
        }
        "nvmf_subsystem_add_listener" => add_listener(control, params).await,
        "nvmf_subsystem_remove_listener" => remove_listener(control, params).await,
        "nvmf_subsystem_listener_set_ana_state" => {
            let of: ListenerOf = read(params)?;
            match of.ana_state.as_deref() {
                Some("optimized") => Ok(json!(true)),
                _ => Err(refused("discovery has no ANA state")),
            }
        }
        "nvmf_subsystem_add_host" => {
            let new: HostKeys = read(params)?;
            match (&new.dhchap_key, &new.dhchap_ctrlr_key) {
                (None, None) => Ok(json!(true)),
                _ => Err(refused("hosts use discovery without a key")),
            }
        }
        "nvmf_subsystem_remove_host" => {
            read::<HostOf>(params)?;
            Err(refused(ANY_HOST))
        }
        "nvmf_subsystem_allow_any_host" => {
            let allow: Allow = read(params)?;
            match allow.allow_any_host {
                true => Ok(json!(true)),
                false => Err(refused(ANY_HOST)),
            }
        }
        "nvmf_create_subsystem" => Err(Error::new(
            Error::INTERNAL,
            "Unable to create subsystem: discovery is there from the start",
        )),
        _ => Err(refused(
            "the discovery subsystem has no namespaces and no keys, and stays",
        )),
    }
}

async fn add_listener(control: &impl Control, params: Params) -> Answer {
    let of_it: ListenerOf = read(params)?;
    let at = place(&of_it.listen_address)?;
    if of_it.ana_state.is_some_and(|state| state != "optimized") {
        return Err(refused("discovery has no ANA state"));
    }
    let snapshot = control.snapshot().await?;
    let mut all = snapshot.config().listeners.iter();
    if all.any(|one| one.trid() == at) {
        return Ok(json!(true));
    }
    edit(control, Kind::Grows, move |draft| {
        match draft.add_listener(&NewListener::at(at.address, at.port)) {
            // A concurrent request may have added the same listener.
            Err(EditError::Exists(_)) => Ok(()),
            done => done,
        }
    })
    .await
}

async fn remove_listener(control: &impl Control, params: Params) -> Answer {
    let of_it: ListenerOf = read(params)?;
    let at = place(&of_it.listen_address)?;
    let snapshot = control.snapshot().await?;
    let config = snapshot.config();
    let mut all = config.listeners.iter();
    let Some(listener) = all.find(|one| one.trid() == at) else {
        return Err(refused(&format!("no listener {at}")));
    };
    if let Some(user) = config.subsystems.iter().find(|one| one.is_behind(listener)) {
        return Err(refused(&format!(
            "discovery answers at each listener, and {at} leads to {}, too: remove it from that",
            user.nqn
        )));
    }
    edit(control, Kind::Shrinks, move |draft| {
        draft.remove_listener(at.address, at.port)
    })
    .await
}
