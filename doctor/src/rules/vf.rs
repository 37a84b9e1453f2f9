//! Rule: virtual functions, which may have RoCE disabled.

use super::{Examination, Finding, Severity};
use crate::facts::Function;
use crate::source::Known;

pub(super) const NAME: &str = "vf";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    for device in examination.fabric.devices.each() {
        if device.function != Function::Virtual {
            continue;
        }
        let pci = match &device.pci {
            Known::Is(Some(pci)) => pci.as_str(),
            _ => "PCI",
        };
        for port in device.ports.each() {
            let has_gids = port.gids.each().next().is_some();
            if has_gids || matches!(port.gids, Known::Unknown(_)) || !port.is_ethernet() {
                continue;
            }
            findings.push(
                Finding::new(
                    NAME,
                    Severity::Error,
                    format!("{} port {}", device.name, port.number),
                    "a virtual function without a single GID: RoCE is switched off for it",
                )
                .because(
                    "the owner of the card can switch RoCE off for each virtual function; without \
                     GIDs it can neither listen nor connect",
                )
                .seen(format!("{}/gids", port.path), "all zeros")
                .seen(format!("{}/device/physfn", device.path), "it is a VF")
                .fixed_by(format!(
                    "devlink dev param set pci/{pci} name enable_roce value true cmode driverinit \
                     && devlink dev reload pci/{pci}"
                ))
                .fixed_by(
                    "devlink port function set pci/PF/PORT roce enable  # on the machine with the card",
                ),
            );
        }
    }
}
