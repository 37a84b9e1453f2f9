//! `cargo xtask vm`: tests of cairn-target with a real Linux kernel (`docs/vm-lab.md`).
//!
//! A QEMU machine has the distribution's kernel, rdma_rxe, nvme-rdma, nvme-cli and fio. Scenarios
//! are shell scripts in `tests/vm/scenarios` that report by exit code.

mod apt;
pub(crate) mod arch;
mod blktests;
mod booted;
pub(crate) mod cache;
pub(crate) mod cross;
pub(crate) mod host;
mod initramfs;
mod kernel;
mod lab;
mod lan;
mod machine;
mod patience;
pub(crate) mod process;
mod qemu;
mod report;
mod root;
mod scenario;
mod shifts;
mod spdk;
pub(crate) mod tree;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use arch::Arch;
use lab::Lab;
use qemu::{Boot, CONSOLE_LOG, Console, End};
use report::{Report, Verdict};
use scenario::{Network, Profile, Scenario, Share};
use tree::Tree;

use crate::times::Times;

const BEGUN: &str = "begun";

const BOOTS_MAX: u32 = 3;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Scenarios to run [default: all]
    names: Vec<String>,
    /// Only the main scenarios
    #[arg(long, conflicts_with_all = ["others", "names"])]
    main: bool,
    /// Only the scenarios that --main leaves out
    #[arg(long, conflicts_with = "names")]
    others: bool,
    /// List the scenarios and their purpose
    #[arg(long)]
    list: bool,
    /// Continue after a scenario has failed
    #[arg(long)]
    keep_going: bool,
    /// Start further scenarios in parallel while a processor of this machine is idle
    #[arg(long)]
    beside: bool,
    /// Time limit of each scenario in seconds, instead of the scenario's limit
    #[arg(long, value_name = "N")]
    timeout_s: Option<u64>,
    /// Boot the machine of one scenario (or a plain one), and start a root shell in it
    #[arg(long)]
    shell: bool,
    /// Variable for the scenarios; the header of each scenario lists its variables
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = scenario::Variable::parse)]
    variables: Vec<scenario::Variable>,
    /// Let the clocks of machines count instructions, on one processor; rates are then independent
    /// of the load of this machine
    #[arg(long)]
    counted: bool,
    /// SPDK build tree for the guest's processor: `bench` also measures its RDMA target
    #[arg(long, value_name = "DIR")]
    spdk: Option<PathBuf>,
    /// Checkout of blktests, for the scenario `blktests`
    #[arg(long, value_name = "DIR")]
    blktests: Option<PathBuf>,
    /// Folder with SPDK's Python package (`pip download spdk`, unpacked), whose rpc.py builds the
    /// subsystem of `packaged` [default: the folder of `cargo xtask spdk-client`]
    #[arg(long, value_name = "DIR")]
    spdk_client: Option<PathBuf>,
    /// Processor architecture of the guest; without names, a foreign one runs the scenarios marked
    /// for it
    #[arg(long, value_enum, default_value_t = Arch::X86_64)]
    arch: Arch,
    /// Use the existing programs without building
    #[arg(long)]
    no_build: bool,
    /// Show each guest's console while it runs
    #[arg(long, short)]
    verbose: bool,
}

impl Args {
    fn share(&self) -> Share {
        match (self.main, self.others) {
            _ if self.arch.is_foreign() => Share::Foreign,
            (true, _) => Share::Main,
            (_, true) => Share::Others,
            _ => Share::All,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let tree = Tree::locate()?;
    let mut known = Scenario::load_all(&tree.scenarios())?;
    if args.counted {
        known.iter_mut().for_each(|s| s.options.counted = true);
    }
    if args.list {
        known
            .iter()
            .for_each(|s| println!("{:<14} {}", s.name, s.summary));
        return Ok(ExitCode::SUCCESS);
    }
    let _lock = tree.lock_programs()?;
    if args.shell {
        return open_shell(args, &tree, &known);
    }
    let chosen = scenario::choose(&known, &args.names, args.share())?;
    let profile = Profile::of(&chosen);
    let with_booted = chosen.iter().any(|s| s.options.are_plain());
    let lab = prepare(args, &tree, &chosen, with_booted)?;

    let progress = Mutex::new(Progress::of(args.arch, &chosen, Times::open(tree.times())));
    let progress = || progress.lock().expect("no scenario panics");
    shifts::run(&chosen, args.beside, |scenario| {
        if progress().report.failed() && !args.keep_going {
            let report = &mut progress().report;
            report.add(&scenario.name, Verdict::Skipped, Duration::ZERO);
            return Ok(());
        }
        let started = Instant::now();
        let left = progress().left;
        let verdict = judge(args, &tree, &lab, scenario, profile, left)?;
        progress().add(scenario, verdict, started.elapsed());
        Ok(())
    })?;
    let report = &progress().report;
    report.print();
    Ok(if report.failed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

struct Progress {
    report: Report,
    times: Times,
    left: Duration,
    arch: Arch,
}

impl Progress {
    fn of(arch: Arch, scenarios: &[&Scenario], times: Times) -> Self {
        let mut progress = Self {
            report: Report::default(),
            times,
            left: Duration::ZERO,
            arch,
        };
        progress.left = scenarios.iter().map(|one| progress.forecast(one)).sum();
        progress
    }

    fn key(&self, scenario: &Scenario) -> String {
        let arch = if self.arch.is_foreign() {
            " foreign"
        } else {
            ""
        };
        format!("vm {}{arch}", scenario.name)
    }

    fn forecast(&self, scenario: &Scenario) -> Duration {
        self.times.of(&self.key(scenario))
    }

    fn add(&mut self, scenario: &Scenario, verdict: Verdict, took: Duration) {
        self.report.add(&scenario.name, verdict, took);
        self.left = self.left.saturating_sub(self.forecast(scenario));
        self.times.set(&self.key(scenario), took);
        self.times.save();
    }
}

fn prepare(args: &Args, tree: &Tree, scenarios: &[&Scenario], with_booted: bool) -> Result<Lab> {
    thread::scope(|scope| {
        let lab = scope.spawn(move || Lab::prepare(args.arch, with_booted));
        let profile = Profile::of(scenarios);
        let staged = tree
            .stage_programs(
                &scenario::programs(scenarios),
                profile,
                args.arch,
                args.no_build,
            )
            .and_then(|()| match &args.spdk {
                Some(folder) => spdk::stage(folder, &tree.programs()),
                None => Ok(()),
            })
            .and_then(|()| match &args.blktests {
                Some(folder) => blktests::stage(folder, &tree.programs()),
                None => Ok(()),
            })
            .and_then(|()| {
                let client = spdk::client(args.spdk_client.as_deref(), scenarios);
                spdk::stage_client(client.as_deref(), &tree.programs())
            });
        let lab = lab.join().expect("building the lab does not panic");
        staged.and(lab)
    })
}

fn judge(
    args: &Args,
    tree: &Tree,
    lab: &Lab,
    scenario: &Scenario,
    profile: Profile,
    left: Duration,
) -> Result<Verdict> {
    if matches!(scenario.options.network, Network::Tap { .. })
        && let Err(why) = lan::way_in()
    {
        return Ok(Verdict::Fail(format!("{why:#}")));
    }
    let console = if args.verbose || scenario.live {
        Console::Live
    } else {
        Console::Quiet
    };
    let boot = Boot {
        scenario: &scenario.name,
        options: &scenario.options,
        programs: scenario.program_names(),
        variables: &args.variables,
        timeout_s: args.timeout_s.unwrap_or(scenario.options.timeout_s),
        out_dir: tree.fresh_out_dir(&scenario.name)?,
    };
    report::announce(&scenario.name, &scenario.summary, left, console);
    if scenario.packages {
        let why = "the packages of a scenario are for x86-64";
        ensure!(!args.arch.is_foreign(), "{why}");
        tree.make_packages(profile, &boot.out_dir)?;
    }
    let end = boot_until_begun(tree, lab, &boot, console)?;
    let verdict = Verdict::from_machine(end, &boot.out_dir)?;
    report::explain(&scenario.name, &verdict, &boot.out_dir, console)?;
    Ok(verdict)
}

/// Repeats failed boots: an emulated kernel sometimes fails on a busy machine.
fn boot_until_begun(tree: &Tree, lab: &Lab, boot: &Boot<'_>, console: Console) -> Result<End> {
    for attempt in 1.. {
        let booted = lab.booted.as_deref();
        let booted = booted.filter(|_| attempt == 1 && boot.options.are_plain());
        let end = qemu::run(lab, tree, boot, booted, console)?;
        let begun = boot.out_dir.join(BEGUN).exists();
        if begun || attempt == BOOTS_MAX {
            return Ok(end);
        }
        println!("   the machine did not come up; booting it again");
        let console_log = boot.out_dir.join(CONSOLE_LOG);
        let kept = boot.out_dir.join(format!("console.boot{attempt}.log"));
        std::fs::rename(console_log, kept).context("cannot keep the console's log")?;
    }
    unreachable!("the loop ends at BOOTS_MAX")
}

fn open_shell(args: &Args, tree: &Tree, known: &[Scenario]) -> Result<ExitCode> {
    let plain = Scenario::plain();
    let scenario = match args.names.first() {
        Some(_) => scenario::choose(known, &args.names, Share::All)?[0],
        None => &plain,
    };
    let lab = prepare(args, tree, &[scenario], false)?;
    println!("A root shell in the guest follows; `exit` or Ctrl-A X ends the machine.");
    let boot = Boot {
        scenario: "",
        options: &scenario.options,
        programs: scenario.program_names(),
        variables: &args.variables,
        timeout_s: args.timeout_s.unwrap_or(u64::from(u32::MAX)),
        out_dir: tree.fresh_out_dir("shell")?,
    };
    qemu::run(&lab, tree, &boot, None, Console::Terminal)?;
    Ok(ExitCode::SUCCESS)
}
