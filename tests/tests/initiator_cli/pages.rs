//! Commands in manuals and packages, which the grammars of both programs must accept.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use clap::error::ErrorKind;

pub(super) const TESTS: &[(&str, fn())] = &[
    (
        "each_command_of_a_page_is_accepted",
        each_command_of_a_page_is_accepted,
    ),
    ("wrong_commands_are_found", wrong_commands_are_found),
];

const PROGRAMS: [&str; 2] = ["cairn-target", "cairn-initiator"];

const FOUND_MIN: usize = 30;

/// Values for placeholders; any other placeholder becomes "x".
const VALUES: &[(&str, &str)] = &[
    ("ADDR", "192.0.2.1"),
    ("ADDRESS", "192.0.2.1"),
    ("PEER", "192.0.2.1"),
    ("HOST", "nqn.2024-01.com.example:host"),
    ("NQN", "nqn.2024-01.com.example:disk"),
    ("HOSTNQN", "nqn.2024-01.com.example:host"),
    ("PORT", "4420"),
    ("NSID", "1"),
    ("CNTLID", "1"),
    ("N", "1"),
    ("ID", "1"),
    ("MS", "1"),
    ("LBA", "0"),
    ("SECONDS", "1"),
    ("SIZE", "4096"),
    ("BYTES", "4096"),
    ("STATE", "optimized"),
    ("KEY", "0x8001"),
    ("UUID", "26ffc8ce-73b4-321d-9685-7d7a9872c460"),
];

#[derive(Debug)]
struct Line {
    place: String,
    words: Vec<String>,
    /// Whether the command is part of a sentence, and may lack arguments.
    is_prose: bool,
}

fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|one| one.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        match path.is_dir() {
            true => files(&path, all),
            false => all.push(path),
        }
    }
}

/// Returns the code in a page: line number, text, and true in a code block or false in a sentence.
fn code(path: &Path, text: &str) -> Vec<(usize, String, bool)> {
    let is_page = path.extension().is_some_and(|extension| extension == "md");
    let mut all: Vec<(usize, String, bool)> = Vec::new();
    let (mut is_block, mut continues) = (!is_page, false);
    for (line, number) in text.lines().zip(1..) {
        if is_page && line.trim_start().starts_with("```") {
            is_block = !is_block;
            continues = false;
        } else if is_block {
            let part = line.trim().trim_start_matches("> ");
            let whole = part.trim_end_matches('\\');
            match all.last_mut().filter(|_| continues) {
                Some((_, start, _)) => start.push_str(whole),
                None => all.push((number, whole.to_owned(), true)),
            }
            continues = part.ends_with('\\');
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            all.extend(spans.map(|span| (number, span.replace("\\|", "|"), false)));
        }
    }
    all
}

fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut chars = text.chars().peekable();
    let mut last = ' ';
    while let Some(c) = chars.next() {
        let word = words.last_mut().expect("never empty");
        let ends_word = last == ' ';
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => word.push(c),
            (None, '"' | '\'') => quote = Some(c),
            (None, ';' | ')' | '`') => break,
            (None, '|' | '&' | '>' | '<' | '#') if ends_word => break,
            (None, '0'..='9') if ends_word && chars.peek() == Some(&'>') => break,
            (None, ' ') => words.push(String::new()),
            (None, _) => word.push(c),
        }
        last = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Replaces notation such as `[--port N]` or `on|off` with arguments for the program.
fn filled(word: &str) -> Option<String> {
    let is_option = word.starts_with('-') && !word.contains('=');
    if is_option {
        return Some(word.trim_end_matches(']').to_owned());
    }
    let variable = word.strip_prefix('$').map(str::to_uppercase);
    let word = variable.as_deref().unwrap_or(word);
    let word = word
        .trim_matches(|c| "[]".contains(c))
        .trim_end_matches("...");
    let word = word.split('[').next().unwrap_or_default();
    let word = word.split('|').next().unwrap_or_default();
    let mut out = String::new();
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    let mut rest = word;
    while let Some(at) = rest.find(is_part) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|c: char| !is_part(c)).unwrap_or(from.len());
        let (name, after) = from.split_at(end);
        let is_alone = !before.ends_with(|c: char| c.is_ascii_alphanumeric())
            && !after.starts_with(|c: char| c.is_ascii_alphanumeric());
        let known = VALUES.iter().find(|(placeholder, _)| *placeholder == name);
        out += before;
        out += match known {
            Some((_, value)) if is_alone => value,
            _ => name,
        };
        rest = after;
    }
    out += rest;
    let is_noise = out.is_empty() || ["…", "..."].contains(&out.as_str());
    (!is_noise).then_some(out)
}

fn has_commands(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_none_or(|extension| ["md", "service", "conf", "sh"].contains(&extension))
}

fn lines(text: &str, grammars: &[Command; 2]) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (program, grammar) in PROGRAMS.iter().zip(grammars) {
        for (at, _) in text.match_indices(program) {
            let after = &text[at + program.len()..];
            let Some(rest) = after.strip_prefix(' ') else {
                continue;
            };
            let words: Vec<String> = words(rest).iter().filter_map(|word| filled(word)).collect();
            let Some(first) = words.first() else { continue };
            let is_command = grammar.find_subcommand(first).is_some();
            let before = text[..at].trim_end_matches("/usr/bin/").trim_end();
            let starts = [
                "",
                "$",
                "|",
                ";",
                "&&",
                "(",
                "sudo",
                "ExecStart=",
                "ExecStartPre=",
                "exec",
            ];
            let is_start = starts.iter().any(|start| match start.is_empty() {
                true => before.is_empty(),
                false => before.ends_with(start),
            });
            if is_command
                || (is_start && first.starts_with(|c: char| c.is_ascii_lowercase() || c == '-'))
            {
                all.push([vec![(*program).to_owned()], words].concat());
            }
        }
    }
    all
}

fn is_accepted(line: &Line, grammar: &Command) -> Result<(), String> {
    let Err(error) = grammar.clone().try_get_matches_from(&line.words) else {
        return Ok(());
    };
    let in_prose = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    let is_cut = error.kind() == ErrorKind::InvalidValue
        && error.to_string().contains("a value is required")
        && line.words.last().is_some_and(|word| word.starts_with('-'));
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(()),
        kind if line.is_prose && (in_prose.contains(&kind) || is_cut) => Ok(()),
        _ => Err(format!("{}: {}\n{error}", line.place, line.words.join(" "))),
    }
}

fn collected(grammars: &[Command; 2]) -> Vec<Line> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut paths = vec![
        root.join("README.md"),
        root.join("CONTRIBUTING.md"),
        root.join("SECURITY.md"),
    ];
    for folder in ["docs", "packaging", "demo", "config/examples"] {
        files(&root.join(folder), &mut paths);
    }
    let mut all = Vec::new();
    for path in paths.into_iter().filter(|path| has_commands(path)) {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for (number, code, is_block) in code(&path, &text) {
            let shown = path.strip_prefix(root).unwrap().display().to_string();
            all.extend(lines(&code, grammars).into_iter().map(|words| Line {
                place: format!("{shown}:{number}"),
                words,
                is_prose: !is_block,
            }));
        }
    }
    all
}

fn each_command_of_a_page_is_accepted() {
    let grammars = [
        cairn_target::cli::command_line(),
        cairn_initiator_cli::command_line(),
    ];
    let all = collected(&grammars);
    let grammar = |line: &Line| &grammars[usize::from(line.words[0] == PROGRAMS[1])];
    let wrong = all
        .iter()
        .filter_map(|line| is_accepted(line, grammar(line)).err());
    let wrong: Vec<String> = wrong.collect();
    assert!(
        wrong.is_empty(),
        "{} of {} commands:\n{}",
        wrong.len(),
        all.len(),
        wrong.join("\n")
    );
    let of = |program: &str| all.iter().filter(|line| line.words[0] == program).count();
    for program in PROGRAMS {
        let found = of(program);
        assert!(found > FOUND_MIN, "{found} commands of {program}");
    }
    let pages = [
        "README.md",
        "docs/control.md",
        "docs/guide-target.md",
        "docs/guide-initiator.md",
        "packaging/cairn-target.service",
    ];
    for page in pages {
        let is_of = |line: &&Line| line.place.starts_with(page);
        assert!(all.iter().any(|line| is_of(&line)), "{page} has no command");
    }
}

fn wrong_commands_are_found() {
    let grammars = [
        cairn_target::cli::command_line(),
        cairn_initiator_cli::command_line(),
    ];
    let page = "```\n$ sudo cairn-target serve --listen ADDR \\\n    --exports mem:1MiB # why\n\
                head -c 4096 x | cairn-initiator write -a ADDRESS -n NQN -z 4096 --destroy-data > y\n\
                systemctl restart cairn-target\n```\nProse: `cairn-target drain [ADDR] --timeout`, `cairn-target host ad`.\n";
    let mut verdicts = Vec::new();
    for (number, code, is_block) in code(Path::new("x.md"), page) {
        for words in lines(&code, &grammars) {
            let line = Line {
                place: number.to_string(),
                words,
                is_prose: !is_block,
            };
            let grammar = &grammars[usize::from(line.words[0] == PROGRAMS[1])];
            verdicts.push((number, is_accepted(&line, grammar).is_ok()));
        }
    }
    assert_eq!(verdicts, [(2, false), (4, true), (7, true), (7, false)]);
}
