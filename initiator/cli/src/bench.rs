use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cairn_doctor::cli::{Format, OutputArgs, is_quiet, print_message};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueEnum};

use super::Result;
use super::number::number_in;
use super::output::print;
use super::paths::Paths;
use super::session::{Found, Session, Where, text};
use cairn_bench::{
    BenchResult, FIO_ITSELF, Job, KEYS, Key, Lanes, MultipathLanes, NvmeLanes, report, run,
};
use cairn_initiator::Event;

impl Where {
    fn lanes(&self, prints: bool) -> Result<(Session, NvmeLanes)> {
        let Found {
            session,
            subsystem,
            namespace,
            format,
        } = self.find()?;
        if prints {
            print_message(format_args!(
                "namespace {} of {}: {} blocks of {} bytes, by {}",
                namespace.nsid, subsystem, format.blocks, format.block_bytes, session.provided.name
            ));
        }
        let lanes = NvmeLanes {
            device: Arc::clone(&session.provided.device),
            options: session.options(subsystem)?,
            namespace: namespace.disk()?,
            format,
            reset_interval: None,
            on_event: print_event,
        };
        Ok((session, lanes))
    }
}

fn print_event(event: &Event) {
    match event {
        Event::Lost(error) => print_message(format_args!("connection lost: {error}")),
        Event::TryFailed { tries, error } => {
            print_message(format_args!("connecting again, try {tries}: {error}"));
        }
        Event::Live { .. } => print_message("connected again"),
        _ => {}
    }
}

#[derive(Debug, Args)]
pub(super) struct Bench {
    #[command(flatten)]
    output: OutputArgs,
    /// Whether to print a status line every second, on stderr
    #[arg(long, value_enum, default_value_t = Eta::Always)]
    eta: Eta,
    #[command(flatten)]
    paths: Paths,
    /// Reset the controller at this interval in seconds while jobs run, to check that no data is
    /// lost
    #[arg(long, value_name = "SECONDS", conflicts_with = "paths", value_parser = |text: &str| number_in::<u64>(text, 1..=u64::MAX))]
    reset_interval: Option<u64>,
    /// Permit the job to destroy the data of this namespace; required if it writes
    #[arg(long)]
    destroy_data: bool,
    #[command(flatten)]
    job: JobKeys,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Eta {
    /// A line every second
    Always,
    /// No output before the report
    Never,
}

#[derive(Debug)]
struct JobKeys(Job);

impl JobKeys {
    fn argument(key: &Key) -> Arg {
        let argument = Arg::new(key.name)
            .long(key.name)
            .help(key.help)
            .help_heading("Job (fio's keys)")
            .value_name(key.value)
            .overrides_with(key.name);
        match key.value {
            // A switch may be given as `--time_based` or as `--time_based=1`.
            "0|1" => argument
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("1"),
            _ => argument,
        }
    }
}

impl Args for JobKeys {
    fn augment_args(command: Command) -> Command {
        command.args(KEYS.iter().map(Self::argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for JobKeys {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let mut job = Job::default();
        for key in KEYS {
            if let Some(value) = matches.get_one::<String>(key.name) {
                let set = job.set(key.name, value);
                set.map_err(|why| clap::Error::raw(ErrorKind::ValueValidation, why + "\n"))?;
            }
        }
        Ok(Self(job))
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(super) fn explain(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let of_bench = arguments.get(1).is_some_and(|command| command == "bench");
    if of_bench && error.kind() == ErrorKind::UnknownArgument {
        let advice = ContextValue::StyledStrs(vec![FIO_ITSELF.into()]);
        error.insert(ContextKind::Suggested, advice);
    }
    error
}

impl Bench {
    pub(super) fn usage(&self) -> Result<()> {
        let job = &self.job.0;
        if job.rw.writes && !self.destroy_data {
            return Err(format!(
                "rw={} destroys what is on the namespace: say --destroy-data if that is meant",
                job.rw.name
            ));
        }
        Ok(())
    }

    pub(super) fn run(&self) -> Result<ExitCode> {
        let job = &self.job.0;
        let live = self.eta != Eta::Never && !is_quiet();
        let result = if self.paths.is_empty() {
            let mut lanes = self.place.lanes(live)?.1;
            lanes.reset_interval = self.reset_interval.map(Duration::from_secs);
            run_until_interrupted(job, &lanes, live)?
        } else {
            run_until_interrupted(job, &self.by_several_paths(live)?, live)?
        };
        let report = match self.output.format {
            Format::Json => report::json(&result),
            _ => report::text(&result),
        };
        print(report.trim_end());
        Ok(code(&result))
    }

    fn by_several_paths(&self, live: bool) -> Result<MultipathLanes> {
        let (session, first) = self.place.lanes(live)?;
        let paths = self.paths.with(&self.place.address, first.options)?;
        let options = self.paths.options(first.namespace.nsid);
        let provider = Arc::clone(session.provided.provider());
        let mut lanes = MultipathLanes::find(provider, paths, options).map_err(text)?;
        lanes.on_path = |remote, usable| match usable {
            true => print_message(format_args!("path {remote}: usable again")),
            false => print_message(format_args!("path {remote}: lost; others are used")),
        };
        Ok(lanes)
    }
}

fn code(result: &BenchResult) -> ExitCode {
    match result.is_success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// The first SIGINT or SIGTERM stops the job with a report, the second ends the program.
fn run_until_interrupted(job: &Job, lanes: &dyn Lanes, live: bool) -> Result<BenchResult> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| format!("signals: {error}"))?;
    }
    if live {
        run(job, lanes, &stop, &mut report::Live::new())
    } else {
        run(job, lanes, &stop, &mut ())
    }
}

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// Size of the written blocks
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    bs: String,
    /// Bytes to check
    #[arg(long, value_name = "SIZE|%")]
    size: Option<String>,
    /// Outstanding reads
    #[arg(long, value_name = "N", default_value = "16")]
    iodepth: String,
    /// Seed of the run that wrote the blocks: reports blocks written by another run
    #[arg(long, value_name = "N")]
    randseed: Option<String>,
    #[command(flatten)]
    place: Where,
}

impl Verify {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let mut job = Job::with(&[("rw", "read"), ("verify", "crc32c")])?;
        let given = [
            ("bs", Some(&self.bs)),
            ("size", self.size.as_ref()),
            ("iodepth", Some(&self.iodepth)),
            ("randseed", self.randseed.as_ref()),
        ];
        for (key, value) in given {
            if let Some(value) = value {
                job.set(key, value)?;
            }
        }
        let (_session, lanes) = self.place.lanes(true)?;
        let result = run_until_interrupted(&job, &lanes, !is_quiet())?;
        for job in &result.jobs {
            for mismatch in &job.mismatches {
                print(mismatch);
            }
            if let Some(error) = &job.error {
                print(&format!("error: {error}"));
            }
            let (right, bad) = (job.stats.verified, job.stats.bad_blocks);
            print(&format!(
                "verify: {right} blocks of {} right, {bad} bad",
                self.bs
            ));
        }
        if result.interrupted {
            return Err("interrupted: the rest was not looked at".to_owned());
        }
        Ok(code(&result))
    }
}
