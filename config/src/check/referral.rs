use std::net::{IpAddr, SocketAddr};

use nvme_proto::wire::Nqn;

use super::{Check, subsystem};
use crate::config::{PORT_DEFAULT, REFERRALS_MAX, Referral};
use crate::file::ReferralTable;
use crate::key_path::KeyPath;

pub(super) fn check(
    check: &mut Check<'_>,
    place: &KeyPath,
    tables: &[ReferralTable],
) -> Vec<Referral> {
    check.count(place, tables.len(), REFERRALS_MAX);
    let mut referrals: Vec<(usize, Referral)> = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let at = place.index(index);
        let Some(referral) = referral(check, &at, table) else {
            continue;
        };
        let mut earlier = referrals.iter();
        if let Some((first, _)) = earlier.find(|(_, other)| *other == referral) {
            let what = format!("the referral to {}", referral.address);
            let first = place.index(*first);
            let repeated = check.repeated(&at, &first, what);
            repeated.help("remove one of them");
        } else {
            referrals.push((index, referral));
        }
    }
    referrals
        .into_iter()
        .map(|(_, referral)| referral)
        .collect()
}

fn referral(check: &mut Check<'_>, place: &KeyPath, table: &ReferralTable) -> Option<Referral> {
    const EXAMPLE: &str = "write the address of the service, such as address = \"192.0.2.2\"";
    let port = check.number(&place.key("port"), table.port, 1..=65535);
    let nqn = match table.nqn.as_deref() {
        None => Some(Nqn::discovery()),
        Some("") => {
            let problem = check.wrong(
                &place.key("nqn"),
                "the name of the discovery service is empty",
            );
            problem.help("leave it out, or write the unique name of the service");
            None
        }
        Some(text) => subsystem::parse_nqn(check, &place.key("nqn"), text),
    };
    let Some(text) = table.address.as_deref() else {
        check.missing(place, "address", EXAMPLE);
        return None;
    };
    let address = text.parse::<IpAddr>().ok();
    let Some(address) = address.filter(|address| !address.is_unspecified()) else {
        check
            .wrong(
                &place.key("address"),
                format!("\"{text}\" is not an address that hosts can connect to"),
            )
            .help(EXAMPLE);
        return None;
    };
    Some(Referral {
        address: SocketAddr::new(address, port.map_or(PORT_DEFAULT, |port| port as u16)),
        nqn: nqn?,
    })
}
