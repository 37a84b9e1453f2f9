//! Words of problems and remedies: names and commands that an administrator can paste.

use std::time::Duration;

use cairn_base::shell::shell_word;

use crate::answers::Problem;

pub(super) fn problem(
    kind: &'static str,
    what: impl Into<String>,
    since: Option<Duration>,
    why: impl Into<String>,
    remedy: impl Into<String>,
) -> Problem {
    Problem {
        kind,
        what: what.into(),
        for_s: since.map(|since| since.as_secs()),
        why: why.into(),
        remedy: remedy.into(),
    }
}

pub(super) fn first_of(error: &str) -> String {
    let problems = error.lines().filter(|line| line.starts_with("error: "));
    let more = problems.count().saturating_sub(1);
    let first = error.split("\n\n").next().unwrap_or_default();
    // Lines that begin with "|" quote the file.
    let lines = first.lines().map(str::trim);
    let lines: Vec<_> = lines.take_while(|line| !line.starts_with('|')).collect();
    let first = lines.join(" ");
    match more {
        0 => first,
        more => format!("{first}; and {more} more"),
    }
}

pub(super) fn key_command(nqn: &str, host: &str, is_listed: bool, options: &str) -> String {
    let verb = if is_listed { "key set" } else { "add" };
    format!(
        "cairn-target host {verb} {} {} {options}",
        word(nqn),
        word(host)
    )
}

/// Quotes a name for a shell, because strangers choose names and administrators paste commands. A
/// name that terminals may misinterpret becomes "NQN".
pub(super) fn word(name: &str) -> String {
    if shown(name) == name {
        shell_word(name, "NQN")
    } else {
        "NQN".to_owned()
    }
}

pub(super) fn shown(name: &str) -> String {
    nvme_proto::wire::Escaped(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::Config;

    #[test]
    fn a_failed_reload_shows_its_first_error_and_counts_the_others() {
        let of = |text: &str| {
            let error = Config::parse("t.toml", text, &cairn_config::Flags::default());
            first_of(&error.unwrap_err().to_string())
        };
        let one = of("listener = 7\n");
        assert!(one.contains("--> t.toml:1:12"), "{one}");
        assert!(!one.contains("more") && !one.contains('|'), "{one}");
        let three = of("listener = 7\nsubsystem = 7\nmetrics = 7\n");
        assert!(three.ends_with("--> t.toml:1:12; and 2 more"), "{three}");
        assert_eq!(first_of("the disk is gone"), "the disk is gone");
    }
}
