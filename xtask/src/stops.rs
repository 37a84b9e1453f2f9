//! `cargo xtask stops`: stops and continues test processes, to find tests that pass only on a fast
//! machine.
//!
//! Each test process alternately runs and is stopped. cargo and nextest start this program as
//! runner of their tests ([`run_stopped`]). With `--tree`, as in the soak test, the test or a
//! descendant is stopped at random times.

use std::ffi::OsString;
use std::fs;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::test::step::Step;

/// Time for which a process is stopped; a reactor detects stops of more than 50 ms.
const STOPPED: Duration = Duration::from_millis(60);
const RUNNING: Duration = Duration::from_millis(20);

const SHORT_STOP_MS: u64 = 250;
const LONG_STOP_MS: u64 = 3000;
const LONG_STOPS: u8 = 8;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of runs of each test
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// Names of tests, or parts of names [default: all end-to-end tests]
    tests: Vec<String>,
}

#[derive(clap::Args)]
pub(crate) struct RunnerArgs {
    /// Stop the test's process or any of its descendants, at random times
    #[arg(long)]
    tree: bool,
    /// Program of the test, with arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    for _ in 0..args.times {
        let mut command = "nextest run --profile stops --workspace --test end_to_end --locked \
                           --no-fail-fast --test-threads 3"
            .to_owned();
        for test in &args.tests {
            command += " ";
            command += test;
        }
        let step = with_runner(Step::cargo("stops", &command), "")?;
        if !step.run("")?.success {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn with_runner(step: Step, options: &str) -> Result<Step> {
    let variable = format!(
        "CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER",
        std::env::consts::ARCH.to_uppercase()
    );
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let runner = format!("{} stopped {options} --", program.display());
    Ok(step.with_env(&variable, &runner))
}

pub(crate) fn run_stopped(args: &RunnerArgs) -> Result<ExitCode> {
    let (program, arguments) = args.command.split_first().expect("clap requires one");
    let mut child = Command::new(program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let lists = arguments.iter().any(|argument| argument == "--list");
    let status = if lists {
        child.wait().context("cannot wait for the test")?
    } else if args.tree {
        stop_at_random(&mut child)?
    } else {
        stop_steadily(&mut child)?
    };
    match status.code() {
        Some(code) => Ok(ExitCode::from(code as u8)),
        None => bail!("{} ended by a signal: {status}", program.display()),
    }
}

fn stop_steadily(child: &mut Child) -> Result<ExitStatus> {
    loop {
        thread::sleep(RUNNING);
        if let Some(status) = child.try_wait().context("cannot wait for the test")? {
            return Ok(status);
        }
        stop(Pid::from_child(child), STOPPED);
    }
}

fn stop_at_random(child: &mut Child) -> Result<ExitStatus> {
    let mut random = fastrand::Rng::new();
    loop {
        thread::sleep(Duration::from_millis(random.u64(20..800)));
        if let Some(status) = child.try_wait().context("cannot wait for the test")? {
            return Ok(status);
        }
        let mut tree = vec![Pid::from_child(child)];
        add_descendants(&mut tree);
        let pid = tree[random.usize(..tree.len())];
        let longest = if random.u8(..) < LONG_STOPS {
            LONG_STOP_MS
        } else {
            SHORT_STOP_MS
        };
        stop(pid, Duration::from_millis(random.u64(1..longest)));
    }
}

fn stop(pid: Pid, time: Duration) {
    if kill_process(pid, Signal::STOP).is_ok() {
        thread::sleep(time);
        let _ = kill_process(pid, Signal::CONT);
    }
}

fn add_descendants(tree: &mut Vec<Pid>) {
    let mut at = 0;
    while let Some(&parent) = tree.get(at) {
        at += 1;
        let threads = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero()));
        let threads = threads.into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let pids = children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok());
            tree.extend(pids.filter_map(Pid::from_raw));
        }
    }
}
