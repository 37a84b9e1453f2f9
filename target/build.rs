//! Commit of a release build, for `--version`, `status` and the metrics.
//!
//! Development builds have no commit, because a new value would rebuild the crate after each
//! commit. Sources without git take the commit from `CAIRN_COMMIT`.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=CAIRN_COMMIT");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let given = std::env::var("CAIRN_COMMIT").ok();
    let commit = given.or_else(|| is_release.then(of_repository).flatten());
    let commit = commit.as_deref().unwrap_or("unknown");
    println!("cargo:rustc-env=CAIRN_COMMIT={commit}");
}

pub(crate) fn of_repository() -> Option<String> {
    // Git appends to this log at each commit and each switch of the branch. Cargo then runs this
    // script again.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo:rerun-if-changed={log}");
    println!("cargo:rerun-if-changed=src");
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if is_clean { commit } else { commit + "+" })
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
