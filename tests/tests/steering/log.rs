//! What is logged, changed while the target runs.

use serde_json::json;

use crate::target::Steered;

#[test]
fn the_filter_changes_without_a_restart() {
    let target = Steered::start_logged(None);
    let say = |args: &[&str]| {
        let output = target.command(args);
        assert!(output.status.success(), "{args:?} {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(say(&["log"]), "warn\n");
    // Reported at level info.
    say(&["reload"]);
    assert!(!target.log().contains("configuration reloaded"));
    say(&["log", "info,cairn_target::reactor=debug"]);
    assert_eq!(say(&["log"]), "info,cairn_target::reactor=debug\n");
    say(&["reload"]);
    assert!(
        target.log().contains("configuration reloaded"),
        "{}",
        target.log()
    );
    let text = target.text();
    assert_eq!(
        target.refused("cairn_log_set", json!({"filter": "a=b=c"})),
        -32602
    );
    assert_eq!(say(&["log"]), "info,cairn_target::reactor=debug\n");
    assert_eq!(target.text(), text);
}

#[test]
fn lines_for_the_journal_have_priorities() {
    let target = Steered::start_logged(Some(true));
    assert!(target.command(&["log", "info"]).status.success());
    assert!(target.command(&["reload"]).status.success());
    std::fs::write(target.config(), "[[").unwrap();
    assert!(!target.command(&["reload"]).status.success());
    let log = target.log();
    let has = |start: &str, part: &str| {
        let mut lines = log.lines();
        lines.any(|line| line.starts_with(start) && line.contains(part))
    };
    assert!(has("<6>", "configuration reloaded"), "{log}");
    assert!(has("<3>", "the new configuration is refused"), "{log}");
    assert!(log.lines().all(|line| line.starts_with('<')), "{log}");
}

#[test]
fn a_stream_that_is_not_the_journals_has_none() {
    let target = Steered::start_logged(Some(false));
    std::fs::write(target.config(), "[[").unwrap();
    assert!(!target.command(&["reload"]).status.success());
    let log = target.log();
    assert!(log.contains("the new configuration is refused"), "{log}");
    assert!(!log.contains('<'), "{log}");
}
