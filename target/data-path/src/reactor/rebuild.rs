//! Replacement of a panicked reactor on the same thread.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use super::Reactor;
use super::control::orphans::{LOOK_INTERVAL, Lost, Orphans};
use super::ordering;
use super::start::Start;
use crate::ids::QpairId;
use crate::qpair::Qpairs;
use crate::request::{Request, RequestId, Stage};
use cairn_base::panics::{Panic, REPORT};

/// Time for a panicked reactor's disk commands to end before its replacement allocates memory.
const DISKS_WAIT: Duration = Duration::from_millis(250);

/// Maximum panicked reactors that keep their memory until their disk commands end.
const ORPHANS_MAX: usize = 4;

#[derive(Debug, Default)]
struct Losses {
    hosts: usize,
    queue_pairs: usize,
    commands: usize,
}

impl Reactor {
    pub(super) fn rebuild(mut self, panic: &Panic) -> io::Result<Self> {
        self.queues.counters.note_panic();
        self.queues.requests.abandon_all();
        self.leave_orders();
        for port in self.queues.ports.drain(..).flatten() {
            port.counters().open.set(0);
            drop(port);
        }
        let (queues, mut losses) = self.lost_queues();
        for Lost { association, .. } in &queues {
            association.subsystem.lose(association.controller.cntlid());
        }
        self.retire_strays(&queues);
        self.control.inbox.unload_all();
        let (sources, epoch) = (self.io.disks.sources(), self.io.disks.epoch());
        let mut orphans = Orphans {
            ring: self.io.ring,
            requests: self.queues.requests,
            disks: self.io.disks,
            queues,
        };
        orphans.cancel()?;
        orphans.wait_until(Instant::now() + DISKS_WAIT)?;
        losses.commands = orphans.commands();
        if !orphans.is_over() {
            if self.control.orphans.len() == ORPHANS_MAX {
                return Err(io::Error::other(format!(
                    "disks keep the memory of {ORPHANS_MAX} reactors that panicked before"
                )));
            }
            self.control.orphans.push(orphans);
        }
        let mut new = Self::new(Start {
            index: self.control.index,
            core: None,
            sizes: self.control.sizes,
            registry: self.control.registry,
            inbox: self.control.inbox,
            control: self.control.plane,
            audit: self.control.audit,
            clock: self.time.clock,
            started: self.time.started,
            counters: self.queues.counters,
        })?;
        new.io.disks.go_on_from(epoch);
        for (subsystem, counters, table) in sources {
            new.io
                .disks
                .adopt(subsystem, &counters, &table, &[], &mut new.io.ring);
        }
        new.queues.qpairs = Qpairs::after(&self.queues.qpairs);
        new.control.censuses = self.control.censuses;
        new.control.unsettled = self.control.unsettled;
        new.control.orphans = self.control.orphans;
        new.queues.draining = self.queues.draining;
        new.control.stopping = self.control.stopping;
        if self.queues.qpairs.len() > 0 {
            new.report_drained();
        }
        new.take_censuses();
        new.rejoin_exclusions();
        new.show_orphans();
        report(new.control.index, panic, &losses);
        Ok(new)
    }

    fn leave_orders(&mut self) {
        let requests: Vec<RequestId> = self.queues.requests.taken().collect();
        for id in requests {
            let request = &self.queues.requests[id];
            if !may_be_with_disk(request) && self.queues.qpairs.get(request.qpair).is_some() {
                ordering::leave_at(&mut self.queues, &self.io, id);
            }
        }
    }

    /// Ends queues whose Connect was interrupted by a panic: their subsystem has registered them,
    /// but no reactor owns them.
    fn retire_strays(&self, queues: &[Lost]) {
        let waiting = self
            .control
            .orphans
            .iter()
            .flat_map(|orphans| &orphans.queues);
        let known: HashSet<QpairId> = waiting.chain(queues).map(|queue| queue.qpair).collect();
        for subsystem in self.control.registry.all() {
            let mut strays = subsystem.queues_on(self.control.index);
            strays.retain(|(.., qpair)| !known.contains(qpair));
            for (cntlid, qid, _) in strays {
                subsystem.lose(cntlid);
                subsystem.disconnected(cntlid, qid);
            }
        }
    }

    fn lost_queues(&self) -> (Vec<Lost>, Losses) {
        let mut hosts = HashSet::new();
        let mut queues = Vec::new();
        for id in self.queues.qpairs.ids() {
            let queue = &self.queues.qpairs[id];
            if queue.is_open() {
                self.queues.counters.ended_by_fault.add(1);
                self.record_disconnect(id, "a bug in Cairn: its reactor panicked", false);
            }
            let Some(association) = &queue.association else {
                continue;
            };
            hosts.insert(association.controller.host());
            let commands = self.queues.requests.of_qpair(id);
            let commands = commands.filter(|id| may_be_with_disk(&self.queues.requests[*id]));
            queues.push(Lost {
                qpair: id,
                association: association.clone(),
                commands: commands.collect(),
            });
        }
        let losses = Losses {
            hosts: hosts.len(),
            queue_pairs: self.queues.qpairs.len(),
            commands: 0,
        };
        (queues, losses)
    }

    pub(super) fn collect_remains(&mut self) {
        if self.control.orphans.is_empty() {
            return;
        }
        self.control.orphans.retain_mut(|orphans| {
            if let Err(error) = orphans.collect() {
                panic!("io_uring of a reactor that panicked no longer waits: {error}");
            }
            !orphans.is_over()
        });
        self.show_orphans();
    }

    pub(super) fn next_look_at_orphans(&self) -> Option<Instant> {
        (!self.control.orphans.is_empty()).then(|| self.time.now.at + LOOK_INTERVAL)
    }

    fn show_orphans(&self) {
        let commands = self
            .control
            .orphans
            .iter()
            .map(Orphans::commands)
            .sum::<usize>();
        self.queues.counters.orphans.set(commands as u64);
    }
}

fn may_be_with_disk(request: &Request) -> bool {
    let with_disk = matches!(request.stage(), Stage::InBackend | Stage::Running);
    with_disk && request.block.is_some()
}

fn report(reactor: usize, panic: &Panic, losses: &Losses) {
    let Panic {
        message,
        place,
        calls,
    } = panic;
    let Losses {
        hosts,
        queue_pairs,
        commands,
    } = losses;
    // Logged after a bug, at most a few times a minute (see `Panics`).
    tracing::error!(
        reactor,
        panic = message,
        place,
        hosts,
        queue_pairs,
        commands_at_disks = commands,
        version = env!("CARGO_PKG_VERSION"),
        calls,
        "a reactor panicked: it is rebuilt, its hosts are disconnected and reconnect, and the \
         other reactors continue. {REPORT}"
    );
}
