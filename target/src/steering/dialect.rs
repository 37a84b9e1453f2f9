//! Implements the traits of [`cairn_interop`] for the running target.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::path::Path;
use std::time::Duration;

use cairn_config::{Config, Nqn};
use cairn_control::{Disk, Error, Kind, Stage};
use cairn_data_path::metrics::{Class, Doing, Op};
use cairn_interop::{Changing, Control, Controller, Export, IoCounts, Queue, Reactor};
use serde_json::Value;
use tracing_subscriber::filter::LevelFilter;

use super::methods::Methods;
use crate::files;
use crate::server::Snapshot;

impl Control for Methods {
    type Snapshot = Snapshot;

    async fn snapshot(&self) -> Result<Snapshot, Error> {
        self.snapshot().await
    }

    fn change(
        &self,
        kind: Kind,
        change: impl Fn(&mut Stage) -> Result<Value, Error> + Send + Sync + 'static,
    ) -> Changing<'_> {
        Box::pin(self.change(kind, change))
    }

    fn disks(&self) -> BTreeMap<String, Disk> {
        self.facts().disks
    }

    async fn notices(&self, id: u64, max: u64) -> Result<Value, Error> {
        let snapshot = self.snapshot().await?;
        Ok(self.published.notices(&snapshot).from(id, max))
    }

    async fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        files::metadata(path).await
    }

    fn log_level(&self) -> LevelFilter {
        self.log.most()
    }

    fn set_log_filter(&self, filter: &str) -> Result<(), String> {
        self.log.set(filter)
    }
}

impl cairn_interop::Snapshot for Snapshot {
    fn config(&self) -> &Config {
        &self.config
    }

    fn uptime(&self) -> Duration {
        self.uptime
    }

    fn exports(&self) -> impl Iterator<Item = Export<'_>> {
        self.exports().map(|export| Export {
            nqn: export.nqn,
            config: export.config,
            blocks: export.entry.view.nsze,
            block_bytes: 1 << export.entry.view.lbads,
            uuid: export.entry.namespace.uuid,
            nguid: export.entry.namespace.nguid,
        })
    }

    fn io_counts(&self, nqn: &Nqn, nsid: u32) -> IoCounts {
        let export = self.export(&(*nqn, nsid));
        let sets = export
            .as_ref()
            .map_or(&[][..], |export| export.entry.namespace.all_counters());
        let ops = |op: Op| sets.iter().map(move |set| &set.ops[op as usize]);
        let ios = |op: Op| ops(op).map(|op| op.ios.get()).sum();
        let bytes = |op: Op| ops(op).map(|op| op.bytes.get()).sum();
        let time_ns = |class: Class| {
            let times = sets.iter().map(|set| &set.stages[class as usize].whole);
            times.map(|times| times.read().sum_ns()).sum()
        };
        IoCounts {
            reads: ios(Op::Read),
            read_bytes: bytes(Op::Read),
            read_ns: time_ns(Class::Read),
            writes: ios(Op::Write),
            written_bytes: bytes(Op::Write),
            write_ns: time_ns(Class::Write),
            deallocates: ios(Op::DatasetManagement),
            in_progress: sets.iter().map(|set| set.in_progress.get()).sum(),
        }
    }

    fn controllers(&self, nqn: &str) -> Vec<Controller> {
        let mut all = self.subsystems.iter();
        let found = all.find(|(known, _)| known.raw() == nqn);
        let controllers = found.map_or_else(Vec::new, |(_, shared)| shared.view().controllers);
        let controllers = controllers.into_iter().map(|controller| Controller {
            cntlid: controller.cntlid,
            host_nqn: controller.host_nqn,
            hostid: controller.hostid,
            queues: controller
                .queues
                .iter()
                .map(|(qid, queue)| Queue {
                    qid: *qid,
                    reactor: queue.reactor,
                    local: queue.local,
                    peer: queue.peer,
                    authenticated: queue
                        .authenticated
                        .map(|proof| (proof.hash.to_string(), proof.group.to_string())),
                })
                .collect(),
        });
        controllers.collect()
    }

    fn reactors(&self) -> Vec<Reactor> {
        let reactors = self.reactors.iter().map(|counters| Reactor {
            busy_ns: counters.time_ns[Doing::Work as usize].get(),
            sleeps: counters.sleeps.get() > 0,
            admin_queues: 0,
            io_queues: 0,
            completed: 0,
        });
        let mut reactors: Vec<Reactor> = reactors.collect();
        for (_, shared) in &self.subsystems {
            let view = shared.view();
            for (qid, queue) in view.controllers.iter().flat_map(|one| &one.queues) {
                let reactor = reactors.get_mut(queue.reactor);
                let queues = reactor.map(|reactor| match qid {
                    0 => &mut reactor.admin_queues,
                    _ => &mut reactor.io_queues,
                });
                queues.into_iter().for_each(|queues| *queues += 1);
            }
            for entry in &view.namespaces.namespaces {
                for (reactor, counters) in reactors.iter_mut().zip(entry.namespace.all_counters()) {
                    reactor.completed += counters.completed();
                }
            }
        }
        reactors
    }
}
