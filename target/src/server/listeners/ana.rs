use cairn_base::Trid;
use std::collections::HashSet;

use cairn_config::{Config, Nqn, Subsystem};

use super::super::exports::Exports;
use super::super::lookup::of_nqn;

pub(super) fn change_overrides(
    exports: &Exports,
    old: &Config,
    new: &Config,
) -> Vec<(Nqn, HashSet<Trid>)> {
    let mut changed = Vec::new();
    for subsystem in &new.subsystems {
        let old = of_nqn(old, &subsystem.nqn);
        let addresses = differences(old, subsystem);
        if let Some(export) = exports.get(&subsystem.nqn)
            && !addresses.is_empty()
        {
            export.subsystem.set_ana(&subsystem.ana);
            changed.push((subsystem.nqn, addresses));
        }
    }
    changed
}

fn differences(old: Option<&Subsystem>, new: &Subsystem) -> HashSet<Trid> {
    let before = |at: &Trid| old.and_then(|old| old.ana.get(at));
    let addresses = old.into_iter().flat_map(|old| old.ana.keys());
    let all = addresses.chain(new.ana.keys());
    all.filter(|at| before(at) != new.ana.get(at))
        .copied()
        .collect()
}
