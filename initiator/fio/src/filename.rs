//! Parser of fio's `filename`, which selects a namespace by the keys of SPDK's fio engine. A value
//! contains a colon as `\:`, because fio separates names by colons.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cairn_base::Traddr;
use cairn_base::traddr::ends;
use cairn_initiator::identity;
use cairn_initiator::providers::RdmaOptions;
use cairn_initiator::{HostOptions, Recovery};
use cairn_rdma::{AckTimeout, PKey};
use clap::ValueEnum;
use nvme_proto::wire::Nqn;

const PORT: u16 = 4420;

const EXAMPLE: &str = "--filename='traddr=192.0.2.1 subnqn=nqn.2026-01.org.example\\:disk ns=1'";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filename {
    remote: SocketAddr,
    subnqn: Nqn,
    pub(crate) nsid: u32,
    pub(crate) rdma: RdmaOptions,
    hostnqn: Option<Nqn>,
    hostid: Option<String>,
    hostaddr: Option<IpAddr>,
    pkey: PKey,
    ack_timeout: Option<AckTimeout>,
    recovery: Recovery,
}

impl Filename {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::understand(text)
            .map_err(|error| format!("filename \"{text}\": {error}; for example {EXAMPLE}"))
    }

    fn understand(text: &str) -> Result<Self, String> {
        let (mut address, mut port, mut subnqn, mut nsid) = (None, PORT, None, 1);
        let (mut hostnqn, mut hostid, mut hostaddr) = (None, None, None);
        let (mut pkey, mut ack_timeout) = (PKey::DEFAULT, None);
        let mut rdma = RdmaOptions::default();
        let mut recovery = Recovery::default();
        for pair in text.split_whitespace() {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("\"{pair}\" is not KEY=VALUE"))?;
            match key {
                "trtype" if value.eq_ignore_ascii_case("rdma") => {}
                "trtype" => return Err(format!("trtype {value} is not spoken here, only rdma")),
                "adrfam" => {} // The address family follows from `traddr`.
                "traddr" => address = Some(parsed::<Traddr>(key, value)?),
                "trsvcid" => port = parsed(key, value)?,
                "subnqn" => subnqn = Some(nqn(key, value)?),
                "ns" => nsid = parsed(key, value)?,
                "provider" => rdma.provider = choice(key, value)?,
                "roce" => rdma.roce = choice(key, value)?,
                "vlan" => rdma.vlan = Some(parsed(key, value)?),
                "pkey" => pkey = parsed(key, value)?,
                "ack_timeout_ms" => {
                    let time = Duration::from_millis(parsed(key, value)?);
                    ack_timeout = Some(AckTimeout::at_least(time));
                }
                "hostnqn" => hostnqn = Some(nqn(key, value)?),
                "hostid" => hostid = Some(value.to_owned()),
                "hostaddr" => hostaddr = Some(parsed::<Traddr>(key, value)?),
                // -1 means no limit, as in nvme-cli.
                "ctrl_loss_tmo" => {
                    let seconds = parsed::<i64>(key, value)?;
                    let limit = u64::try_from(seconds).ok();
                    recovery.ctrl_loss_tmo = limit.map(Duration::from_secs);
                }
                "reconnect_delay" => {
                    recovery.reconnect_delay = Duration::from_secs(parsed(key, value)?);
                }
                _ => {
                    return Err(format!(
                        "\"{key}\" is not one of traddr, trsvcid, subnqn, ns, provider, roce, \
                         vlan, pkey, ack_timeout_ms, hostnqn, hostid, hostaddr, ctrl_loss_tmo, \
                         reconnect_delay, trtype, adrfam"
                    ));
                }
            }
        }
        if nsid == 0 || nsid == u32::MAX {
            return Err(format!("ns={nsid} is not a namespace number"));
        }
        let resolved = |address: Traddr| address.resolve().map_err(|error| error.to_string());
        let remote = resolved(address.ok_or("traddr is missing")?)?.at(port);
        let local = hostaddr.map(resolved).transpose()?;
        let (remote, hostaddr) = ends(remote, local).map_err(|error| error.to_string())?;
        Ok(Self {
            remote,
            subnqn: subnqn.ok_or("subnqn is missing")?,
            nsid,
            rdma,
            hostnqn,
            hostid,
            hostaddr,
            pkey,
            ack_timeout,
            recovery,
        })
    }

    pub(crate) fn options(&self, depth: u16) -> Result<HostOptions, String> {
        let host = identity::of_this_host(self.hostnqn, self.hostid.as_deref())?;
        Ok(HostOptions {
            local: self.hostaddr,
            pkey: self.pkey,
            ack_timeout: self.ack_timeout,
            queue_entries: depth.saturating_add(1),
            recovery: self.recovery,
            ..HostOptions::new(self.remote, self.subnqn, host)
        })
    }
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    key: &str,
    value: &str,
) -> Result<T, String> {
    value
        .parse()
        .map_err(|error| format!("{key}={value}: {error}"))
}

fn nqn(key: &str, value: &str) -> Result<Nqn, String> {
    Nqn::parse(value).map_err(|error| format!("{key}={value}: {error}"))
}

fn choice<T: ValueEnum>(key: &str, value: &str) -> Result<T, String> {
    T::from_str(value, false).map_err(|_| {
        let known = T::value_variants().iter().filter_map(T::to_possible_value);
        let known: Vec<_> = known.map(|known| known.get_name().to_owned()).collect();
        format!("{key}={value} is not one of {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_initiator::providers::{Choice, Version};

    #[test]
    fn all_keys_and_the_fewest() {
        let short =
            Filename::parse("traddr=192.0.2.1 subnqn=nqn.2026-01.org.example:disk").unwrap();
        assert_eq!(short.remote, "192.0.2.1:4420".parse().unwrap());
        assert_eq!((short.nsid, short.rdma.provider), (1, Choice::Auto));
        let scoped = Filename::parse(
            "traddr=fe80::1 hostaddr=fe80::2%lo subnqn=nqn.2026-01.org.example:disk",
        );
        let is_scoped = |at: SocketAddr| matches!(at, SocketAddr::V6(v6) if v6.scope_id() != 0);
        assert!(is_scoped(scoped.unwrap().remote));
        let long = Filename::parse(
            "trtype=RDMA adrfam=IPv6 traddr=2001:db8::1 trsvcid=4421 ns=7 provider=soft roce=v1 vlan=5 pkey=0x8001 ack_timeout_ms=60 \
             subnqn=nqn.2026-01.org.example:disk hostaddr=2001:db8::2 \
             hostnqn=nqn.2026-01.org.example:host hostid=4050e73e-96ba-478b-a06b-228fa40325d2 \
             ctrl_loss_tmo=-1 reconnect_delay=3",
        )
        .unwrap();
        assert_eq!(long.remote, "[2001:db8::1]:4421".parse().unwrap());
        assert_eq!((long.nsid, long.rdma.provider), (7, Choice::Soft));
        assert_eq!((long.rdma.roce, long.rdma.vlan), (Version::V1, Some(5)));
        let options = long.options(32).unwrap();
        assert_eq!(options.pkey.bits(), 0x8001);
        assert_eq!(options.ack_timeout.unwrap().exponent(), 14);
        assert_eq!(options.local, Some("2001:db8::2".parse().unwrap()));
        assert_eq!(options.hostnqn.raw(), "nqn.2026-01.org.example:host");
        assert_eq!(options.hostid[0], 0x40);
        assert_eq!(options.queue_entries, 33);
        assert_eq!(options.recovery.ctrl_loss_tmo, None);
        assert_eq!(options.recovery.reconnect_delay, Duration::from_secs(3));
    }

    #[test]
    fn what_is_wrong_is_said_with_an_example() {
        let rest = "traddr=192.0.2.1 subnqn=nqn.2026-01.org.example:disk";
        for (text, expected) in [
            ("/dev/nvme0n1", "not KEY=VALUE"),
            ("traddr=192.0.2.1", "subnqn is missing"),
            ("subnqn=nqn.2026-01.org.example:disk", "traddr is missing"),
            (&format!("{rest} trtype=tcp"), "only rdma"),
            (&format!("{rest} nsid=1"), "\"nsid\" is not one of"),
            (&format!("{rest} ns=0"), "not a namespace number"),
            (&format!("{rest} trsvcid=65536"), "trsvcid=65536"),
            (
                "traddr=fe80::1 subnqn=nqn.2026-01.org.example:disk",
                "such as fe80::1%eth0",
            ),
            (&format!("{rest} pkey=0x8000"), "0x0000 and 0x8000"),
            (
                &format!("{rest} provider=rxe"),
                "not one of auto, verbs, soft",
            ),
        ] {
            let error = Filename::parse(text).unwrap_err();
            assert!(
                error.contains(expected) && error.contains(EXAMPLE),
                "{error}"
            );
        }
    }
}
