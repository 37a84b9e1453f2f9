use std::net::IpAddr;

use cairn_config::{EditError, Listener, NewListener, Traddr, Trid};
use cairn_control::Error;
use serde_json::json;

use super::super::changes::Kind;
use super::super::methods::Methods;
use super::super::parameters::read;
use super::parameters::{ListenAddress, ListenerOf};
use super::{Answer, Params, invalid, of, subsystem};

pub(super) fn place(at: &ListenAddress) -> Result<Trid, Error> {
    if !at.trtype.eq_ignore_ascii_case("rdma") {
        return Err(Error::invalid(
            "Invalid parameters: Cairn's transport is RDMA",
        ));
    }
    let address: Traddr = at.traddr.parse().map_err(|_| invalid())?;
    let port = match at.trsvcid.as_deref() {
        None | Some("") => cairn_config::PORT_DEFAULT,
        Some(port) => port.parse().map_err(|_| invalid())?,
    };
    let family = at.adrfam.as_deref().map(str::to_ascii_lowercase);
    match (family.as_deref(), address.ip()) {
        (None | Some("ipv4"), IpAddr::V4(_)) | (None | Some("ipv6"), IpAddr::V6(_)) => {
            Ok(Trid::new(address, port))
        }
        _ => Err(invalid()),
    }
}

fn ana(state: &str) -> Result<&'static str, Error> {
    match state {
        "optimized" => Ok("optimized"),
        "non_optimized" => Ok("non-optimized"),
        "inaccessible" => Ok("inaccessible"),
        _ => Err(invalid()),
    }
}

impl Methods {
    pub(super) async fn of_listener(&self, method: &str, params: Params) -> Answer {
        let listener: ListenerOf = read(params)?;
        let at = place(&listener.listen_address)?;
        let nqn = listener.nqn;
        let snapshot = self.snapshot().await?;
        let config = &snapshot.config;
        let of_it = subsystem(config, &nqn)?;
        let state = listener.ana_state.as_deref().map(ana).transpose()?;
        let all = config.listeners.iter().map(Listener::trid);
        let all: Vec<Trid> = all.collect();
        match method {
            "nvmf_subsystem_add_listener" => {
                // A listener of the command line is not in the file.
                let new = (!all.contains(&at)).then_some(NewListener::at(at.address, at.port));
                // New listeners are optimized by default: that state is no change.
                let state = state.filter(|state| new.is_none() || *state != "optimized");
                self.change(Kind::Grows, move |stage| {
                    match new.as_ref().map(|new| stage.draft.add_listener(new)) {
                        // A concurrent request may have added it.
                        None | Some(Ok(()) | Err(EditError::Exists(_))) => {}
                        Some(Err(other)) => return Err(of(other)),
                    }
                    stage.draft.add_listener_to(&nqn, at).map_err(of)?;
                    if let Some(state) = state {
                        let set = stage.draft.set_ana_of(&nqn, at, None, state);
                        set.map_err(of)?;
                    }
                    Ok(json!(true))
                })
                .await
            }
            "nvmf_subsystem_remove_listener" => {
                self.change(Kind::Shrinks, move |stage| {
                    let removed = stage.draft.remove_listener_from(&nqn, at, &all);
                    removed.map_err(of)?;
                    Ok(json!(true))
                })
                .await
            }
            _ => {
                let state = state.ok_or_else(invalid)?;
                let mut own = config.listeners_of(of_it);
                if own.all(|one| one.trid() != at) {
                    let message = format!("Invalid parameters: {at} does not lead to {nqn}");
                    return Err(Error::invalid(message));
                }
                let group = listener.anagrpid.filter(|group| *group != 0);
                self.change(Kind::Alone, move |stage| {
                    let set = stage.draft.set_ana_of(&nqn, at, group, state);
                    set.map_err(of)?;
                    Ok(json!(true))
                })
                .await
            }
        }
    }
}
