//! Network configuration of both ports. On one machine, both stay in the initial network namespace,
//! as nvme-rdma and nvmet-rdma require, and rules send local traffic over the cable.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::machines::Machines;
use super::shell::Shell;

// RFC 2544 reserves 198.18.0.0/15 for benchmarks.
pub(super) const HOST: &str = "198.18.99.1";
pub(super) const TARGET: &str = "198.18.99.2";
const HOST_TABLE: u32 = 7471;
const TARGET_TABLE: u32 = 7472;

pub(super) struct Ports<'a> {
    machines: &'a Machines,
    near: String,
    far: String,
    near_link: String,
    far_link: String,
}

impl<'a> Ports<'a> {
    pub(super) fn join(near: &str, far: &str, machines: &'a Machines) -> Result<Self> {
        let is_name = |text: &str| {
            text.chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        ensure!(
            is_name(near) && is_name(far),
            "--ports takes names of network interfaces"
        );
        let near_link = link_of(machines.here(), near)?;
        let far_link = link_of(machines.far(), far)?;
        match machines.peer() {
            Some(peer) => {
                for (shell, address, netdev) in [(peer, TARGET, far), (machines.here(), HOST, near)]
                {
                    shell.undo(&format!("ip addr del {address}/30 dev {netdev}"))?;
                    shell.run(&format!("ip addr add {address}/30 dev {netdev}"))?;
                }
            }
            None => join_here(machines.here(), near, far)?,
        }
        let ping = format!("ping -c 3 -W 2 -I {HOST} {TARGET}");
        machines.here().run(&ping).with_context(|| {
            format!("no answer over the cable between {near} and {far}: check it by ip link")
        })?;
        Ok(Self {
            machines,
            near: near.to_owned(),
            far: far.to_owned(),
            near_link,
            far_link,
        })
    }

    pub(super) fn describe(&self) -> String {
        let Self { near, far, .. } = self;
        let at = self
            .machines
            .peer()
            .map(|peer| format!(" of {}", peer.name()));
        format!(
            "Host at {near}, target at {far}{}: {}; {}",
            at.unwrap_or_default(),
            self.near_link,
            self.far_link
        )
    }

    pub(super) fn doctor(&self, here: &str, there: &str, file: &Path) -> Result<bool> {
        let shells = [self.machines.here(), self.machines.far()];
        let calls = match self.machines.peer() {
            None => vec![(
                shells[0],
                here,
                format!("--address {HOST} --address {TARGET}"),
            )],
            Some(_) => vec![
                (shells[0], here, format!("--address {HOST}")),
                (shells[1], there, format!("--address {TARGET}")),
            ],
        };
        let (mut report, mut has_errors) = (String::new(), false);
        for (shell, program, addresses) in calls {
            let said = shell.run(&format!(
                "code=0; {program} doctor {addresses} 2>&1 || code=$?; echo \"exit $code\""
            ))?;
            let (text, code) = said.rsplit_once("exit ").unwrap_or(("", &said));
            match code {
                "0" => {}
                "1" | "2" => println!("{}:\n{text}", shell.name()),
                _ => bail!(
                    "{}: cairn-target doctor ended with {code}: {text}",
                    shell.name()
                ),
            }
            has_errors |= code == "2";
            report += text;
        }
        fs::write(file, report)?;
        Ok(has_errors)
    }

    pub(super) fn have_carrier(&self) -> Result<bool> {
        let ends = [
            (self.machines.here(), &self.near),
            (self.machines.far(), &self.far),
        ];
        for (shell, netdev) in ends {
            let carrier = format!("cat /sys/class/net/{netdev}/carrier 2> /dev/null || true");
            if shell.run(&carrier)? != "1" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the bytes through the target's port in both directions. Adapters count RoCE in the
    /// RDMA device, in units of four bytes, and rdma_rxe in the network interface.
    pub(super) fn bytes(&self) -> Result<u64> {
        let (far, device) = (&self.far, device_of(&self.far_link).unwrap_or_default());
        let sum = self.machines.far().run(&format!(
            "read_from() {{ cat \"$1\" 2> /dev/null || echo 0; }}
             counters=/sys/class/infiniband/{device}/ports/1/counters
             statistics=/sys/class/net/{far}/statistics
             sum=0
             for name in port_xmit_data port_rcv_data; do
                 sum=$((sum + 4 * $(read_from $counters/$name)))
             done
             for name in tx_bytes rx_bytes; do sum=$((sum + $(read_from $statistics/$name))); done
             echo $sum"
        ))?;
        sum.parse()
            .context("the counters of the target's port are no numbers")
    }
}

fn join_here(shell: &Shell, near: &str, far: &str) -> Result<()> {
    ensure!(near != far, "--ports names {near} twice: name two ports");
    let rules = shell.run("ip rule show")?;
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
    loosen_filters(shell, &[near, far])?;
    for (step, back) in steps(near, far) {
        shell.undo(&back)?;
        shell.run(&step)?;
    }
    Ok(())
}

fn link_of(shell: &Shell, netdev: &str) -> Result<String> {
    let name = shell.name();
    let state = shell.run(&format!("cat /sys/class/net/{netdev}/operstate"));
    let state = state.with_context(|| {
        format!("no network interface {netdev} on {name}: `ip link` lists them")
    })?;
    ensure!(
        state != "down",
        "{netdev} of {name} is down: plug the cable in, and run ip link set {netdev} up"
    );
    let links = shell.run("rdma link show")?;
    find_link(&links, netdev)
        .with_context(|| format!("{netdev} of {name} has no RDMA device: `rdma link` lists them"))
}

fn loosen_filters(shell: &Shell, netdevs: &[&str]) -> Result<()> {
    let mut keys = vec![("net.ipv4.conf.all.rp_filter".to_owned(), 0)];
    for netdev in netdevs {
        let netdev = netdev.replace('.', "/");
        for (name, value) in [("accept_local", 1), ("rp_filter", 0), ("arp_ignore", 1)] {
            keys.push((format!("net.ipv4.conf.{netdev}.{name}"), value));
        }
    }
    for (key, value) in keys {
        let before = shell.run(&format!("sysctl -n {key}"))?;
        shell.undo(&format!("sysctl -qw {key}={}", before.trim()))?;
        shell.run(&format!("sysctl -qw {key}={value}"))?;
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

fn find_link(links: &str, netdev: &str) -> Option<String> {
    let mut links = links.lines().map(str::trim);
    let link = links.find(|link| link.ends_with(&format!("netdev {netdev}")))?;
    Some(link.to_owned())
}

fn device_of(link: &str) -> Option<&str> {
    link.strip_prefix("link ")?.split('/').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_the_device_of_its_whole_name() {
        let links = "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0 \n\
                     link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev ens1f0 \n";
        let device = |netdev| {
            let link = find_link(links, netdev)?;
            device_of(&link).map(str::to_owned)
        };
        assert_eq!(device("ens1f0").unwrap(), "mlx5_1");
        assert_eq!(device("ens1f0np0").unwrap(), "mlx5_0");
        assert_eq!(device("np0"), None);
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
