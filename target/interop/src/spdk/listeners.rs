use std::net::IpAddr;

use cairn_config::{EditError, Listener, NewListener, Traddr, Trid};
use cairn_control::{Error, Kind, read};

use super::parameters::{ListenAddress, ListenerOf};
use super::{Answer, Params, edit, invalid, subsystem};
use crate::{Control, Snapshot};

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

pub(super) async fn call(control: &impl Control, method: &str, params: Params) -> Answer {
    let listener: ListenerOf = read(params)?;
    let at = place(&listener.listen_address)?;
    let nqn = listener.nqn;
    let snapshot = control.snapshot().await?;
    let config = snapshot.config();
    let of_it = subsystem(config, &nqn)?;
    let state = listener.ana_state.as_deref().map(ana).transpose()?;
    let all = config.listeners.iter().map(Listener::trid);
    let all: Vec<Trid> = all.collect();
    match method {
        "nvmf_subsystem_add_listener" => {
            // Listeners of the command line are not in the draft, so they are excluded here.
            let new = (!all.contains(&at)).then_some(NewListener::at(at.address, at.port));
            // A new listener starts in the optimized state.
            let state = state.filter(|state| new.is_none() || *state != "optimized");
            edit(control, Kind::Grows, move |draft| {
                match new.as_ref().map(|new| draft.add_listener(new)) {
                    None | Some(Ok(()) | Err(EditError::Exists(_))) => {}
                    Some(error) => return error,
                }
                draft.add_listener_to(&nqn, at)?;
                state.map_or(Ok(()), |state| draft.set_ana_of(&nqn, at, None, state))
            })
            .await
        }
        "nvmf_subsystem_remove_listener" => {
            edit(control, Kind::Shrinks, move |draft| {
                draft.remove_listener_from(&nqn, at, &all)
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
            edit(control, Kind::Alone, move |draft| {
                draft.set_ana_of(&nqn, at, group, state)
            })
            .await
        }
    }
}
