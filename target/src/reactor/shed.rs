//! When receives run short: capsules that wait for a request give theirs up.
//!
//! Data that came in a capsule lie in its receive slot, and the slots of a device are shared
//! by all of its hosts. Commands for a disk that hangs wait in their lines with these slots,
//! and more of them wait than there are slots. So once few slots are left, a line that has
//! not moved for a while gives up its data: not one that only moves slowly. The
//! commands keep their places. When their turn or a deadline comes they are answered with
//! Namespace Not Ready, without Do Not Retry: nothing of them was carried out, and the host
//! sends them again.

use std::time::{Duration, Instant};

use cairn_rdma::peer_line;

use super::Reactor;
use super::capsule::Capsule;
use super::lines::Line;
use crate::ids::QpairId;

/// How long nothing of a disk or of a host may go on before its lines count as stuck. More
/// than a healthy disk takes for a command when it has hundreds.
pub(super) const STUCK_AFTER: Duration = Duration::from_millis(250);

/// How long a command whose data was given up waits for its turn. Linux sends it again five
/// times: the disk may hang for a minute before an application gets an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// Receives are short when fewer than this part of them is posted.
const SHORT: usize = 4;

impl Capsule {
    /// Whether its data was given up.
    pub(super) fn is_shed(&self) -> bool {
        self.data_bytes > 0 && self.slot.is_none()
    }

    /// Gives up its data: the receive slot, if it had one.
    fn shed(&mut self) -> Option<u32> {
        (self.data_bytes > 0).then(|| self.slot.take()).flatten()
    }
}

impl Reactor {
    /// Whether lines that are stuck must give up their receives.
    pub(super) fn receives_are_short(&self, port: usize) -> bool {
        let port = &self.queues.ports[port];
        port.as_ref()
            .is_some_and(|port| port.slots_posted() * SHORT < port.slots().count() as usize)
    }

    /// Has lines that are stuck give up their receives, where these are short.
    pub(super) fn shed_stuck(&mut self) {
        for index in 0..self.queues.lines.count() {
            let line = self.queues.lines.line(index);
            let (qpair, nsid) = (line.qpair, line.nsid);
            let port = self.queues.qpairs[qpair].port;
            if !self.receives_are_short(port) || !line.keeps_receives() || !self.is_stuck(line) {
                continue;
            }
            let capsules = self.queues.lines.capsules_mut(index);
            let slots: Vec<u32> = capsules.filter_map(Capsule::shed).collect();
            for slot in slots {
                self.repost(port, slot);
            }
            self.report_shed(qpair, nsid);
        }
    }

    /// Whether nothing goes on that this line waits for.
    pub(super) fn is_stuck(&self, line: &Line) -> bool {
        // Connects and admin commands go on by themselves.
        if line.nsid == 0 {
            return false;
        }
        let (host, disk) = self.last_begun(line.qpair, line.nsid);
        let over = |since: Instant, begun: Option<Instant>| {
            let since = begun.map_or(since, |begun| begun.max(since));
            self.time.now.saturating_duration_since(since) >= STUCK_AFTER
        };
        let (host_may, disk_may) = self.may_take(line.qpair, line.nsid);
        (!disk_may && over(line.disk_since, disk)) || (!host_may && over(line.host_since, host))
    }

    /// Answers commands whose data was given up, and whose turn does not come. A host that is
    /// at its share has requests for that, too, but no more than three quarters of all.
    pub(super) fn answer_shed(&mut self) {
        if self.queues.lines.is_empty() {
            return;
        }
        let mut lines = std::mem::take(&mut self.queues.lines);
        let free = self
            .queues
            .requests
            .free()
            .saturating_sub(self.queues.reserve);
        let mut count = 0;
        let late = lines.take_out(|capsule| {
            let waited = Duration::from_nanos(self.time.now_ns.saturating_sub(capsule.seen_ns));
            let goes = capsule.is_shed()
                && waited >= PATIENCE
                && self.held_by_host(capsule.qpair) + count < 3 * free.saturating_sub(count + 1);
            count += usize::from(goes);
            goes
        });
        self.queues.lines = lines;
        for capsule in late {
            self.admit(capsule);
        }
    }

    fn report_shed(&mut self, qpair: QpairId, nsid: u32) {
        let queue = &self.queues.qpairs[qpair];
        let association = queue.association.as_ref();
        let disk = association.and_then(|of| self.io.disks.find(of.subsystem.id, nsid));
        let Some(line) = disk.and_then(|disk| self.io.disks[disk].failure_to_report(self.time.now))
        else {
            return;
        };
        peer_line!(
            warn,
            line,
            host = queue.host_nqn(),
            subsystem = queue.subsystem_nqn(),
            nsid,
            "writes wait for a disk that does not go on, and receives run short: the data of \
             writes that wait was given up, and their hosts will be asked to send them again; if \
             the disk is only slow, raise `receives`"
        );
    }
}
