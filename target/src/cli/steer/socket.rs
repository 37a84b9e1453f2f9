//! Adds `--socket` to the commands in messages, so that a pasted command reaches the same target.

use cairn_base::shell::shell_word;
use clap::{Command, CommandFactory};
use serde_json::Value;

use super::At;
use crate::cli::Cli;

const PROGRAM: &str = "cairn-target ";

/// Program and path of the option; `None` if commands find the target without it.
pub(super) struct SocketOption(Option<(Command, String)>);

impl At {
    pub(super) fn socket_option(&self) -> SocketOption {
        let usual = std::env::var_os("CAIRN_CONTROL").map(Into::into);
        let usual = usual.or_else(cairn_control::default_path);
        let socket = self.socket.as_deref();
        let unusual = socket.filter(|socket| usual.as_deref() != Some(*socket));
        let word = unusual.map(|socket| shell_word(&socket.to_string_lossy(), "PATH"));
        SocketOption(word.map(|word| (Cli::command(), word)))
    }
}

impl SocketOption {
    pub(super) fn add_to(&self, text: &str) -> String {
        let Some((program, path)) = &self.0 else {
            return text.to_owned();
        };
        let mut with_option = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(PROGRAM) {
            let (before, after) = rest.split_at(at + PROGRAM.len());
            let (verbs, after) = after.split_at(verbs(program, after));
            with_option += before;
            with_option += verbs;
            if !verbs.is_empty() {
                with_option += &format!(" --socket {path}");
            }
            rest = after;
        }
        with_option + rest
    }

    pub(super) fn add_to_all(&self, answer: &mut Value) {
        match answer {
            Value::String(text) => *text = self.add_to(text),
            Value::Array(all) => all.iter_mut().for_each(|one| self.add_to_all(one)),
            Value::Object(all) => all.values_mut().for_each(|one| self.add_to_all(one)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
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
        let option = SocketOption(Some((Cli::command(), "/b.sock".to_owned())));
        let text = "restore: mv a b && cairn-target config show --file a; cairn-target reload; see \
                    cairn-target status, cairn-target check FILE and cairn-target";
        let named = "restore: mv a b && cairn-target config show --socket /b.sock --file a; \
                     cairn-target reload --socket /b.sock; see cairn-target status --socket \
                     /b.sock, cairn-target check FILE and cairn-target";
        assert_eq!(option.add_to(text), named);
    }
}
