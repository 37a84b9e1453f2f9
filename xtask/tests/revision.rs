//! The build script must return the checked-out commit.

#[path = "../../target/build.rs"]
#[expect(dead_code, reason = "cargo runs the rest")]
mod script;

use std::process::Command;

#[test]
fn a_build_names_the_commit_that_is_checked_out() {
    let git = |args: &[&str]| Command::new("git").args(args).output().unwrap();
    let log = git(&["log", "-1", "--format=%H"]);
    if !log.status.success() {
        assert_eq!(script::of_repository(), None, "no repository");
        return;
    }
    let named = script::of_repository().unwrap();
    let is_changed = !git(&["diff", "--quiet", "HEAD"]).status.success();
    assert_eq!(named.ends_with('+'), is_changed, "{named}");
    let digits = named.trim_end_matches('+');
    assert!(digits.len() >= 12, "{named}");
    assert!(
        String::from_utf8(log.stdout).unwrap().starts_with(digits),
        "{named}"
    );
}
