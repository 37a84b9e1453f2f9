//! The commands `bench` and `verify`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};

use super::Result;
use super::address::Address;
use super::number::{number, number_in};
use super::output::print;
use super::session::{Session, namespace, text};
use cairn_bench::MultipathLanes;
use cairn_bench::keys::{self, KEYS, Key};
use cairn_bench::{Audience, BenchResult, Glimpse, Job, Lanes, NvmeLanes, job_file, report, run};
use cairn_initiator::multipath::{MultipathOptions, Policy};
use cairn_initiator::{Event, HostOptions};

/// Selection of the namespace.
#[derive(Debug, Args)]
struct Where {
    #[command(flatten)]
    address: Address,
    /// Namespace; required only if there are several
    #[arg(short = 'N', long, value_name = "NSID", value_parser = number::<u32>)]
    namespace_id: Option<u32>,
}

impl Where {
    fn lanes(&self, prints: bool) -> Result<(Session, NvmeLanes)> {
        let session = Session::new(&self.address)?;
        let subsystem = session.subsystem()?;
        let mut host = session.connect_to(subsystem, 1)?;
        let namespace = namespace(&mut host, self.namespace_id)?;
        let format = namespace.format(&host)?;
        host.shutdown().map_err(text)?;
        if prints {
            eprintln!(
                "namespace {} of {}: {} blocks of {} bytes, by {}",
                namespace.nsid, subsystem, format.blocks, format.block_bytes, session.provided.name
            );
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
        Event::Lost(error) => eprintln!("connection lost: {error}"),
        Event::TryFailed { tries, error } => eprintln!("connecting again, try {tries}: {error}"),
        Event::Live { .. } => eprintln!("connected again"),
        _ => {}
    }
}

#[derive(Debug, Args)]
pub(super) struct Bench {
    /// Job file in fio's syntax; its jobs run before those of the command line
    #[arg(value_name = "JOBFILE")]
    file: Option<PathBuf>,
    /// Format of the report
    #[arg(short = 'o', long, value_enum, default_value_t = Form::Normal)]
    output_format: Form,
    /// File for the report, instead of stdout
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also draw the distribution of latencies
    #[arg(long)]
    histogram: bool,
    /// Whether to print a status line every second, on stderr
    #[arg(long, value_enum, default_value_t = Eta::Always)]
    eta: Eta,
    /// Another path to the same namespace, in addition to -a; repeatable. If one path fails, I/O
    /// continues on the others
    #[arg(
        long = "path",
        value_name = "ADDR[:PORT]",
        conflicts_with = "reset_interval"
    )]
    paths: Vec<String>,
    /// Policy that selects the path of each I/O with --path; the names are Linux's
    #[arg(long, value_enum, default_value_t = IoPolicy::RoundRobin, requires = "paths")]
    iopolicy: IoPolicy,
    /// Seconds that a write of a lost path waits before another path sends it; 0: no wait, as in
    /// Linux [default: until the lost controller can no longer execute it, from --keep-alive-tmo
    /// and the time that the controller reports (CQT)]
    #[arg(long, value_name = "SECONDS", requires = "paths", value_parser = number::<u64>)]
    write_hold: Option<u64>,
    /// Reset the controller at this interval in seconds while jobs run, to check that no data is
    /// lost
    #[arg(long, value_name = "SECONDS", value_parser = |text: &str| number_in::<u64>(text, 1..=u64::MAX))]
    reset_interval: Option<u64>,
    /// Permit jobs to destroy the data of this namespace; required for jobs that write or trim
    #[arg(long)]
    destroy_data: bool,
    #[command(flatten)]
    keys: JobKeys,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Text as printed by fio
    #[value(alias = "table")]
    Normal,
    /// JSON with fio's keys
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Eta {
    /// A line every second
    Always,
    /// No output before the report
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IoPolicy {
    /// One path after the other
    RoundRobin,
    /// The path with the fewest outstanding I/Os
    QueueDepth,
}

impl From<IoPolicy> for Policy {
    fn from(policy: IoPolicy) -> Self {
        match policy {
            IoPolicy::RoundRobin => Self::RoundRobin,
            IoPolicy::QueueDepth => Self::QueueDepth,
        }
    }
}

#[derive(Debug, Default)]
struct JobKeys(Vec<(&'static str, Option<String>)>);

impl JobKeys {
    fn argument(key: &Key) -> Arg {
        let argument = Arg::new(key.name)
            .long(key.name)
            .help(key.help)
            .help_heading("Job (fio's keys)")
            .action(ArgAction::Append);
        let argument = match key.alias {
            "" => argument,
            alias => argument.visible_alias(alias),
        };
        match key.value {
            Some(value) => argument.value_name(value),
            // A switch also accepts `--time_based=1`.
            None => argument
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("1")
                .value_name("0|1"),
        }
    }

    fn silent_argument(key: &'static str) -> Arg {
        Arg::new(key)
            .long(key)
            .num_args(0..=1)
            .default_missing_value("1")
            .action(ArgAction::Append)
            .hide(true)
    }

    /// Builds the jobs from the keys; each `name` after the first starts a new job. Also returns notes about keys
    /// without effect.
    fn jobs(&self) -> Result<(Vec<Job>, Vec<String>)> {
        let mut jobs: Vec<Job> = Vec::new();
        let mut notes = Vec::new();
        for (key, value) in &self.0 {
            let job = match (jobs.last_mut(), *key) {
                (None, _) | (_, "name") => {
                    jobs.push(Job::new("bench"));
                    jobs.last_mut().expect("it was just pushed")
                }
                (Some(job), _) => job,
            };
            let note = job.set(key, value.as_deref())?;
            notes.extend(note.map(|note| format!("note: --{note}")));
        }
        Ok((jobs, notes))
    }
}

impl Args for JobKeys {
    fn augment_args(command: Command) -> Command {
        command
            .args(KEYS.iter().map(Self::argument))
            .args(keys::without_effect().map(Self::silent_argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for JobKeys {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let names = KEYS
            .iter()
            .map(|key| key.name)
            .chain(keys::without_effect());
        let mut found = Vec::new();
        for name in names {
            let values = matches.get_many::<String>(name).into_iter().flatten();
            let indices = matches.indices_of(name).into_iter().flatten();
            for (at, value) in indices.zip(values) {
                found.push((at, (name, Some(value.clone()))));
            }
        }
        found.sort_by_key(|(at, _)| *at);
        Ok(Self(found.into_iter().map(|(_, given)| given).collect()))
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns an error message if `bench` is called with an unsupported fio option. Called before clap, whose message
/// would not name the alternative.
pub(super) fn refusal(arguments: &[OsString]) -> Option<String> {
    let mut arguments = arguments.iter().filter_map(|argument| argument.to_str());
    if arguments.nth(1)? != "bench" {
        return None;
    }
    let forms = arguments.clone().zip(arguments.clone().skip(1).chain([""]));
    for (argument, next) in forms {
        let form = match argument {
            "-o" | "--output-format" => next,
            _ => argument.strip_prefix("--output-format=").unwrap_or(""),
        };
        if matches!(form, "json+" | "terse") {
            return Some(format!(
                "--output-format={form}: this benchmark has normal and json; fio itself has {form}, with \
                 Cairn's engine (docs/guide-initiator.md#fio-itself)"
            ));
        }
    }
    let names = arguments.filter_map(|argument| argument.strip_prefix("--"));
    names
        .map(|name| name.split('=').next().unwrap_or(name))
        .find(|name| keys::is_of_fio(name) && !keys::without_effect().any(|key| key == *name))
        .map(keys::refusal)
}

impl Bench {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let jobs = self.jobs()?;
        if let Some(job) = jobs.iter().find(|job| job.changes_data())
            && !self.destroy_data
        {
            return Err(format!(
                "job {} has rw={}, which destroys what is on the namespace: say --destroy-data if \
                 that is meant",
                job.name, job.rw.name
            ));
        }
        let live = self.eta != Eta::Never;
        let result = if self.paths.is_empty() {
            let mut lanes = self.place.lanes(live)?.1;
            lanes.reset_interval = self.reset_interval.map(Duration::from_secs);
            run_until_interrupted(&jobs, &lanes, live)?
        } else {
            run_until_interrupted(&jobs, &self.by_several_paths(live)?, live)?
        };
        self.report(&result)?;
        if let Some(failure) = &result.failure {
            eprintln!("error: {failure}: the report has what ran before");
        }
        Ok(if result.is_success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn by_several_paths(&self, live: bool) -> Result<MultipathLanes> {
        let (session, first) = self.place.lanes(live)?;
        let mut paths = vec![first.options.clone()];
        for path in &self.paths {
            paths.push(HostOptions {
                remote: self.place.address.other_remote(path)?,
                ..first.options.clone()
            });
        }
        let options = MultipathOptions {
            policy: self.iopolicy.into(),
            write_hold: self.write_hold.map(Duration::from_secs),
            ..MultipathOptions::new(first.namespace.nsid)
        };
        let provider = Arc::clone(session.provided.provider());
        MultipathLanes::find(provider, paths, options).map_err(text)
    }

    fn jobs(&self) -> Result<Vec<Job>> {
        let (mut jobs, mut notes) = (Vec::new(), Vec::new());
        if let Some(path) = &self.file {
            let file = read_jobs(path)?;
            let name = path.display();
            notes.extend(
                file.notes
                    .iter()
                    .map(|(line, note)| format!("{name}:{line}: {note}")),
            );
            jobs.extend(file.jobs);
        }
        let (more, more_notes) = self.keys.jobs()?;
        jobs.extend(more);
        notes.extend(more_notes);
        for note in notes {
            eprintln!("{note}");
        }
        if jobs.is_empty() {
            return Err("no job: give --rw and other keys, or a job file".to_owned());
        }
        Ok(jobs)
    }

    fn report(&self, result: &BenchResult) -> Result<()> {
        let mut report = match self.output_format {
            Form::Normal => report::text(result),
            Form::Json => report::json(result),
        };
        if self.histogram {
            let picture = report::histogram(result);
            match self.output_format {
                Form::Normal => report += &picture,
                // stdout contains only the JSON report.
                Form::Json => eprintln!("{picture}"),
            }
        }
        match &self.output {
            Some(path) => fs::write(path, report)
                .map_err(|error| format!("--output {}: {error}", path.display())),
            None => {
                print(report.trim_end());
                Ok(())
            }
        }
    }
}

fn read_jobs(path: &Path) -> Result<job_file::JobFile> {
    let file = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    job_file::parse(&path.display().to_string(), &file).map_err(text)
}

/// Runs jobs. The first SIGINT or SIGTERM stops them with a report; the second ends the program.
fn run_until_interrupted(jobs: &[Job], lanes: &dyn Lanes, live: bool) -> Result<BenchResult> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| format!("signals: {error}"))?;
    }
    if live {
        run(jobs, lanes, &stop, &mut report::Live::new())
    } else {
        run(jobs, lanes, &stop, &mut NoAudience)
    }
}

struct NoAudience;

impl Audience for NoAudience {
    fn glimpse(&mut self, _: &Glimpse) {}
}

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// Bytes of the written blocks
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    bs: String,
    /// Bytes to check
    #[arg(long, value_name = "SIZE|%")]
    size: Option<String>,
    /// Offset of the first block
    #[arg(long, value_name = "SIZE|%", default_value = "0")]
    offset: String,
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
        let mut job = Job::new("verify");
        let given = [
            ("bs", Some(&self.bs)),
            ("size", self.size.as_ref()),
            ("offset", Some(&self.offset)),
            ("iodepth", Some(&self.iodepth)),
            ("randseed", self.randseed.as_ref()),
        ];
        for (key, value) in given {
            if let Some(value) = value {
                job.set(key, Some(value))?;
            }
        }
        job.set("verify", Some("crc32c"))?;
        job.set("verify_only", Some("1"))?;
        let (_session, lanes) = self.place.lanes(true)?;
        let result = run_until_interrupted(&[job], &lanes, true)?;
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
        Ok(if result.is_success() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
