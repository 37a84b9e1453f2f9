use super::{Examination, Finding, Severity};
use crate::facts::{Peer, RoceVersion};
use crate::mtu::{self, NETDEV_MTU_MIN, fitting};
use crate::source::{Echo, Known, Reached, Route};

pub(super) const NAME: &str = "peer";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let Some(peer) = &examination.peer else {
        return;
    };
    let route = match &peer.route {
        Known::Is(route) => route,
        Known::Unknown(unknown) => {
            findings.push(
                Finding::new(
                    NAME,
                    Severity::Error,
                    peer.address.to_string(),
                    "there is no way to it",
                )
                .because("the kernel has no route: nothing can be sent to it")
                .seen(&unknown.path, &unknown.reason)
                .fixed_by(format!("ip route get {}", peer.address))
                .fixed_by("ip address  # is the interface up, and in the peer's network?"),
            );
            return;
        }
    };
    findings.push(route_finding(examination, peer, route));
    findings.extend(source_gid(examination, peer, route));
    findings.extend(routed_v1(examination, peer, route));
    findings.extend(other_subnet(examination, peer, route));
    findings.extend(neighbour(peer, route));
    findings.extend(path_mtu(peer, route));
    findings.extend(roce_port(peer));
}

fn text(route: &Route) -> String {
    let via = route
        .gateway
        .map_or_else(String::new, |via| format!(" via {via}"));
    let source = route
        .source
        .map_or_else(String::new, |source| format!(" src {source}"));
    format!("dev {}{via}{source}", route.netdev)
}

fn route_finding(examination: &Examination, peer: &Peer, route: &Route) -> Finding {
    let mut ports = examination.fabric.ports_of(&route.netdev);
    let by = ports.next().map_or_else(
        || "no RDMA device: RoCE in user space".to_owned(),
        |(device, port)| {
            let gid = route.source.and_then(|source| port.gid_of(source));
            let gid = gid.map_or_else(
                || "no GID".to_owned(),
                |gid| format!("GID {} (RoCE {})", gid.index, gid.version),
            );
            format!("{} port {}, {gid}", device.name, port.number)
        },
    );
    Finding::new(
        NAME,
        Severity::Note,
        peer.address.to_string(),
        format!("the way to it is {}, by {by}", text(route)),
    )
    .because("a connection takes this source address, and the GID that stands for it")
    .seen(format!("route {}", peer.address), text(route))
    .fixed_by(format!(
        "nvme discover -t rdma -a {} -s 4420  # only a connection shows whether a target listens there",
        peer.address
    ))
}

fn source_gid(examination: &Examination, peer: &Peer, route: &Route) -> Option<Finding> {
    let fabric = &examination.fabric;
    let source = route.source?;
    if examination.is_soft() {
        return None;
    }
    let mut ports = fabric.ports_of(&route.netdev).peekable();
    if ports.peek().is_none() {
        let rdma: Vec<&str> = fabric
            .addresses
            .each()
            .filter(|own| fabric.ports_of(&own.netdev).next().is_some())
            .map(|own| own.netdev.as_str())
            .collect();
        return Some(
            Finding::new(
                NAME,
                Severity::Error,
                peer.address.to_string(),
                format!("packets to it leave by {}, which no RDMA device uses", route.netdev),
            )
            .because("librdmacm says \"no such device\", although the adapter could reach the peer by another netdev")
            .seen(format!("route {}", peer.address), text(route))
            .fixed_by(format!(
                "ip route add {}/32 dev {}",
                peer.address,
                rdma.first().unwrap_or(&"IFACE")
            )),
        );
    }
    let (device, port) = ports.find(|(_, port)| port.gids.get().is_some())?;
    port.gid_of(source).is_none().then(|| {
        Finding::new(
            NAME,
            Severity::Error,
            peer.address.to_string(),
            format!(
                "packets to it come from {source}, and {} port {} has no GID for that",
                device.name, port.number
            ),
        )
        .because("a connection needs a source GID")
        .seen(format!("{}/gids", port.path), format!("none for {source}"))
        .fixed_by(format!(
            "{} doctor --address {source}",
            examination.intent.caller.program()
        ))
    })
}

fn routed_v1(examination: &Examination, peer: &Peer, route: &Route) -> Option<Finding> {
    let gateway = route.gateway?;
    let mut ports = examination.fabric.ports_of(&route.netdev);
    let (device, port) = ports.find(|(_, port)| port.default_version() == Some(RoceVersion::V1))?;
    Some(
        Finding::new(
            NAME,
            Severity::Error,
            peer.address.to_string(),
            format!("the way to it goes by router {gateway}, and connections use RoCE v1"),
        )
        .because("RoCE v1 has no IP header: no router can pass it on")
        .seen(format!("route {}", peer.address), text(route))
        .safely_fixed_by(&[
            examination.intent.caller.program(),
            "fabric",
            "set-mode",
            &device.name,
            "v2",
            "--port",
            &port.number.to_string(),
        ]),
    )
}

fn other_subnet(examination: &Examination, peer: &Peer, route: &Route) -> Option<Finding> {
    let gateway = route.gateway?;
    let netdev = examination.fabric.netdev(&route.netdev)?;
    let vlan = netdev.vlan.get().and_then(Option::as_ref);
    let here = vlan.map_or_else(|| "untagged".to_owned(), |vlan| format!("VLAN {}", vlan.id));
    Some(
        Finding::new(
            NAME,
            Severity::Note,
            peer.address.to_string(),
            format!(
                "it is in another network: by router {gateway}, from {} ({here})",
                route.netdev
            ),
        )
        .because(
            "every router on the way must keep the DSCP, carry the MTU and be lossless for it; \
             storage is best in one network and one VLAN",
        )
        .seen(format!("route {}", peer.address), text(route))
        .fixed_by(format!(
            "ip -d link show {}; ip address show {}",
            route.netdev, route.netdev
        )),
    )
}

fn neighbour(peer: &Peer, route: &Route) -> Option<Finding> {
    let next_hop = route.gateway.unwrap_or(peer.address);
    let neighbour = peer.neighbour.get()?;
    matches!(neighbour.state.as_str(), "FAILED" | "INCOMPLETE").then(|| {
        Finding::new(
            NAME,
            Severity::Error,
            peer.address.to_string(),
            format!("no machine on {} answers for {next_hop}", route.netdev),
        )
        .because(
            "its link address is not found (ARP, neighbour discovery): it is off, or in another \
             VLAN, or the cable is in another switch",
        )
        .seen(
            format!("neighbour {} {next_hop}", route.netdev),
            &neighbour.state,
        )
        .fixed_by(format!(
            "ip -d link show {}  # the VLAN; then the switch port",
            route.netdev
        ))
    })
}

fn path_mtu(peer: &Peer, route: &Route) -> Option<Finding> {
    let subject = peer.address.to_string();
    let tried = peer.largest_tried()?;
    let Some(passed) = peer.largest_echo() else {
        let (bytes, echo) = peer.echoes.first()?;
        return matches!(echo, Known::Is(Echo::Silent)).then(|| {
            Finding::new(
                NAME,
                Severity::Warning,
                subject,
                "it does not answer a ping: the path MTU is not known",
            )
            .because("it may be off, or filter ICMP; RoCE does not need pings")
            .seen(format!("echo {} {bytes}", peer.address), "silent")
            .fixed_by(format!("ping -c 1 {}", peer.address))
        });
    };
    if passed == tried {
        return None;
    }
    let (fits, wanted) = (fitting(passed), fitting(tried));
    let works = fits.map_or_else(|| "none".to_owned(), |fits| fits.to_string());
    let meanwhile = if fitting(passed.max(NETDEV_MTU_MIN)) == fits {
        format!("{}  # here, until then", mtu::set(&route.netdev, passed))
    } else {
        format!("tracepath -n {}  # where the MTU falls", peer.address)
    };
    Some(
        Finding::new(
            NAME,
            if fits == wanted {
                Severity::Warning
            } else {
                Severity::Error
            },
            subject,
            format!(
                "packets of {passed} bytes come back, those of {tried} do not: something on the \
                 way has a smaller MTU than {}",
                route.netdev
            ),
        )
        .because(format!(
            "connections are made (small packets) and then hang on the first large transfer, with \
             \"transport retry counter exceeded\". The largest RoCE MTU that passes is {works}"
        ))
        .seen(format!("echo {} {tried}", peer.address), "not answered")
        .seen(format!("echo {} {passed}", peer.address), "answered")
        .fixed_by(format!(
            "{}  # on the peer and on each switch between",
            mtu::set("NETDEV", tried)
        ))
        .fixed_by(meanwhile),
    )
}

fn roce_port(peer: &Peer) -> Option<Finding> {
    let address = peer.address;
    let question = format!("udp {address} 4791");
    let finding = |severity, what: &str| Finding::new(NAME, severity, address.to_string(), what);
    match peer.roce_port.get()? {
        // Silence is normal: an adapter of the peer drops the datagram.
        Reached::Silent => None,
        Reached::Refused => Some(
            finding(
                Severity::Warning,
                "its kernel reports that no program has UDP port 4791: no RoCE v2 there, or an adapter \
                 that leaves such packets to the kernel",
            )
            .because("a host or target that speaks RoCE v2 takes them without an answer")
            .seen(question, "refused (ICMP port unreachable)")
            .fixed_by("rdma link; ss -uln 'sport = :4791'  # on the peer"),
        ),
        Reached::Unreachable => Some(
            finding(Severity::Error, "UDP port 4791 cannot be reached")
                .because("a router or a filter on the way says so by ICMP")
                .seen(question, "unreachable or prohibited")
                .fixed_by(format!("tracepath -p 4791 {address}")),
        ),
        Reached::FilteredHere => Some(
            finding(
                Severity::Error,
                "a filter on this machine stops packets to UDP port 4791",
            )
            .because("adapters bypass such filters, RoCE in software does not")
            .seen(question, "operation not permitted")
            .fixed_by("nft add rule inet filter output udp dport 4791 accept")
            .fixed_by("nft list ruleset | grep -n -B3 -A3 4791"),
        ),
    }
}
