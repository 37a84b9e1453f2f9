use serde_json::json;

use super::actions::LimitAction;
use super::{Asked, View};

const LIMITS: View = View::Rows(&[
    ("NQN", "nqn"),
    ("NSID", "nsid"),
    ("EACH HOST", "each_host"),
    ("HOST", "host"),
    ("IOPS", "iops"),
    ("READ", "read"),
    ("WRITE", "write"),
    ("TOTAL", "total"),
    ("OUTSTANDING", "outstanding"),
    ("BURST", "burst_ms"),
]);

pub(super) fn of_limit(action: &LimitAction) -> Asked<'_> {
    match action {
        LimitAction::List(at) => Asked::list(at, "cairn_limit_list", LIMITS),
        LimitAction::Set {
            nqn,
            nsid,
            each_host,
            host,
            iops,
            read,
            write,
            total,
            outstanding,
            burst_ms,
            at,
        } => {
            let params = json!({
                "nqn": nqn, "nsid": nsid, "each_host": each_host, "host": host, "iops": iops,
                "read": read, "write": write, "total": total, "outstanding": outstanding,
                "burst_ms": burst_ms,
            });
            let deed = Asked::deed(at, "cairn_limit_set", params);
            deed.adding(format!("limits of {nqn}"))
        }
        LimitAction::Remove {
            nqn,
            nsid,
            each_host,
            host,
            at,
        } => {
            let params = json!({"nqn": nqn, "nsid": nsid, "each_host": each_host, "host": host});
            Asked::deed(at, "cairn_limit_remove", params)
        }
    }
}
