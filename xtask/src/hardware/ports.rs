//! Both ports stay in the initial network namespace, as nvme-rdma and nvmet-rdma require. Rules
//! send local traffic over the cable.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::undo::{Undo, sh};
use crate::vm::process::command;

// RFC 2544 reserves 198.18.0.0/15 for benchmarks.
pub(super) const HOST: &str = "198.18.99.1";
pub(super) const TARGET: &str = "198.18.99.2";
const HOST_TABLE: u32 = 7471;
const TARGET_TABLE: u32 = 7472;

pub(super) struct Ports {
    near: String,
    far: String,
    far_device: String,
    links: String,
}

impl Ports {
    pub(super) fn join(near: &str, far: &str, undo: &mut Undo) -> Result<Self> {
        ensure!(near != far, "--ports names {near} twice: name two ports");
        let links = sh("rdma link show")?;
        for netdev in [near, far] {
            let state = fs::read_to_string(format!("/sys/class/net/{netdev}/operstate"))
                .with_context(|| format!("no network interface {netdev}: `ip link` lists them"))?;
            ensure!(
                state.trim() != "down",
                "{netdev} is down: plug the cable in, and run ip link set {netdev} up"
            );
            ensure!(
                device_of(&links, netdev).is_some(),
                "{netdev} has no RDMA device: `rdma link` lists them"
            );
        }
        let rules = sh("ip rule show")?;
        ensure!(
            rules.starts_with("0:\tfrom all lookup local"),
            "ip rule has no `0: from all lookup local`: restore it by ip rule add pref 0 lookup local"
        );
        for rule in rules.lines().skip(1) {
            let preference = rule.split(':').next().and_then(|text| text.parse().ok());
            ensure!(
                preference.is_none_or(|preference: u32| preference > 5),
                "the rule `{rule}` precedes those for the cable: remove it"
            );
        }
        loosen_filters(&[near, far], undo)?;
        for (step, back) in steps(near, far) {
            undo.by(&back)?;
            sh(&step)?;
        }
        sh(&format!("ping -c 3 -W 2 -I {HOST} {TARGET}")).with_context(|| {
            format!("no answer over the cable between {near} and {far}: check it by ip link")
        })?;
        let far_device = device_of(&links, far).unwrap_or_default();
        let (near, far) = (near.to_owned(), far.to_owned());
        Ok(Self {
            near,
            far,
            far_device,
            links,
        })
    }

    pub(super) fn describe(&self) -> String {
        let of_ports = |line: &&str| {
            let last = line.split_whitespace().last().unwrap_or_default();
            last == self.near || last == self.far
        };
        let links: Vec<&str> = self.links.lines().map(str::trim).filter(of_ports).collect();
        format!(
            "Host at {}, target at {}: {}",
            self.near,
            self.far,
            links.join("; ")
        )
    }

    /// Returns whether the doctor found errors.
    pub(super) fn doctor(&self, program: &Path, file: &Path) -> Result<bool> {
        let output = command(&program.to_string_lossy())
            .args(["doctor", "--address", HOST, "--address", TARGET])
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            println!("{said}{}", String::from_utf8_lossy(&output.stderr));
        }
        fs::write(file, said)?;
        match output.status.code() {
            Some(0 | 1) => Ok(false),
            Some(2) => Ok(true),
            _ => bail!("cairn-target doctor ended with {}", output.status),
        }
    }

    pub(super) fn have_carrier(&self) -> bool {
        [&self.near, &self.far].into_iter().all(|netdev| {
            fs::read_to_string(format!("/sys/class/net/{netdev}/carrier"))
                .is_ok_and(|carrier| carrier.trim() == "1")
        })
    }

    /// Returns the bytes through the target's port in both directions. Adapters count RoCE in the
    /// RDMA device, and rdma_rxe in the network interface.
    pub(super) fn bytes(&self) -> u64 {
        let sum = |folder: &str, names: [&str; 2]| -> u64 {
            let read = |name| fs::read_to_string(format!("{folder}/{name}")).ok();
            let numbers = names.into_iter().filter_map(read);
            numbers
                .filter_map(|text| text.trim().parse::<u64>().ok())
                .sum()
        };
        let counters = format!("/sys/class/infiniband/{}/ports/1/counters", self.far_device);
        let statistics = format!("/sys/class/net/{}/statistics", self.far);
        // The RDMA counters are in units of four bytes.
        4 * sum(&counters, ["port_xmit_data", "port_rcv_data"])
            + sum(&statistics, ["tx_bytes", "rx_bytes"])
    }
}

fn loosen_filters(netdevs: &[&str], undo: &mut Undo) -> Result<()> {
    let mut keys = vec![("net.ipv4.conf.all.rp_filter".to_owned(), 0)];
    for netdev in netdevs {
        let netdev = netdev.replace('.', "/");
        for (name, value) in [("accept_local", 1), ("rp_filter", 0), ("arp_ignore", 1)] {
            keys.push((format!("net.ipv4.conf.{netdev}.{name}"), value));
        }
    }
    for (key, value) in keys {
        let before = sh(&format!("sysctl -n {key}"))?;
        undo.by(&format!("sysctl -qw {key}={}", before.trim()))?;
        sh(&format!("sysctl -qw {key}={value}"))?;
    }
    Ok(())
}

/// Returns pairs of commands: a step and its reversal.
fn steps(near: &str, far: &str) -> Vec<(String, String)> {
    let mut steps = Vec::new();
    for (address, netdev) in [(TARGET, far), (HOST, near)] {
        let what = format!("{address}/32 dev {netdev}");
        steps.push((format!("ip addr add {what}"), format!("ip addr del {what}")));
    }
    for (to, netdev, from, table) in [
        (TARGET, near, HOST, HOST_TABLE),
        (HOST, far, TARGET, TARGET_TABLE),
    ] {
        steps.push((
            format!("ip route add {to} dev {netdev} src {from} table {table}"),
            format!("ip route flush table {table}"),
        ));
    }
    // Rules 3 and 4 are for the connection manager, which compares the interfaces of the request
    // and of the route back.
    for (preference, rule) in [
        format!("iif lo to {TARGET} lookup {HOST_TABLE}"),
        format!("iif lo to {HOST} lookup {TARGET_TABLE}"),
        format!("oif {near} to {TARGET} lookup {HOST_TABLE}"),
        format!("oif {far} to {HOST} lookup {TARGET_TABLE}"),
        "lookup local".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        let preference = preference + 1;
        steps.push((
            format!("ip rule add pref {preference} {rule}"),
            format!("ip rule del pref {preference}"),
        ));
    }
    let local = "pref 0 lookup local";
    steps.push((
        format!("ip rule del {local}"),
        format!("ip rule add {local}"),
    ));
    steps
}

fn device_of(links: &str, netdev: &str) -> Option<String> {
    let line = links
        .lines()
        .find(|line| line.trim().ends_with(&format!("netdev {netdev}")))?;
    let link = line.trim().strip_prefix("link ")?;
    link.split('/').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_the_device_of_its_whole_name() {
        let links = "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0 \n\
                     link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev ens1f0 \n";
        assert_eq!(device_of(links, "ens1f0").unwrap(), "mlx5_1");
        assert_eq!(device_of(links, "ens1f0np0").unwrap(), "mlx5_0");
        assert_eq!(device_of(links, "np0"), None);
    }

    #[test]
    fn local_addresses_are_reachable_between_any_two_steps() {
        let mut local = 1;
        let steps = steps("a", "b");
        for step in steps.iter().map(|(step, _)| step) {
            local += i32::from(step.ends_with("lookup local"))
                * if step.contains("add") { 1 } else { -1 };
            assert!(local > 0, "{step}");
        }
        for back in steps.iter().rev().map(|(_, back)| back) {
            local += i32::from(back.starts_with("ip rule add pref 0"));
            local -= i32::from(back == "ip rule del pref 5");
            assert!(local > 0, "{back}");
        }
    }
}
