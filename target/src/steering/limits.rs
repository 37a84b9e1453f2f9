use cairn_config::{BURST_DEFAULT, Config, Limits, LimitsOf, NewLimits};
use cairn_control::{Error, Kind, Nothing, read};
use nvme_proto::wire::Nqn;
use serde_json::{Map, Value};

use super::methods::{Methods, answer};
use super::parameters::{LimitOf, LimitSet};
use super::wording::word;
use crate::answers::{Limit, LimitsSet};

impl Methods {
    pub(super) async fn limit_methods(
        &self,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, Error> {
        match method {
            "cairn_limit_list" => {
                read::<Nothing>(params)?;
                answer(&list(&self.snapshot().await?.config))
            }
            "cairn_limit_set" => {
                let set: LimitSet = read(params)?;
                let new = NewLimits {
                    iops: set.iops,
                    read: set.read,
                    write: set.write,
                    total: set.total,
                    outstanding: set.outstanding,
                    burst_ms: set.burst_ms,
                };
                if new == NewLimits::default() {
                    let message =
                        "no limit is given: give iops, read, write, total, outstanding or burst_ms";
                    return Err(Error::invalid(message));
                }
                let of = limits_of(set.nsid, set.each_host, set.host)?;
                self.change(Kind::Alone, move |stage| {
                    let changed = stage.draft.set_limits(&set.nqn, &of, &new)?;
                    let mut warnings = Vec::new();
                    if let LimitsOf::Host(host) = &of
                        && !stage.draft.permits(&set.nqn, host)?
                    {
                        warnings.push(format!(
                            "{} does not permit {host}, so these limits apply to no host: is the \
                             name mistyped? cairn-target host list {} shows the permitted ones",
                            set.nqn,
                            word(&set.nqn)
                        ));
                    }
                    answer(&LimitsSet { changed, warnings })
                })
                .await
            }
            "cairn_limit_remove" => {
                let LimitOf {
                    nqn,
                    nsid,
                    each_host,
                    host,
                } = read(params)?;
                let of = limits_of(nsid, each_host, host)?;
                self.edit(Kind::Narrows, move |draft| draft.remove_limits(&nqn, &of))
                    .await
            }
            _ => Err(Error::no_method()),
        }
    }
}

fn limits_of(nsid: Option<u32>, each_host: bool, host: Option<String>) -> Result<LimitsOf, Error> {
    match (nsid, each_host, host) {
        (Some(nsid), false, None) => Ok(LimitsOf::Namespace(nsid)),
        (None, false, None) => Ok(LimitsOf::Subsystem),
        (None, true, None) => Ok(LimitsOf::EachHost),
        (None, false, Some(host)) => Ok(LimitsOf::Host(host)),
        _ => Err(Error::invalid(
            "hosts have limits at the whole subsystem: give one of \"nsid\", \"each_host\" and \
             \"host\"",
        )),
    }
}

fn list(config: &Config) -> Vec<Limit> {
    let mut all = Vec::new();
    for subsystem in &config.subsystems {
        let mut add = |nsid: Option<u32>, each_host, host: Option<&Nqn>, limits: &Limits| {
            let Limits {
                iops,
                read,
                write,
                total,
                outstanding,
                burst,
                weight,
            } = *limits;
            let outstanding = outstanding.map(u64::from);
            let any = iops.or(read).or(write).or(total).or(outstanding);
            if any.is_some() || host.is_some() {
                all.push(Limit {
                    nqn: subsystem.nqn.raw().to_owned(),
                    nsid,
                    each_host,
                    host: host.map(|host| host.raw().to_owned()),
                    iops,
                    read,
                    write,
                    total,
                    outstanding,
                    burst_ms: burst.unwrap_or(BURST_DEFAULT).as_millis() as u64,
                    weight: weight.map(u64::from),
                });
            }
        };
        add(None, false, None, &subsystem.limits);
        add(None, true, None, &subsystem.limits_per_host);
        for (host, limits) in &subsystem.limits_of_hosts {
            add(None, false, Some(host), limits);
        }
        for namespace in &subsystem.namespaces {
            add(Some(namespace.nsid), false, None, &namespace.limits);
        }
    }
    all
}
