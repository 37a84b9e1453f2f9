//! Settings that take effect only at the next start.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use cairn_config::{Config, Nqn, Subsystem, Target};

#[derive(Debug)]
pub(super) struct Fixed {
    target: Target,
    control: cairn_config::ControlSettings,
    subsystems: HashMap<Nqn, (String, String, RangeInclusive<u16>)>,
    waiting: Vec<String>,
}

fn of(subsystem: &Subsystem) -> (String, String, RangeInclusive<u16>) {
    let Subsystem {
        serial,
        model,
        controller_ids,
        ..
    } = subsystem;
    (serial.clone(), model.clone(), controller_ids.clone())
}

impl Fixed {
    pub(super) fn new(config: &Config) -> Self {
        let subsystems = config.subsystems.iter();
        Self {
            target: config.target.clone(),
            control: config.control.clone(),
            subsystems: subsystems.map(|one| (one.nqn, of(one))).collect(),
            waiting: Vec::new(),
        }
    }

    pub(super) fn waiting(&self) -> &[String] {
        &self.waiting
    }

    pub(super) fn change(&mut self, config: &Config) {
        let mut waiting = Vec::new();
        for (part, differs) in [
            ("[target]", self.target != config.target),
            ("[control]", self.control != config.control),
        ] {
            if differs {
                waiting.push(part.to_owned());
            }
        }
        let wanted = config.subsystems.iter();
        let wanted: HashMap<Nqn, _> = wanted.map(|one| (one.nqn, of(one))).collect();
        self.subsystems.retain(|nqn, _| wanted.contains_key(nqn));
        for (nqn, new) in wanted {
            let fixed = self.subsystems.entry(nqn).or_insert_with(|| new.clone());
            if *fixed != new {
                waiting.push(format!("serial, model and controller_ids of {nqn}"));
            }
        }
        waiting.sort_unstable();
        let before = std::mem::replace(&mut self.waiting, waiting);
        for part in &self.waiting {
            if !before.contains(part) {
                // Logged after a reload.
                tracing::warn!(part, "this change takes effect at the next start");
            }
        }
    }
}
