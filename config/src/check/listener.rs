use std::net::{IpAddr, Ipv4Addr};

use cairn_base::{Traddr, Trid};
use cairn_rdma::ROCE_PORT;
use cairn_rdma::marking::Prefix;
use cairn_rdma::{PKey, Roce};

use super::{Check, ana, target};
use crate::config::{ALLOWED_ADDRESSES_MAX, LISTENERS_MAX, Listener, PORT_DEFAULT, Provider};
use crate::file::ListenerTable;
use crate::flags::address_error;
use crate::key_path::KeyPath;

const BACKLOG_DEFAULT: i64 = 128;
const BACKLOG_MAX: i64 = 4096;

#[derive(Clone, Copy)]
pub(super) struct Defaults {
    pub(super) provider: Provider,
    pub(super) roce: Roce,
}

pub(super) fn check(
    check: &mut Check<'_>,
    place: &KeyPath,
    tables: &[ListenerTable],
    defaults: Defaults,
    may_come: bool,
) -> Vec<Listener> {
    if tables.is_empty() && !may_come && check.problems.is_empty() {
        check
            .wrong(&KeyPath::root(), "there is no address to listen on")
            .help("add a [[listener]] with an address to the file, or --listen ADDR");
    }
    check.count(place, tables.len(), LISTENERS_MAX);
    let port_ids = ana::port_ids(check, place, tables);
    let listeners: Vec<Option<Listener>> = tables
        .iter()
        .zip(port_ids)
        .enumerate()
        .map(|(index, (table, port_id))| {
            listener(check, &place.index(index), table, defaults, port_id)
        })
        .collect();
    let roce = defaults.roce;
    for (index, listener) in listeners.iter().enumerate() {
        let Some(listener) = listener else { continue };
        let clash = |other: &Option<Listener>| clash(other.as_ref()?, listener, roce);
        let mut earlier = listeners[..index].iter().map(clash).enumerate();
        let Some((first, clash)) = earlier.find_map(|(first, clash)| Some((first, clash?))) else {
            continue;
        };
        let key = |index| place.index(index).key("address");
        let address = listener.trid();
        match clash {
            Clash::Port => {
                let what = format!("the address {address}");
                let repeated = check.repeated(&key(index), &key(first), what);
                repeated.help(
                    "remove one of them, or give it another port; 0.0.0.0 and :: include all",
                );
            }
            Clash::RocePort => {
                let first = check.excerpt(&key(first)).reference();
                let message = format!(
                    "{address} needs UDP port {ROCE_PORT} as the listener of {first} does: in user space 0.0.0.0 \
                     and :: take it at every address, whatever the port of the listener"
                );
                check.wrong(&key(index), message).help(
                    "listen at 0.0.0.0 or :: alone, which includes all addresses, or list the addresses one by one",
                );
            }
        }
    }
    one_tag_an_address(check, place, &listeners, defaults.roce);
    listeners.into_iter().flatten().collect()
}

/// Refuses RoCE v1 listeners with different VLAN tags at one address, because one socket receives
/// the frames of all tags.
fn one_tag_an_address(
    check: &mut Check<'_>,
    place: &KeyPath,
    listeners: &[Option<Listener>],
    otherwise: Roce,
) {
    let tag = |listener: &Listener| match listener.roce.unwrap_or(otherwise) {
        Roce::V1 { vlan } if listener.provider != Provider::Verbs => Some(vlan),
        _ => None,
    };
    for (index, listener) in listeners.iter().enumerate() {
        let Some((listener, own)) = listener.as_ref().and_then(|one| Some((one, tag(one)?))) else {
            continue;
        };
        let other = listeners[..index].iter().position(|other| {
            let other = other
                .as_ref()
                .filter(|other| other.address == listener.address);
            other.and_then(tag).is_some_and(|tag| tag != own)
        });
        if let Some(first) = other {
            let first = check
                .excerpt(&place.index(first).key("address"))
                .reference();
            let message = format!(
                "{} has RoCE v1 with another VLAN already, by {first}",
                listener.address
            );
            check
                .wrong(&place.index(index).key("address"), message)
                .help("give both the same vlan, or listen at another address of the interface");
        }
    }
}

#[derive(Clone, Copy)]
enum Clash {
    Port,
    /// UDP port 4791. Each soft RoCE v2 listener binds it in addition to its own port.
    RocePort,
}

fn clash(one: &Listener, other: &Listener, otherwise: Roce) -> Option<Clash> {
    let is_wildcard = |listener: &Listener| listener.address.ip().is_unspecified();
    let has_wildcard = is_wildcard(one) || is_wildcard(other);
    let is_same = one.address == other.address;
    let overlaps =
        is_same || has_wildcard && one.address.ip().is_ipv4() == other.address.ip().is_ipv4();
    let binds_udp = |listener: &Listener| {
        let roce = listener.roce.unwrap_or(otherwise);
        listener.provider == Provider::Soft && roce == Roce::V2
    };
    if !overlaps {
        None
    } else if one.port == other.port {
        Some(Clash::Port)
    } else if !is_same && binds_udp(one) && binds_udp(other) {
        Some(Clash::RocePort)
    } else {
        None
    }
}

fn listener(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &ListenerTable,
    defaults: Defaults,
    port_id: u16,
) -> Option<Listener> {
    let address = address(check, place, table.address.as_deref());
    let port = check.number(&place.key("port"), table.port, 1..=65535);
    let provider = target::named_provider(check, place, table.provider.as_deref());
    let provider = provider.unwrap_or(defaults.provider);
    let roce = roce(check, place, table, provider, defaults.roce);
    let traffic_class = traffic_class(check, place, table);
    let hop_limit = check.number(&place.key("hop_limit"), table.hop_limit, 1..=255);
    let pkey = pkey(check, &place.key("pkey"), table.pkey);
    let allowed_addresses = allowed_addresses(check, place, table);
    let backlog = check.number(&place.key("backlog"), table.backlog, 1..=BACKLOG_MAX);
    let ana = ana::states(check, place, table);
    Some(Listener {
        address: address?,
        port: port.map_or(PORT_DEFAULT, |port| port as u16),
        provider,
        roce,
        traffic_class,
        hop_limit: hop_limit.map(|hops| hops as u8),
        pkey: pkey.unwrap_or_default(),
        allowed_addresses,
        backlog: backlog.unwrap_or(BACKLOG_DEFAULT) as u32,
        port_id,
        ana,
    })
}

/// Returns a listener's RoCE version, or `None` for the target's version. `roce` and `vlan` are
/// errors for the verbs provider, because the RDMA device determines the version.
fn roce(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &ListenerTable,
    provider: Provider,
    otherwise: Roce,
) -> Option<Roce> {
    let (version, vlan) = (table.roce.as_deref(), table.vlan);
    let key = if version.is_some() { "roce" } else { "vlan" };
    if version.is_none() && vlan.is_none() {
        return None;
    }
    let own = target::roce(check, place, version, vlan, otherwise);
    if provider == Provider::Verbs {
        let message =
            format!("\"{key}\" is of RoCE in user space, and this listener is an adapter's");
        check.wrong(&place.key(key), message).help(
            "leave it out: the type of a GID says what an adapter speaks; or provider = \"soft\"",
        );
    }
    Some(own)
}

fn address(check: &mut Check<'_>, place: &KeyPath, text: Option<&str>) -> Option<Traddr> {
    const EXAMPLE: &str = "write an address of this machine, such as address = \"192.0.2.1\"; \
                           \"ip -brief address\" shows them";
    let Some(text) = text else {
        check.missing(place, "address", EXAMPLE);
        return None;
    };
    let at = place.key("address");
    let address = match text.parse::<Traddr>() {
        Ok(address) => address,
        Err(error) => {
            let what = address_error(text, &error);
            let problem = check.wrong(&at, what);
            problem.help(match text.parse::<Trid>() {
                Ok(Trid { address, port }) => {
                    format!("write address = \"{address}\" and port = {port}")
                }
                Err(_) => EXAMPLE.to_owned(),
            });
            return None;
        }
    };
    let ip = address.ip();
    if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        let message = format!("{address} belongs to no single machine");
        check.wrong(&at, message).help(EXAMPLE);
    } else if address.lacks_scope() {
        let message = format!("{address} is link-local and may belong to any interface");
        check.wrong(&at, message).help(format!(
            "write the interface, too, such as address = \"{address}%eth0\"; \"ip -6 -brief address\" shows them"
        ));
    } else {
        return Some(address);
    }
    None
}

fn allowed_addresses(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &ListenerTable,
) -> Option<Vec<Prefix>> {
    let texts = table.allowed_addresses.as_ref()?;
    let place = place.key("allowed_addresses");
    if texts.is_empty() {
        check
            .wrong(&place, "no host could connect")
            .help("list addresses, or leave it out to allow all");
    }
    check.count(&place, texts.len(), ALLOWED_ADDRESSES_MAX);
    let mut allowed = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match Prefix::parse(text) {
            Some(prefix) => allowed.push(prefix),
            None => {
                let message = format!("\"{text}\" is no address and no prefix");
                check.wrong(&place.index(index), message).help(
                    "write an address such as \"192.0.2.9\", or a prefix such as \"192.0.2.0/24\"",
                );
            }
        }
    }
    Some(allowed)
}

fn pkey(check: &mut Check<'_>, place: &KeyPath, bits: Option<i64>) -> Option<PKey> {
    let bits = bits?;
    let pkey = u16::try_from(bits).ok().and_then(PKey::new);
    if pkey.is_none() {
        check
            .wrong(place, format!("{bits:#06x} is no partition key"))
            .help(
                "write 0x8001 to 0xffff for full membership, 0x0001 to 0x7fff for limited \
                 membership, or leave it out for the default partition, 0xffff",
            );
    }
    pkey
}

fn traffic_class(check: &mut Check<'_>, place: &KeyPath, table: &ListenerTable) -> Option<u8> {
    let tos = check.number(&place.key("tos"), table.tos, 0..=255);
    let dscp = check.number(&place.key("dscp"), table.dscp, 0..=63);
    if tos.is_some() && dscp.is_some() {
        check
            .wrong(&place.key("dscp"), "\"tos\" and \"dscp\" set the same byte")
            .help("keep one of them; ToS is four times the DSCP");
    }
    tos.or(dscp.map(|dscp| dscp << 2)).map(|tos| tos as u8)
}
