//! A named case of a suite, and the report of a run.

use std::fmt;
use std::time::{Duration, Instant};

/// How a case ended, if it did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it must.
    Passed,
    /// This provider or machine cannot show it, for the reason given.
    Skipped(String),
}

/// One thing that must hold, by name.
pub struct Case<C> {
    /// Lower case with underscores; what is typed on a command line.
    pub name: &'static str,
    /// One sentence: what must happen.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(&C) -> anyhow::Result<Outcome>,
}

impl<C> fmt::Debug for Case<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({})", self.name)
    }
}

/// Prints the names and what each demands.
pub fn list<'a, C: 'a>(cases: impl IntoIterator<Item = &'a Case<C>>) {
    for case in cases {
        println!("{:<40} {}", case.name, case.about);
    }
}

/// The cases whose names are `wanted`, in the suite's order; all if none are.
///
/// # Errors
/// A name is unknown.
pub fn select<'a, C>(all: &'a [Case<C>], wanted: &[String]) -> anyhow::Result<Vec<&'a Case<C>>> {
    for name in wanted {
        anyhow::ensure!(
            all.iter().any(|case| case.name == name),
            "there is no case {name:?}: --list shows them"
        );
    }
    Ok(all
        .iter()
        .filter(|case| wanted.is_empty() || wanted.iter().any(|name| name == case.name))
        .collect())
}

/// Has each case run in turn, with a line of output for each, and says whether
/// none failed.
pub fn run_all<C>(cases: &[&Case<C>], run: impl Fn(&Case<C>) -> anyhow::Result<Outcome>) -> bool {
    let mut failed = 0;
    for case in cases {
        let start = Instant::now();
        let result = run(case);
        let took = start.elapsed();
        failed += u32::from(result.is_err());
        print_line(case.name, took, &result);
    }
    println!("{} cases, {failed} failed", cases.len());
    failed == 0
}

fn print_line(name: &str, took: Duration, result: &anyhow::Result<Outcome>) {
    let took_ms = took.as_millis();
    match result {
        Ok(Outcome::Passed) => println!("ok      {name} ({took_ms} ms)"),
        Ok(Outcome::Skipped(reason)) => cairn_skips::skip(format_args!("{name}: {reason}")),
        Err(error) => println!("FAILED  {name} ({took_ms} ms): {error:#}"),
    }
}

/// Makes a module's functions into its part of a suite: `cases()` lists them.
/// They take the suite's `Setting` and return `Result<()>`.
macro_rules! suite {
    ($($name:ident: $about:literal,)*) => {
        pub(super) fn cases() -> Vec<$crate::case::Case<super::Setting>> {
            vec![$($crate::case::Case {
                name: stringify!($name),
                about: $about,
                run: |setting| $name(setting).map(Into::into),
            },)*]
        }
    };
}
pub(crate) use suite;

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Passed
    }
}
