//! Rule: adapter limits and capabilities that change how Cairn works.

use super::{Examination, Finding, Severity};
use crate::facts::Device;
use crate::source::{Attributes, Known};

pub(super) const NAME: &str = "attributes";

/// RDMA READs in flight per queue pair that suffice for a fast link.
const READS: u32 = 16;

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    if examination.intent.is_soft {
        return;
    }
    for device in examination.fabric.devices.each() {
        let Known::Is(attributes) = &device.attributes else {
            continue;
        };
        let seen = |finding: Finding, name: &str, value: u32| {
            finding.seen(
                format!("ibv_devinfo -v -d {}: {name}", device.name),
                value.to_string(),
            )
        };
        if attributes.iwarp {
            findings.push(iwarp(device));
            continue;
        }
        if !attributes.rnr_nak {
            findings.push(seen(without_rnr(device), "RC_RNR_NAK_GEN", 0));
        }
        if attributes.max_srq == 0 {
            findings.push(seen(without_srq(device), "max_srq", 0));
        }
        if !attributes.invalidate {
            findings.push(seen(without_invalidate(device), "MEM_MGT_EXTENSIONS", 0));
        }
        if attributes.max_qp_init_rd_atom < READS {
            let finding = few_reads(device, attributes);
            findings.push(seen(
                finding,
                "max_qp_init_rd_atom",
                attributes.max_qp_init_rd_atom,
            ));
        }
    }
}

fn iwarp(device: &Device) -> Finding {
    let pci = device.pci.get().and_then(Option::as_deref).unwrap_or("PCI");
    Finding::new(
        NAME,
        Severity::Error,
        &device.name,
        "it speaks iWARP, and Cairn speaks RoCE",
    )
    .because("the two have different packets: no host that uses RoCE can connect through it")
    .seen(
        format!("ibv_devinfo -d {}: transport", device.name),
        "iWARP (1)",
    )
    .fixed_by(format!(
        "devlink dev param set pci/{pci} name enable_iwarp value false cmode runtime && \
         devlink dev param set pci/{pci} name enable_roce value true cmode runtime  # irdma"
    ))
}

fn without_rnr(device: &Device) -> Finding {
    Finding::new(
        NAME,
        Severity::Warning,
        &device.name,
        "it does not ask a sender to wait for a receive",
    )
    .because(
        "a target posts fewer receives than all hosts together may use; a capsule without a \
         receive ends its connection on this adapter",
    )
}

fn without_srq(device: &Device) -> Finding {
    Finding::new(
        NAME,
        Severity::Note,
        &device.name,
        "it has no shared receive queues",
    )
    .because(
        "each queue of a host reserves a receive for each of its entries: `receives` limits the \
         queues of a reactor",
    )
}

fn without_invalidate(device: &Device) -> Finding {
    Finding::new(
        NAME,
        Severity::Note,
        &device.name,
        "it has no SEND with Invalidate",
    )
    .because("hosts invalidate the key of each command by a work request of their own")
}

fn few_reads(device: &Device, attributes: &Attributes) -> Finding {
    let reads = attributes.max_qp_init_rd_atom;
    Finding::new(
        NAME,
        Severity::Note,
        &device.name,
        format!("a queue pair has at most {reads} RDMA READs in flight"),
    )
    .because(
        "a target fetches the data of large writes by RDMA READ: a host with many of them in \
         flight is faster with more queues",
    )
}
