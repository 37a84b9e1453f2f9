//! `cargo xtask fuzz`: libFuzzer runs on parsers and state machines.
//!
//! The programs are in `fuzz/`, the functions that they call in `tests/fuzzed`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Error, Result, bail};

use crate::cache::{Tool, cached_tool};
use crate::nightly;
use crate::test::step::Step;

const CARGO_FUZZ: Tool = Tool {
    name: "cargo-fuzz",
    version: "0.13.2",
    busy: &[],
};

const OUTPUT: &str = "build/fuzz";

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz");

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the only file in fuzz/fuzz_targets to run [default: all]
    target: Option<String>,
    /// Seconds for each program
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Compile with few optimisations, for short runs
    #[arg(long)]
    compile_fast: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let targets = targets()?;
    let targets: Vec<String> = match &args.target {
        None => targets,
        Some(one) if targets.contains(one) => vec![one.clone()],
        Some(one) => bail!("there is no target {one}: there are {}", targets.join(", ")),
    };
    let cargo_fuzz = match tool() {
        Ok(program) => program,
        Err(error) => {
            println!(
                "SKIP [        ] fuzz: nightly Rust or cargo-fuzz cannot be installed: {error:#}"
            );
            return Ok(ExitCode::SUCCESS);
        }
    };
    let build = format!(
        "run nightly {} build --fuzz-dir {SOURCES} --target-dir {OUTPUT}",
        cargo_fuzz.display()
    );
    let mut build = Step::program("building", "rustup", &build);
    if args.compile_fast {
        build = build.with_env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    }
    if !build.run("")?.success {
        return Ok(ExitCode::FAILURE);
    }
    let mut failed = Vec::new();
    for pair in targets.chunks(2) {
        println!("\n==> {}, {} s", pair.join(" and "), args.seconds);
        let results = thread::scope(|scope| {
            let runs = pair
                .iter()
                .map(|it| (it, scope.spawn(|| fuzz(it, args.seconds))));
            let runs: Vec<_> = runs.collect();
            let ended = runs.into_iter();
            let ended = ended.map(|(it, run)| (it, run.join().expect("a run does not panic")));
            ended.collect::<Vec<_>>()
        });
        for (target, result) in results {
            if !result? {
                failed.push(target.clone());
            }
        }
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("error: {} found an input that breaks it", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn targets() -> Result<Vec<String>> {
    let folder = Path::new(SOURCES).join("fuzz_targets");
    let files = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

fn fuzz(target: &str, seconds: u64) -> Result<bool> {
    let found = format!("{OUTPUT}/found/{target}");
    let broken = format!("{OUTPUT}/broken");
    for folder in [&found, &broken] {
        fs::create_dir_all(Path::new(SOURCES).join("..").join(folder))
            .with_context(|| format!("cannot make {folder}"))?;
    }
    let program = format!("{SOURCES}/../{OUTPUT}/x86_64-unknown-linux-gnu/release/{target}");
    let arguments = format!(
        "{found} fuzz/corpus/{target} -max_total_time={seconds} -timeout=10 -rss_limit_mb=2048 \
         -print_final_stats=1 -verbosity=0 -artifact_prefix={broken}/{target}-"
    );
    let prefix = format!("{target:<10}| ");
    let success = Step::program("fuzz", program.clone(), &arguments)
        .run(&prefix)?
        .success;
    if !success {
        println!("once more, with the input that it names: {program} FILE");
        println!("when it is fixed, keep the input: mv FILE fuzz/corpus/{target}/NAME");
    }
    Ok(success)
}

fn tool() -> Result<PathBuf> {
    nightly::require().map_err(Error::msg)?;
    cached_tool(&CARGO_FUZZ)
}
