use std::time::Duration;

use cairn_config::{PORT_DEFAULT, Trid};
use cairn_control::{Error, read};
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use super::methods::{Methods, answer};
use super::parameters::Drain;
use super::refused::stopped;
use crate::answers;
use crate::server::{Drained, Which};

type Params = Map<String, Value>;
type Answer = Result<Value, Error>;

const TIMEOUT_DEFAULT_S: u16 = 60;
const TIMEOUT_MAX_S: u16 = 3600;
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum polls until the disconnected associations have ended.
const CLOSING_LOOKS: u32 = 100;

fn which(drain: &Drain) -> Result<Which, Error> {
    match (drain.address, drain.port) {
        (None, Some(_)) => Err(Error::invalid("\"port\": give the address, too")),
        (None, None) => Ok(None),
        (Some(address), port) => Ok(Some(Trid::new(address, port.unwrap_or(PORT_DEFAULT)))),
    }
}

fn no_listener(which: Which) -> Error {
    let message = match which {
        Some(Trid { address, port }) => format!("no listener {address} port {port} listens"),
        None => "nothing listens".to_owned(),
    };
    let remedy = "cairn-target listener list shows which do";
    Error::errno(Errno::NOENT, format!("{message}: {remedy}"))
}

impl Methods {
    pub(super) async fn drain(&self, params: Params) -> Answer {
        let drain: Drain = read(params)?;
        let which = which(&drain)?;
        let timeout = drain.timeout_s.unwrap_or(TIMEOUT_DEFAULT_S);
        if timeout > TIMEOUT_MAX_S {
            let message = format!("\"timeout_s\": at most {TIMEOUT_MAX_S}");
            return Err(Error::invalid(message));
        }
        let within = Duration::from_secs(timeout.into());
        let begun = self.handle.drain(which, within).await;
        let begun = begun.ok_or_else(stopped)?;
        if begun.is_empty() {
            return Err(no_listener(which));
        }
        let mut looks = CLOSING_LOOKS;
        loop {
            let now = self.handle.look_at_drained(begun.clone()).await;
            let now = now.ok_or_else(stopped)?;
            if now.len() < begun.len() {
                return Err(Error::errno(
                    Errno::CANCELED,
                    "a listener was removed or its drain undone meanwhile",
                ));
            }
            let is_under_way = now.iter().any(|one| one.is_under_way);
            let is_empty = now.iter().all(|one| one.associations == 0);
            if !is_under_way && (is_empty || looks == 0) {
                return answer(&result(&begun, &now));
            }
            if !is_under_way {
                looks -= 1;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    pub(super) async fn undo_drain(&self, params: Params) -> Answer {
        let drain: Drain = read(params)?;
        if drain.timeout_s.is_some() {
            return Err(Error::invalid("\"timeout_s\": only a drain takes time"));
        }
        let which = which(&drain)?;
        match self.handle.undo_drain(which).await {
            None => Err(stopped()),
            Some(0) => Err(no_listener(which)),
            Some(_) => Ok(json!(true)),
        }
    }
}

fn result(begun: &[Drained], now: &[Drained]) -> Vec<answers::Drained> {
    let pairs = begun.iter().zip(now);
    let listeners = pairs.map(|(begun, now)| answers::Drained {
        address: now.address.address.to_string(),
        port: now.address.port,
        disconnected: begun.associations.saturating_sub(now.associations),
        connected: now.associations,
        cut_off: now.cut_off,
    });
    listeners.collect()
}
