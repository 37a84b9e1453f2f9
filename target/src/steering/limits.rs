//! Methods that show and change limits.

use cairn_config::{BURST_DEFAULT, Config, Limits, LimitsOf, NewLimits, format_size};
use cairn_control::Error;
use serde_json::{Map, Value, json};

use super::changes::{Kind, of_edit};
use super::methods::Methods;
use super::parameters::{LimitSet, NamespaceOf, Nothing, read};

impl Methods {
    pub(super) async fn limit_methods(
        &self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, Error> {
        match method {
            "cairn_limit_list" => {
                read::<Nothing>(params)?;
                Ok(list(&self.picture().await?.config))
            }
            "cairn_limit_set" => {
                let set: LimitSet = read(params)?;
                let new = NewLimits {
                    iops: set.iops,
                    read: set.read,
                    write: set.write,
                    total: set.total,
                    burst_ms: set.burst_ms,
                };
                if new == NewLimits::default() {
                    let message = "no limit is given: give iops, read, write, total or burst_ms";
                    return Err(Error::invalid(message));
                }
                let of = LimitsOf::Namespace(set.nsid);
                self.change(Kind::Alone, move |stage| {
                    let set = stage.draft.set_limits(&set.nqn, &of, &new);
                    set.map_err(of_edit)?;
                    Ok(json!(true))
                })
                .await
            }
            "cairn_limit_remove" => {
                let NamespaceOf { nqn, nsid } = read(params)?;
                let of = LimitsOf::Namespace(nsid);
                self.change(Kind::Alone, move |stage| {
                    stage.draft.remove_limits(&nqn, &of).map_err(of_edit)?;
                    Ok(json!(true))
                })
                .await
            }
            _ => Err(Error::no_method()),
        }
    }
}

/// All limits that there are.
fn list(config: &Config) -> Value {
    let all = config.subsystems.iter().flat_map(|subsystem| {
        let namespaces = subsystem.namespaces.iter();
        namespaces.filter_map(move |namespace| {
            let mut shown = shown(&namespace.limits)?;
            shown["nqn"] = json!(subsystem.nqn.raw());
            shown["nsid"] = json!(namespace.nsid);
            Some(shown)
        })
    });
    all.collect()
}

/// `None`: there are none.
fn shown(limits: &Limits) -> Option<Value> {
    let Limits {
        iops,
        read,
        write,
        total,
        burst,
    } = *limits;
    iops.or(read).or(write).or(total)?;
    Some(json!({
        "iops": iops,
        "read": read.map(format_size),
        "write": write.map(format_size),
        "total": total.map(format_size),
        "burst_ms": burst.unwrap_or(BURST_DEFAULT).as_millis() as u64,
    }))
}
