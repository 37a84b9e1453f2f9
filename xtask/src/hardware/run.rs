use std::path::PathBuf;

use anyhow::{Result, ensure};

use super::Args;
use super::fio::{self, Row};
use super::perftest::{self, TESTS};
use super::ports::Ports;
use super::target::{Disk, Kind, NQN, Target, connect, disconnect};
use super::undo::Undo;
use crate::results::Results;

pub(super) struct Run<'a> {
    pub(super) args: &'a Args,
    pub(super) ports: &'a Ports,
    disk: &'a Disk,
    program: PathBuf,
    out: PathBuf,
    pub(super) results: Results,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        args: &'a Args,
        ports: &'a Ports,
        disk: &'a Disk,
        program: PathBuf,
        out: PathBuf,
        results: Results,
    ) -> Self {
        Self {
            args,
            ports,
            disk,
            program,
            out,
            results,
        }
    }

    pub(super) fn everything(&mut self, undo: &mut Undo) -> Result<()> {
        // `nvme disconnect` may wait for an answer of the lost target.
        undo.by(&format!(
            "for each in /sys/class/nvme/nvme*; do grep -qsx {NQN} \"$each/subsysnqn\" && \
             echo 1 > \"$each/delete_controller\"; done"
        ))?;
        for test in &TESTS {
            let (name, metrics) = perftest::measure(test, self.args.seconds);
            println!("  {name}");
            self.results.record(perftest::GROUP, &name, metrics);
        }
        for round in 1..=self.args.rounds {
            for &kind in &self.args.targets {
                println!("round {round} of {}: {}", self.args.rounds, kind.name());
                self.take_turn(kind, undo)?;
            }
        }
        for &kind in &self.args.targets {
            self.reconnect(kind, undo)?;
        }
        if self.args.targets.contains(&Kind::Cairn) {
            self.disturb(undo)?;
        }
        Ok(())
    }

    pub(super) fn start(&self, kind: Kind, undo: &mut Undo) -> Result<Target> {
        Target::start(kind, &self.program, self.disk, &self.out, undo)
    }

    fn take_turn(&mut self, kind: Kind, undo: &mut Undo) -> Result<()> {
        let target = self.start(kind, undo)?;
        let device = connect()?;
        fio::fill(&device)?;
        for row in rows(self.args) {
            let before = self.ports.bytes();
            let (metrics, moved) = fio::measure(&row, self.args.seconds, &device, target.pid())?;
            let counted = self.ports.bytes().saturating_sub(before);
            ensure!(
                counted >= moved,
                "{} of {}: the target's port counted {counted} bytes and fio moved {moved}, so \
                 the data did not cross the cable: check ip route get by ip rule",
                row.name(),
                kind.name()
            );
            println!("  {}: {:.0} IOPS", row.name(), metrics[0].median());
            self.results.record(&row.name(), kind.name(), metrics);
        }
        disconnect()?;
        target.stop()
    }
}

fn rows(args: &Args) -> Vec<Row> {
    let mut rows = Vec::new();
    for size in &args.sizes {
        for &depth in &args.depths {
            rows.extend(["read", "write"].map(|way| Row {
                size: size.clone(),
                depth,
                way,
            }));
        }
    }
    rows
}
