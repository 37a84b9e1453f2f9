//! Traffic classes of sent packets, and the settings that determine them.

use cairn_rdma::marking::Prefix;

use super::{Examination, Finding};
use crate::facts::{Device, Port};
use crate::tos::Tos;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// ToS of packets from `source`.
    pub tos: Tos,
    /// Setting that determines the ToS, such as "the rule tclass=16".
    pub by: String,
    /// Source addresses of the packets; `None` for all.
    pub source: Option<Prefix>,
}

pub(super) struct Class {
    pub(super) tos: Tos,
    pub(super) by: String,
    is_chosen: bool,
}

impl Examination {
    pub(super) fn classes_of(&self, device: &Device, port: &Port) -> Vec<Class> {
        let forced = port.forced_class.get().and_then(Option::as_ref);
        if let Some(global) = forced.and_then(|forced| forced.global) {
            let path = format!("{}/tc/{}/traffic_class", device.path, port.number);
            return vec![Class::of(global, format!("the driver forces it ({path})"))];
        }
        let mut classes: Vec<Class> = Vec::new();
        for choice in self.choices_of(device, port) {
            if classes.iter().all(|class| class.tos != choice.tos) {
                classes.push(Class {
                    tos: choice.tos,
                    by: choice.by.clone(),
                    is_chosen: true,
                });
            }
        }
        if !classes.is_empty() {
            return classes;
        }
        vec![match port.defaults.get() {
            Some(defaults) if defaults.tos != 0 => Class::of(
                Tos(defaults.tos),
                "the connection manager's default (default_roce_tos)".to_owned(),
            ),
            _ => Class::of(Tos(0), "no configuration chose another".to_owned()),
        }]
    }

    pub(super) fn choices_of(&self, device: &Device, port: &Port) -> Vec<&Choice> {
        let own: Vec<_> = self
            .fabric
            .addresses
            .each()
            .filter(|address| {
                let mut ports = self.fabric.ports_of(&address.netdev);
                ports.any(|(of, at)| of.name == device.name && at.number == port.number)
            })
            .map(|address| address.address)
            .collect();
        let concerns = |choice: &&Choice| {
            let source = choice.source;
            source.is_none_or(|source| own.iter().any(|own| source.includes(*own)))
        };
        self.intent.tos.iter().filter(concerns).collect()
    }

    pub(super) fn fixed_by_tos(
        &self,
        finding: Finding,
        class: &Class,
        (device, port): (&Device, &Port),
        tos: Tos,
    ) -> Finding {
        if class.is_chosen {
            let Tos(tos) = tos;
            return finding.fixed_by(format!(
                "tos = {tos} in the [[listener]], tclass={tos} in the rule, or --tos {tos}: where \
                 it was chosen"
            ));
        }
        finding
            .safely_fixed_by(&[
                self.intent.caller.program(),
                "fabric",
                "set-tos",
                &device.name,
                &tos.0.to_string(),
                "--port",
                &port.number.to_string(),
            ])
            .fixed_by(format!("tos = {} in [[listener]]", tos.0))
    }
}

impl Class {
    fn of(tos: Tos, by: String) -> Self {
        Self {
            tos,
            by,
            is_chosen: false,
        }
    }
}
