//! Machines of a measurement: the host is this machine, and the target runs on the peer, if there is one.

use std::path::Path;

use anyhow::{Result, ensure};

use super::shell::{Shell, sh};
use super::target::NQN;

const HOST_TOOLS: [&str; 7] = ["fio", "nvme", "rdma", "ip", "ping", "sysctl", "modprobe"];
const TARGET_TOOLS: [&str; 4] = ["rdma", "ip", "sysctl", "modprobe"];

// Shells are dropped in this order, so the host disconnects first.
pub(super) struct Machines {
    here: Shell,
    peer: Option<Shell>,
}

impl Machines {
    pub(super) fn start(peer: Option<&str>, out: &Path) -> Result<Self> {
        let here = Shell::here(out)?;
        need(&here, &HOST_TOOLS)?;
        // Otherwise fio waits for the lost target.
        let disconnect = || drop(sh(&delete_controllers()));
        let peer = peer.map(|peer| Shell::on_peer(peer, out, disconnect));
        let machines = Self {
            here,
            peer: peer.transpose()?,
        };
        need(machines.far(), &TARGET_TOOLS)?;
        Ok(machines)
    }

    pub(super) fn here(&self) -> &Shell {
        &self.here
    }

    pub(super) fn peer(&self) -> Option<&Shell> {
        self.peer.as_ref()
    }

    pub(super) fn far(&self) -> &Shell {
        self.peer.as_ref().unwrap_or(&self.here)
    }

    pub(super) fn lost(&self) -> Option<String> {
        self.far().lost().or_else(|| self.here.lost())
    }

    pub(super) fn describe_peer(&self) -> Result<Option<String>> {
        let Some(peer) = &self.peer else {
            return Ok(None);
        };
        let said = peer
            .run("nproc; sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1; uname -r")?;
        let mut lines = said.lines();
        let mut next = || lines.next().unwrap_or_default();
        let (cores, cpu, kernel) = (next(), next(), next());
        let name = peer.name();
        Ok(Some(format!(
            "The target's machine, {name}: {cores} cores of {cpu}, Linux {kernel}."
        )))
    }
}

/// Returns a line of shell. `nvme disconnect` may wait for an answer of a lost target.
pub(super) fn delete_controllers() -> String {
    format!(
        "for each in /sys/class/nvme/nvme*; do grep -qsx {NQN} \"$each/subsysnqn\" && \
         echo 1 > \"$each/delete_controller\"; done; true"
    )
}

fn need(shell: &Shell, tools: &[&str]) -> Result<()> {
    let tools = tools.join(" ");
    let missing = shell.run(&format!(
        "for tool in {tools}; do command -v $tool > /dev/null || echo $tool; done"
    ))?;
    ensure!(
        missing.is_empty(),
        "{}: missing: {}: apt-get install fio nvme-cli iproute2 iputils-ping procps kmod",
        shell.name(),
        missing.replace('\n', ", ")
    );
    Ok(())
}
