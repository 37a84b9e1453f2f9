use super::table::Table;
use crate::facts::{Counters, Device, Fabric, Function, Netdev, Port};
use crate::mtu::fitting;
use crate::source::{Known, QueuePairs};
use crate::tos::Tos;

pub(super) fn describe(fabric: &Fabric, all: bool) -> String {
    let mut text = String::new();
    match &fabric.devices {
        Known::Is(devices) if devices.is_empty() => text.push_str(NO_DEVICE),
        Known::Is(devices) => {
            for device in devices {
                text.push_str(&describe_device(fabric, device, all));
            }
        }
        Known::Unknown(unknown) => {
            text.push_str(&format!("RDMA devices: unknown, because {unknown}\n\n"));
        }
    }
    text.push_str(&netdevs(fabric));
    text.push_str(&bonds(fabric));
    text.push_str(&host(fabric));
    text
}

const NO_DEVICE: &str = "\
No RDMA device. RoCE works all the same: --provider soft speaks RoCE v2 over a UDP socket, on any
network interface below, without a device, a kernel module or root.

";

fn describe_device(fabric: &Fabric, device: &Device, all: bool) -> String {
    let function = match device.function {
        Function::Physical { vfs: 0 } => "physical function".to_owned(),
        Function::Physical { vfs } => format!("physical function with {vfs} VFs"),
        Function::Virtual => "virtual function".to_owned(),
        Function::Software => "software".to_owned(),
    };
    let netdevs: Vec<&str> = device.netdevs.each().map(String::as_str).collect();
    let node = match &device.uverbs {
        Known::Is(Some(node)) => format!("/dev/infiniband/{node}"),
        Known::Is(None) => "no device node".to_owned(),
        Known::Unknown(unknown) => format!("node unknown, because {unknown}"),
    };
    let mut text = format!(
        "{}: {}, {function}, {node}\n",
        device.name,
        match device.is_soft_roce() {
            true => "soft RoCE (rdma_rxe)".to_owned(),
            false => format!("driver {}", device.driver),
        }
    );
    text.push_str(&format!(
        "  netdevs {}; firmware {}; board {}; PCI {}; NUMA node {}; GUID {}\n",
        if netdevs.is_empty() {
            "none".to_owned()
        } else {
            netdevs.join(" ")
        },
        optional(&device.firmware),
        optional(&device.board),
        optional(&device.pci),
        match &device.numa_node {
            Known::Is(Some(node)) => node.to_string(),
            Known::Is(None) => "-".to_owned(),
            Known::Unknown(unknown) => format!("unknown, because {unknown}"),
        },
        device.node_guid,
    ));
    text.push_str(&format!("  queue pairs: {}\n", queue_pairs(device)));
    match &device.ports {
        Known::Is(ports) => {
            for port in ports {
                text.push_str(&describe_port(fabric, device, port, all));
            }
        }
        Known::Unknown(unknown) => text.push_str(&format!("  ports unknown, because {unknown}\n")),
    }
    text.push('\n');
    text
}

fn queue_pairs(device: &Device) -> String {
    let groups = match &device.queue_pairs {
        Known::Is(groups) if groups.is_empty() => return "none".to_owned(),
        Known::Is(groups) => groups,
        Known::Unknown(unknown) => return format!("unknown, because {unknown}"),
    };
    let describe = |group: &QueuePairs| {
        let QueuePairs { kind, state, .. } = group;
        let port = group
            .port
            .map_or(String::new(), |port| format!(" of port {port}"));
        let broken = if group.is_broken_gsi() {
            " (broken: no host can connect)"
        } else {
            ""
        };
        format!("{} {kind} {state}{port}{broken}", group.count)
    };
    let groups: Vec<String> = groups.iter().map(describe).collect();
    groups.join(", ")
}

fn describe_port(fabric: &Fabric, device: &Device, port: &Port, all: bool) -> String {
    let netdev = port.netdevs(device).next();
    let netdev_mtu = netdev.and_then(|name| fabric.netdev(name)?.mtu.get().copied());
    let mtu = match (&port.mtu, netdev_mtu.and_then(fitting)) {
        (Known::Is(mtu), _) => format!("MTU {} (of {})", mtu.active, mtu.max),
        (Known::Unknown(_), Some(fits)) => format!("MTU {fits} (by the netdev's)"),
        (Known::Unknown(unknown), None) => format!("MTU unknown, because {unknown}"),
    };
    let mut text = format!(
        "  port {}: {} ({}), {}, {}, {mtu}, LID {}, {}\n",
        port.number,
        port.state,
        port.physical_state,
        port.link_layer,
        port.rate,
        port.lid,
        netdev.map_or("no netdev", |netdev| netdev),
    );
    let defaults = match &port.defaults {
        Known::Is(defaults) => format!("{}, {}", defaults.mode, Tos(defaults.tos)),
        Known::Unknown(unknown) => format!("unknown, because {unknown}"),
    };
    text.push_str(&format!("    default for connections: {defaults}\n"));
    text.push_str(&format!(
        "    forced traffic class: {}\n",
        forced_class(port)
    ));
    text.push_str(&format!("    forced hop limit: {}\n", forced_ttl(port)));
    if let Some(pkeys) = port.pkeys.get() {
        text.push_str(&format!("    P_Keys: {}\n", pkeys.join(" ")));
    }
    text.push_str(&gids(port));
    text.push_str(&counters("counters", &port.counters, all));
    text.push_str(&counters("hw_counters", &port.hw_counters, all));
    text
}

fn forced_class(port: &Port) -> String {
    match &port.forced_class {
        Known::Is(None) => "the driver cannot".to_owned(),
        Known::Is(Some(forced)) => match forced.global {
            Some(global) => format!("{global} for every queue pair"),
            None if forced.rules.is_empty() => "none".to_owned(),
            None => {
                let rules: Vec<String> = forced.rules.iter().map(ToString::to_string).collect();
                rules.join("; ")
            }
        },
        Known::Unknown(unknown) => format!("unknown, because {unknown}"),
    }
}

fn forced_ttl(port: &Port) -> String {
    match &port.forced_ttl {
        Known::Is(None) => "the driver cannot".to_owned(),
        Known::Is(Some(ttl)) if ttl.starts_with('-') => "none".to_owned(),
        ttl => optional(ttl),
    }
}

fn gids(port: &Port) -> String {
    let gids = match &port.gids {
        Known::Is(gids) => gids,
        Known::Unknown(unknown) => return format!("    GIDs unknown, because {unknown}\n"),
    };
    if gids.is_empty() {
        return format!("    GIDs: none, of {} possible\n", port.gid_table_size);
    }
    let taken = format!(
        "    GID table: {} of {} entries taken\n",
        gids.len(),
        port.gid_table_size
    );
    let mut table = Table::new(&["INDEX", "GID", "ADDRESS", "ROCE", "NETDEV", "IN USE"]);
    for gid in gids {
        table.row(vec![
            gid.index.to_string(),
            gid.gid.to_string(),
            gid.address
                .map_or("-".to_owned(), |address| address.to_string()),
            gid.version.to_string(),
            gid.netdev.to_string(),
            if gid.in_use { "yes" } else { "" }.to_owned(),
        ]);
    }
    taken + &table.text("    ")
}

fn counters(title: &str, counters: &Known<Counters>, all: bool) -> String {
    let counters = match counters {
        Known::Is(counters) => counters,
        Known::Unknown(unknown) => return format!("    {title}: unknown, because {unknown}\n"),
    };
    let shown: Vec<String> = counters
        .iter()
        .filter(|(_, value)| all || **value > 0)
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if shown.is_empty() {
        return format!("    {title}: all zero\n");
    }
    format!("    {title}: {}\n", shown.join(", "))
}

fn netdevs(fabric: &Fabric) -> String {
    let netdevs = match &fabric.netdevs {
        Known::Is(netdevs) => netdevs,
        Known::Unknown(unknown) => return format!("netdevs: unknown, because {unknown}\n\n"),
    };
    let names = [
        "NETDEV",
        "STATE",
        "MTU",
        "ROCE MTU",
        "SPEED",
        "DRIVER",
        "KIND",
        "ADDRESSES",
        "PAUSE",
        "PFC",
        "TRUST",
        "ECN",
    ];
    let mut table = Table::new(&names);
    for netdev in netdevs {
        let mtu = netdev.mtu.get().copied().and_then(fitting);
        let speed = netdev.speed.get().copied().flatten();
        let driver = netdev
            .driver
            .get()
            .map_or("-", |driver| driver.driver.as_str());
        let addresses = netdev.addresses.iter();
        let addresses: Vec<String> = addresses
            .map(|own| format!("{}/{}", own.address, own.prefix))
            .collect();
        table.row(vec![
            netdev.name.clone(),
            word(&netdev.state),
            word(&netdev.mtu),
            mtu.map_or("-".to_owned(), |mtu| mtu.to_string()),
            speed.map_or("-".to_owned(), |speed| format!("{speed} Mb/s")),
            driver.to_owned(),
            kind(netdev),
            if addresses.is_empty() {
                "-".to_owned()
            } else {
                addresses.join(" ")
            },
            pause(netdev),
            pfc(netdev),
            trust(netdev),
            ecn(netdev),
        ]);
    }
    format!("{}\n", table.text(""))
}

fn kind(netdev: &Netdev) -> String {
    if let Known::Is(Some(vlan)) = &netdev.vlan {
        return format!("VLAN {} on {}", vlan.id, vlan.parent);
    }
    if let Known::Is(Some(bond)) = &netdev.bond {
        return format!("bond of {}", bond.slaves.join(" "));
    }
    match &netdev.master {
        Known::Is(Some(master)) => format!("in {master}"),
        _ => "-".to_owned(),
    }
}

fn pause(netdev: &Netdev) -> String {
    match netdev.pause.get() {
        Some(pause) => match (pause.rx, pause.tx) {
            (true, true) => "rx tx",
            (true, false) => "rx",
            (false, true) => "tx",
            (false, false) => "off",
        },
        None => "?",
    }
    .to_owned()
}

fn pfc(netdev: &Netdev) -> String {
    match netdev.dcb.get() {
        Some(dcb) if dcb.pfc.is_empty() => "off".to_owned(),
        Some(dcb) => {
            let priorities: Vec<String> = dcb.pfc.iter().map(ToString::to_string).collect();
            format!("prio {}", priorities.join(","))
        }
        None => "?".to_owned(),
    }
}

fn trust(netdev: &Netdev) -> String {
    match netdev.dcb.get() {
        Some(dcb) if dcb.dscp.is_empty() => "PCP",
        Some(_) => "DSCP",
        None => "?",
    }
    .to_owned()
}

fn ecn(netdev: &Netdev) -> String {
    let Known::Is(Some(ecn)) = &netdev.ecn else {
        return "-".to_owned();
    };
    let on = |states: &std::collections::BTreeMap<u32, bool>| {
        let on: Vec<String> = states
            .iter()
            .filter(|(_, is_on)| **is_on)
            .map(|(priority, _)| priority.to_string())
            .collect();
        if on.is_empty() {
            "off".to_owned()
        } else {
            on.join(",")
        }
    };
    format!("np {} rp {}", on(&ecn.notifies), on(&ecn.reacts))
}

fn bonds(fabric: &Fabric) -> String {
    let mut text = String::new();
    for netdev in fabric.netdevs.each() {
        let (Some(lag), Known::Is(Some(bond))) = (fabric.lag(netdev), &netdev.bond) else {
            continue;
        };
        text.push_str(&format!(
            "{} ({} of {}): ",
            netdev.name,
            bond.mode,
            bond.slaves.join(" ")
        ));
        match (&lag.device, lag.obstacles.as_slice()) {
            (Some(device), []) => text.push_str(&format!("RoCE LAG, device {device}\n")),
            (None, []) => text.push_str("RoCE LAG is possible, and no device spans the bond\n"),
            (_, obstacles) => {
                let what: Vec<&str> = obstacles.iter().map(|one| one.what.as_str()).collect();
                text.push_str(&format!("no RoCE LAG: {}\n", what.join("; ")));
            }
        }
    }
    for netdev in fabric.netdevs.each() {
        if let Some(partner) = fabric.ecmp_partner(netdev) {
            text.push_str(&format!(
                "{} with {partner}: RoCE LAG in ECMP mode\n",
                netdev.name
            ));
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn host(fabric: &Fabric) -> String {
    let host = &fabric.host;
    let modules = match &host.modules {
        Known::Is(modules) if modules.is_empty() => "none of RDMA's".to_owned(),
        Known::Is(modules) => modules.join(" "),
        Known::Unknown(unknown) => format!("unknown, because {unknown}"),
    };
    let memlock = match &host.memlock {
        Known::Is(memlock) if memlock.has_cap_ipc_lock => "no limit (CAP_IPC_LOCK)".to_owned(),
        Known::Is(memlock) => memlock.soft_bytes.map_or("unlimited".to_owned(), |bytes| {
            format!("{} KiB", bytes >> 10)
        }),
        Known::Unknown(unknown) => format!("unknown, because {unknown}"),
    };
    let nodes: Vec<String> = host
        .nodes
        .iter()
        .map(|(name, node)| match node {
            Known::Is(node) => format!("{name} {:04o}", node.node.mode),
            Known::Unknown(unknown) => format!("{name} unknown, because {unknown}"),
        })
        .collect();
    let holders: Vec<String> = fabric
        .udp_port
        .each()
        .map(|holder| match &holder.process {
            Some(process) => process.clone(),
            None if host.has_module("rdma_rxe") == Some(true) => "the kernel (rdma_rxe)".to_owned(),
            None => format!("a socket of user {}", holder.uid),
        })
        .collect();
    format!(
        "kernel {}; modules {modules}\nlocked memory: {memlock}; /dev/infiniband: {}; UDP port 4791: {}\n",
        host.kernel,
        if nodes.is_empty() {
            "not there".to_owned()
        } else {
            nodes.join(", ")
        },
        if holders.is_empty() {
            "free".to_owned()
        } else {
            holders.join(", ")
        },
    )
}

fn optional(known: &Known<Option<String>>) -> String {
    match known {
        Known::Is(Some(text)) => text.clone(),
        Known::Is(None) => "-".to_owned(),
        Known::Unknown(unknown) => format!("unknown, because {unknown}"),
    }
}

fn word(known: &Known<impl ToString>) -> String {
    known.get().map_or("?".to_owned(), ToString::to_string)
}
