//! Named test cases of a suite.

use std::fmt;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Skipped(String),
}

pub struct Case<C> {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&C) -> anyhow::Result<Outcome>,
}

impl<C> fmt::Debug for Case<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({})", self.name)
    }
}

pub fn list<'a, C: 'a>(cases: impl IntoIterator<Item = &'a Case<C>>) {
    for case in cases {
        println!("{:<40} {}", case.name, case.about);
    }
}

/// Returns the named cases in the order of the suite, or all cases if `wanted` is empty.
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
