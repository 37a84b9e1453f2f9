//! Release of receive slots held by waiting capsules.
//!
//! Commands for a hanging disk can occupy all receive slots of a device. If few receives are
//! posted, a queue without progress discards its waiting commands' in-capsule data. When such a
//! command could start, or at its deadline, it fails with Namespace Not Ready, without Do Not
//! Retry: nothing was executed, and the host sends it again.

use std::time::Duration;

use cairn_base::peer_line;

use crate::ids::QpairId;
use crate::qpair::Capsule;
use crate::reactor::io::Io;
use crate::reactor::queueing::capsule_queues::CapsuleKey;
use crate::reactor::queues::Queues;
use crate::reactor::stages::admission::{self, is_stuck, receives_are_short};
use crate::reactor::time::Now;

/// Time after which a command with discarded data fails. Linux repeats a command five times, so the
/// disk may hang for a minute.
const PATIENCE: Duration = Duration::from_secs(10);

pub(in crate::reactor) fn release_stuck(queues: &mut Queues, io: &mut Io, now: &Now) {
    let keys: Vec<CapsuleKey> = queues.capsule_queues.with_receives().copied().collect();
    for key in keys {
        let port = queues.qpairs[key.qpair].port;
        if !receives_are_short(queues, port) || !is_stuck(queues, io, now, &key) {
            continue;
        }
        for slot in queues.capsule_queues.drop_data(&key) {
            queues.repost(port, slot);
        }
        report_release(queues, io, now, key.qpair, key.nsid);
    }
}

/// Removes capsules with discarded data that have waited for [`PATIENCE`]. Their hosts may exceed
/// their shares, up to three quarters of all requests.
pub(in crate::reactor) fn take_overdue(queues: &mut Queues, io: &Io, now: &Now) -> Vec<Capsule> {
    if queues.capsule_queues.is_empty() {
        return Vec::new();
    }
    let mut capsule_queues = std::mem::take(&mut queues.capsule_queues);
    let free = queues.requests.free().saturating_sub(queues.reserve);
    let mut count = 0;
    let mut late = Vec::new();
    let goes = |capsule: &Capsule| {
        let waited = Duration::from_nanos(now.ns.saturating_sub(capsule.seen_ns));
        let held = || admission::held_by_host(queues, io, capsule.qpair);
        let goes = capsule.is_data_dropped()
            && waited >= PATIENCE
            && held() + count < 3 * free.saturating_sub(count + 1);
        count += usize::from(goes);
        goes
    };
    capsule_queues.take_out(goes, |capsule| late.push(capsule));
    queues.capsule_queues = capsule_queues;
    late
}

fn report_release(queues: &Queues, io: &mut Io, now: &Now, qpair: QpairId, nsid: u32) {
    let queue = &queues.qpairs[qpair];
    let association = queue.association.as_ref();
    let disk = association.and_then(|of| io.disks.find(of, nsid));
    let Some(line) = disk.and_then(|disk| io.disks[disk].failure_to_report(now.at)) else {
        return;
    };
    peer_line!(
        warn,
        line,
        host = queue.host_nqn(),
        subsystem = queue.subsystem_nqn(),
        nsid,
        "a stalled disk keeps writes waiting, and receives run short: the data of waiting writes \
         was discarded, and their hosts will be asked to send them again; if the disk is only \
         slow, raise `receives`"
    );
}
