//! Adds `--socket` to the commands in messages, so that a pasted command reaches the same target.

use std::path::Path;

use cairn_base::shell::shell_word;
use clap::{Command, CommandFactory};
use serde_json::Value;

use super::At;
use crate::cli::Cli;

const PROGRAM: &str = "cairn-target ";

impl At {
    /// Adds `--socket` to the commands in `text`, unless they find the target without it.
    pub(super) fn named(&self, text: &str) -> String {
        let usual = std::env::var_os("CAIRN_CONTROL").map(Into::into);
        let usual = usual.or_else(cairn_control::default_path);
        match self.socket.as_deref() {
            Some(socket) if usual.as_deref() != Some(socket) => with_socket(text, socket),
            _ => text.to_owned(),
        }
    }

    /// Calls [`Self::named`] for all texts of an answer.
    pub(super) fn name(&self, answer: &mut Value) {
        match answer {
            Value::String(text) => *text = self.named(text),
            Value::Array(all) => all.iter_mut().for_each(|one| self.name(one)),
            Value::Object(all) => all.values_mut().for_each(|one| self.name(one)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn with_socket(text: &str, socket: &Path) -> String {
    let program = Cli::command();
    let word = shell_word(&socket.to_string_lossy(), "PATH");
    let mut named = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(PROGRAM) {
        let (before, after) = rest.split_at(at + PROGRAM.len());
        let (verbs, after) = after.split_at(verbs(&program, after));
        named += before;
        named += verbs;
        if !verbs.is_empty() {
            named += &format!(" --socket {word}");
        }
        rest = after;
    }
    named + rest
}

/// Returns the length of the subcommands at the start of `text`, or 0 if they have no `--socket`.
fn verbs(program: &Command, text: &str) -> usize {
    let (mut command, mut length) = (program, 0);
    loop {
        let rest = &text[length..];
        let start = rest.len() - rest.trim_start_matches(' ').len();
        let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
        let name = rest[start..]
            .split(|c| !is_name(c))
            .next()
            .unwrap_or_default();
        let Some(next) = command.find_subcommand(name) else {
            break;
        };
        command = next;
        length += start + name.len();
    }
    let mut arguments = command.get_arguments();
    match arguments.any(|one| one.get_long() == Some("socket")) {
        true => length,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_a_control_socket_name_it() {
        let text = "restore: mv a b && cairn-target config show --file a; cairn-target reload; see \
                    cairn-target status, cairn-target check FILE and cairn-target";
        let named = "restore: mv a b && cairn-target config show --socket /b.sock --file a; \
                     cairn-target reload --socket /b.sock; see cairn-target status --socket \
                     /b.sock, cairn-target check FILE and cairn-target";
        assert_eq!(with_socket(text, Path::new("/b.sock")), named);
    }
}
