//! Commit subjects must fit into one line of `git log`.

use std::process::Command;

const LENGTH_MAX: usize = 72;

/// Commit after which the limit applies.
const FIRST: &str = "dd44b3d9693fc33fefcc44be98c32697e240475e";

#[test]
fn subjects_of_commits_are_short() {
    let range = format!("{FIRST}..HEAD");
    let mut git = Command::new("git");
    let log = match cairn_skips::probe(git.args(["log", "--format=%s", &range])) {
        Ok(log) => log,
        Err(reason) => {
            return cairn_skips::skip(format_args!("subjects of commits: {reason}"));
        }
    };
    let long: Vec<&str> = too_long(&log).collect();
    assert!(
        long.is_empty(),
        "more than {LENGTH_MAX} characters: {long:#?}"
    );
}

fn too_long(log: &str) -> impl Iterator<Item = &str> {
    let length = |subject: &str| subject.chars().count();
    log.lines()
        .filter(move |subject| length(subject) > LENGTH_MAX)
}

#[test]
fn a_long_subject_is_found() {
    let [short, long] = [72, 73].map(|length| "é".repeat(length));
    let log = format!("{short}\n{long}\n");
    assert_eq!(too_long(&log).collect::<Vec<_>>(), [long]);
}
