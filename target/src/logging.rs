use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use cairn_config::{Log, LogFormat};
use rustix::fs::fstat;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer as FieldWriter, debug_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

#[derive(Debug, Clone)]
pub(crate) struct LogFilter {
    handle: reload::Handle<EnvFilter, Registry>,
    directives: Arc<Mutex<String>>,
}

impl LogFilter {
    pub(crate) fn directives(&self) -> String {
        let directives = self.directives.lock();
        directives.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn most(&self) -> LevelFilter {
        let most = self.handle.with_current(EnvFilter::max_level_hint);
        most.ok().flatten().unwrap_or(LevelFilter::TRACE)
    }

    pub(crate) fn set(&self, directives: &str) -> Result<(), String> {
        check_targets(directives)?;
        let filter = parse(directives)?;
        let own = self.directives.lock();
        let mut own = own.unwrap_or_else(PoisonError::into_inner);
        let changed = self.handle.reload(filter);
        changed.map_err(|error| error.to_string())?;
        directives.clone_into(&mut own);
        Ok(())
    }
}

const CRATES: [&str; 8] = [
    "cairn_base",
    "cairn_data_path",
    "cairn_disk",
    "cairn_interop",
    "cairn_rbd",
    "cairn_roce",
    "cairn_target",
    "cairn_verbs",
];

/// Refuses names of unknown crates, because `EnvFilter` takes a mistyped level for a crate.
fn check_targets(directives: &str) -> Result<(), String> {
    let mut depth = 0;
    let is_end = |symbol: char| {
        depth += i32::from("[{".contains(symbol)) - i32::from("]}".contains(symbol));
        symbol == ',' && depth <= 0
    };
    for directive in directives.split(is_end).map(str::trim) {
        let target = directive.split(['=', '[']).next().unwrap_or_default();
        let is_level = directive == target && target.parse::<LevelFilter>().is_ok();
        let is_prefix = CRATES.iter().any(|name| name.starts_with(target));
        let name = target.split("::").next().unwrap_or_default();
        if !is_level && !is_prefix && !CRATES.contains(&name) {
            return Err(format!(
                "log filter: \"{target}\" is neither a level (off, error, warn, info, debug, trace) \
                 nor a crate of Cairn ({}), as in info,cairn_target=debug",
                CRATES.join(", ")
            ));
        }
    }
    Ok(())
}

fn parse(directives: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(directives).map_err(|error| format!("log filter: {error}"))
}

pub(crate) fn check(log: &Log) -> Result<(), String> {
    parse(&log.filter).map(drop)
}

pub(crate) fn start(log: &Log) -> Result<LogFilter, String> {
    let (filter, handle) = reload::Layer::new(parse(&log.filter)?);
    let writer = LogWriter {
        priorities: is_journal(),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_target(false)
        .with_ansi(is_colored());
    let lines = match log.format {
        LogFormat::Text => lines
            .fmt_fields(debug_fn(write_field).delimited(" "))
            .boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    Ok(LogFilter {
        handle,
        directives: Arc::new(Mutex::new(log.filter.clone())),
    })
}

fn write_field(
    out: &mut FieldWriter<'_>,
    field: &tracing::field::Field,
    value: &dyn fmt::Debug,
) -> fmt::Result {
    let text = format!("{value:?}");
    let (dim, plain) = match out.has_ansi_escapes() {
        true => ("\x1b[2m", "\x1b[0m"),
        false => ("", ""),
    };
    if field.name() == "message" {
        let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
        return text.chars().try_for_each(|c| match is_plain(c) {
            true => out.write_char(c),
            false => write!(out, "{}", c.escape_default()),
        });
    }
    write!(out, "{dim}{field}={plain}")?;
    let is_quoted = text.len() > 1 && text.starts_with('"') && text.ends_with('"');
    if !is_quoted && text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return write!(out, "{text:?}");
    }
    out.write_str(&text)
}

pub(crate) fn print_failure(message: &str) {
    let mut line = PrefixedStderr {
        priority: is_journal().then_some(priority(tracing::Level::ERROR)),
    };
    let message = cairn_doctor::cli::error_line(message);
    let _ = line.write_all(format!("{message}\n").as_bytes());
}

fn is_colored() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !refused
}

/// Returns whether `JOURNAL_STREAM` names the device and inode of stderr (systemd.exec(5)). The
/// variable alone proves nothing, because a child with redirected stderr inherits it.
fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    fstat(io::stderr().as_fd())
        .is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

fn priority(level: tracing::Level) -> u8 {
    match level {
        tracing::Level::ERROR => 3,
        tracing::Level::WARN => 4,
        tracing::Level::INFO => 6,
        _ => 7,
    }
}

struct LogWriter {
    priorities: bool,
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = PrefixedStderr;

    fn make_writer(&'a self) -> PrefixedStderr {
        PrefixedStderr { priority: None }
    }

    fn make_writer_for(&'a self, metadata: &tracing::Metadata<'_>) -> PrefixedStderr {
        let priority = self.priorities.then(|| priority(*metadata.level()));
        PrefixedStderr { priority }
    }
}

struct PrefixedStderr {
    priority: Option<u8>,
}

impl Write for PrefixedStderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match self.priority {
            Some(priority) => io::stderr().write_all(&prefixed(text, priority))?,
            None => io::stderr().write_all(text)?,
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Prefixes each line with the priority, because the journal stores each line as a message.
fn prefixed(text: &[u8], priority: u8) -> Vec<u8> {
    let mut all = Vec::with_capacity(text.len() + 8);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        all.extend_from_slice(format!("<{priority}>").as_bytes());
        all.extend_from_slice(line);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_levels_and_crates_with_log_lines() {
        for good in [
            "",
            "warn",
            "WARN",
            "3",
            "info,cairn_target::steering=debug",
            "off, cairn=trace",
            "cairn_disk[span{name=a,b}]=debug,error",
            "[span]=info",
        ] {
            check_targets(good).unwrap();
        }
        for bad in [
            "nonsense",
            "info,hyper=debug",
            "wran",
            "debug=cairn_target",
            "info;debug",
        ] {
            let error = check_targets(bad).unwrap_err();
            assert!(error.contains("info,cairn_target=debug"), "{error}");
        }
    }

    #[test]
    fn values_with_spaces_are_quoted() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let out = Arc::clone(&written);
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(move || SharedOut(Arc::clone(&out)))
            .fmt_fields(debug_fn(write_field).delimited(" "));
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, || {
            let reason = format_args!("it did not respond").to_string();
            // Logged in tests only.
            tracing::warn!(host = %"nqn.x", reason = %reason, text = "a b", "two \u{1b} words");
        });
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let line = r#"two \u{1b} words host=nqn.x reason="it did not respond" text="a b""#;
        assert!(text.contains(line), "{text}");
    }

    struct SharedOut(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedOut {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_line_has_its_priority() {
        let text = b"one\n  two\n";
        assert_eq!(
            prefixed(text, priority(tracing::Level::ERROR)),
            b"<3>one\n<3>  two\n"
        );
        assert_eq!(prefixed(b"", priority(tracing::Level::TRACE)), b"");
    }
}
