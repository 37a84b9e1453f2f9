use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::Args;
use super::fio::{self, Row};
use super::machines::delete_controllers;
use super::perftest::{self, TESTS};
use super::ports::Ports;
use super::target::{Kind, Target, Targets, connect, disconnect};
use crate::results::Results;

pub(super) struct Run<'a> {
    pub(super) args: &'a Args,
    pub(super) ports: &'a Ports<'a>,
    targets: &'a Targets<'a>,
    kinds: Vec<Kind>,
    pub(super) results: Results,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        args: &'a Args,
        ports: &'a Ports<'a>,
        targets: &'a Targets<'a>,
        results: Results,
    ) -> Self {
        let mut kinds = args.targets.clone();
        kinds.retain(|&kind| kind != Kind::Spdk || targets.spdk.is_some());
        Self {
            args,
            ports,
            targets,
            kinds,
            results,
        }
    }

    pub(super) fn everything(&mut self) -> Result<()> {
        let machines = self.targets.machines;
        machines.here().undo(&delete_controllers())?;
        for test in &TESTS {
            let (name, metrics) = perftest::measure(test, self.args.seconds, machines);
            println!("  {name}");
            self.results.record(perftest::GROUP, &name, metrics);
        }
        for round in 1..=self.args.rounds {
            for kind in self.kinds.clone() {
                println!("round {round} of {}: {}", self.args.rounds, kind.name());
                self.take_turn(kind)?;
            }
        }
        for kind in self.kinds.clone() {
            self.reconnect(kind)?;
        }
        if self.kinds.contains(&Kind::Cairn) {
            self.disturb()?;
        }
        Ok(())
    }

    pub(super) fn keep_logs(&self, out: &Path) -> Result<()> {
        let far = self.targets.machines.far();
        for name in ["cairn.log", "spdk.log"] {
            let log = format!("{}/{name}", far.folder());
            let text = far.run(&format!("[ ! -e {log} ] || tail -c 200000 {log}"))?;
            if !text.is_empty() {
                fs::write(out.join(name), text)?;
            }
        }
        Ok(())
    }

    pub(super) fn start(&self, kind: Kind) -> Result<Target<'a>> {
        self.targets.start(kind)
    }

    fn take_turn(&mut self, kind: Kind) -> Result<()> {
        let machines = self.targets.machines;
        let target = self.start(kind)?;
        let device = connect()?;
        fio::fill(&device)?;
        for row in rows(self.args) {
            let before = self.ports.bytes()?;
            let (metrics, moved) =
                fio::measure(&row, self.args.seconds, &device, machines, target.pid())?;
            let counted = self.ports.bytes()?.saturating_sub(before);
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
