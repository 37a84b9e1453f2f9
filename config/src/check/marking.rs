use cairn_rdma::marking::{Rule, RuleError, Rules};
use nvme_proto::wire::Nqn;

use super::Check;
use crate::config::MARKING_RULES_MAX;
use crate::file::MarkingTable;
use crate::key_path::KeyPath;

pub(super) fn check(check: &mut Check<'_>, place: &KeyPath, table: &MarkingTable) -> Rules {
    let mut rules = Rules::default();
    let lines = table.rules.as_deref().unwrap_or_default();
    let place = place.key("rules");
    check.count(&place, lines.len(), MARKING_RULES_MAX);
    for (index, line) in lines.iter().enumerate() {
        let at = place.index(index);
        if let Err(RuleError { message, remedy }) = rules.add(line) {
            check.wrong(&at, message).help(remedy);
        } else if let Some(name) = Rule::parse(line).ok().and_then(|rule| rule.scope.host_nqn)
            && let Err(error) = Nqn::parse(&name)
        {
            check
                .wrong(&at, format!("host_nqn=\"{name}\": {error}"))
                .help("write what the host has in /etc/nvme/hostnqn");
        }
    }
    rules
}
