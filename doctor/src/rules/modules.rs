use cairn_trouble::End;

use super::{Examination, Finding, Severity};
use crate::facts::INFINIBAND;
use crate::source::Known;

pub(super) const NAME: &str = "modules";

const RDMA_MODULES: [(&str, &str); 9] = [
    ("mlx5_core", "mlx5_ib"),
    ("mlx4_en", "mlx4_ib"),
    ("mlx4_core", "mlx4_ib"),
    ("bnxt_en", "bnxt_re"),
    ("ice", "irdma"),
    ("i40e", "irdma"),
    ("qede", "qedr"),
    ("hns3", "hns_roce_hw_v2"),
    ("mana", "mana_ib"),
];

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let fabric = &examination.fabric;
    if let Known::Is(devices) = &fabric.devices
        && devices.is_empty()
    {
        findings.push(no_device());
    }
    findings.extend(adapters_without_rdma(examination));
    if fabric.has_devices() {
        findings.extend(missing_nodes(examination));
        findings.extend(missing_configfs(examination));
    }
    if fabric.host.has_module("nvmet_rdma") == Some(true)
        && examination.intent.caller.end == End::Target
    {
        findings.push(
            Finding::new(
                NAME,
                Severity::Note,
                "nvmet_rdma",
                "the kernel's own NVMe target for RDMA is loaded",
            )
            .because(
                "if it listens on the same address and port, the second to start is refused: \
                 address in use",
            )
            .seen("/sys/module", "nvmet_rdma")
            .fixed_by("ls /sys/kernel/config/nvmet/ports  # what it listens on"),
        );
    }
}

fn no_device() -> Finding {
    Finding::new(
        NAME,
        Severity::Note,
        "this machine",
        "there is no RDMA device",
    )
    .because(
        "RoCE works all the same: --provider soft speaks it over a UDP socket, without a \
         device, a module or root. An adapter would do the same with far less CPU time",
    )
    .seen(INFINIBAND, "empty, or not there")
    .fixed_by("rdma link add rxe0 type rxe netdev IFACE  # only for programs that need a device")
}

fn adapters_without_rdma(examination: &Examination) -> Vec<Finding> {
    let fabric = &examination.fabric;
    let mut found = Vec::new();
    for netdev in fabric.netdevs.each() {
        let (Some(driver), Some(pci)) = (netdev.driver.get(), netdev.pci.get()) else {
            continue;
        };
        let module = RDMA_MODULES.iter().find(|(core, _)| *core == driver.driver);
        let (Some((core, module)), Some(_)) = (module, pci) else {
            continue;
        };
        if fabric.ports_of(&netdev.name).next().is_some()
            || fabric.host.has_module(module) != Some(false)
        {
            continue;
        }
        // All adapters with an mlx driver support RDMA; other drivers also serve adapters without
        // RDMA.
        let is_sure = core.starts_with("mlx") && !examination.intent.is_soft;
        let severity = if is_sure {
            Severity::Error
        } else {
            Severity::Note
        };
        found.push(
            Finding::new(
                NAME,
                severity,
                &netdev.name,
                format!("an adapter of driver {core} has no RDMA device: {module} is not loaded"),
            )
            .because(if is_sure {
                "the adapter can do RDMA, and nothing uses it"
            } else {
                "some adapters of this driver can do RDMA"
            })
            .seen("/sys/module", format!("no {module}"))
            .safely_fixed_by(&["modprobe", module]),
        );
    }
    found
}

fn missing_nodes(examination: &Examination) -> Vec<Finding> {
    let fabric = &examination.fabric;
    let mut missing = Vec::new();
    for device in fabric.devices.each() {
        let node = device.uverbs.get().and_then(Option::as_ref);
        let is_there = node.is_some_and(|node| fabric.host.nodes.contains_key(node));
        if is_there || matches!(device.uverbs, Known::Unknown(_)) {
            continue;
        }
        missing.push(
            Finding::new(
                NAME,
                Severity::Error,
                &device.name,
                "there is no device node to open it by",
            )
            .because("libibverbs does not find the device: programs see no RDMA at all")
            .seen("/dev/infiniband", "no uverbsN for it")
            .safely_fixed_by(&["modprobe", "ib_uverbs"])
            .fixed_by("docker run --device /dev/infiniband ...  # in a container"),
        );
    }
    if !fabric.host.nodes.contains_key("rdma_cm") {
        missing.push(
            Finding::new(
                NAME,
                Severity::Error,
                "rdma_cm",
                "the connection manager has no device node",
            )
            .because("librdmacm can neither listen nor connect")
            .seen("/dev/infiniband/rdma_cm", "not there")
            .safely_fixed_by(&["modprobe", "rdma_ucm"])
            .fixed_by("echo rdma_ucm > /etc/modules-load.d/rdma.conf  # at every start"),
        );
    }
    missing
}

fn missing_configfs(examination: &Examination) -> Option<Finding> {
    let host = &examination.fabric.host;
    (!host.has_configfs).then(|| {
        Finding::new(
            NAME,
            Severity::Note,
            "rdma_cm",
            "RoCE mode and ToS of the connection manager cannot be seen",
        )
        .because("whether connections use v1 or v2 by default is a guess then")
        .seen(crate::facts::RDMA_CM, "not there")
        .safely_fixed_by(&["modprobe", "rdma_cm"])
        .fixed_by("mount -t configfs none /sys/kernel/config")
    })
}
