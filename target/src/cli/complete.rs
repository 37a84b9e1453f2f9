//! Shell completion: scripts for bash, zsh and fish, and names of a running target's objects.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use cairn_control::{Client, chosen_path};
use clap::{Arg, Command};
use clap_complete::Shell;
use serde_json::{Value, json};

use super::{PROGRAM, steer};

const PATIENCE: Duration = Duration::from_millis(500);

/// Bash function that first asks the target for names. Bash splits words at colons, so the function
/// splits the line at spaces, and offers only the part of a name after its last colon.
const NAMES_IN_BASH: &str = r#"
_cairn_target_names() {
    local line="${COMP_LINE:0:COMP_POINT}" word names=()
    local -a words
    read -ra words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    if [[ ${#words[@]} -gt 1 ]]; then
        word="${words[${#words[@]}-1]}"
        mapfile -t names < <("$1" __complete -- "${words[@]:1}" 2> /dev/null)
    fi
    if [[ ${#names[@]} -eq 0 ]]; then
        _cairn__target "$@"
        return
    fi
    [[ "$COMP_WORDBREAKS" == *:* ]] || word="${word//:/}"
    COMPREPLY=("${names[@]#"${word%"${word##*:}"}"}")
}
complete -F _cairn_target_names -o bashdefault -o default cairn-target
"#;

/// Zsh function that first asks the target for names, or else calls the generated function, renamed
/// to `_cairn-target-words`.
const NAMES_IN_ZSH: &str = r#"
_cairn-target() {
    local -a names
    names=(${(f)"$("${(Q)words[1]}" __complete -- "${(@Q)words[2,CURRENT]}" 2> /dev/null)"})
    if (( ${#names} )); then
        compadd -a names
    else
        _cairn-target-words "$@"
    fi
}

if [ "$funcstack"#;

/// Fish commands that offer the target's names, or else files.
const NAMES_IN_FISH: &str = r#"
function __fish_cairn_target_has_names
    set -l words (commandline -opc) "$(commandline -ct)"
    set -g __fish_cairn_target_names ($words[1] __complete -- $words[2..-1] 2> /dev/null)
    set -q __fish_cairn_target_names[1]
end
complete -c cairn-target -n __fish_cairn_target_has_names -f -a '$__fish_cairn_target_names'
for option in host listener subsystem
    complete -c cairn-target -n __fish_cairn_target_has_names -l $option -x -a '$__fish_cairn_target_names'
end
"#;

pub(super) fn script(mut command: Command, shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, PROGRAM, &mut text);
    let mut text = String::from_utf8_lossy(&text).into_owned();
    match shell {
        Shell::Bash => text = cairn_doctor::cli::repair_bash(&text, PROGRAM) + NAMES_IN_BASH,
        Shell::Fish => text += NAMES_IN_FISH,
        Shell::Zsh => {
            text = text.replacen("\n_cairn-target() {", "\n_cairn-target-words() {", 1);
            text = text.replacen("\nif [ \"$funcstack", NAMES_IN_ZSH, 1);
        }
        _ => {}
    }
    text
}

pub(super) fn names(mut root: Command, words: &[String]) -> Vec<String> {
    root.build();
    let Some((last, before)) = words.split_last() else {
        return Vec::new();
    };
    let Some(place) = Place::after(&root, before) else {
        return Vec::new();
    };
    let Some((methods, pick)) = place.question() else {
        return Vec::new();
    };
    let Ok(path) = chosen_path(place.socket.as_deref()) else {
        return Vec::new();
    };
    let (answer, answered) = channel();
    std::thread::spawn(move || {
        let Ok(mut client) = Client::connect(&path, PATIENCE) else {
            return;
        };
        let answers = methods.iter().map(|method| client.call(method, &json!({})));
        let _ = answer.send(answers.collect::<Result<Vec<_>, _>>());
    });
    let Ok(Ok(answers)) = answered.recv_timeout(PATIENCE) else {
        return Vec::new();
    };
    let rows = answers.iter().filter_map(Value::as_array).flatten();
    let mut names: Vec<String> = rows.flat_map(|row| pick(&place, row)).collect();
    names.retain(|name| name.starts_with(last) && name.chars().all(is_plain));
    names.sort();
    names.dedup();
    names
}

/// Returns true if no shell requires quotes around `c`.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || ".:-_@/+[]".contains(c)
}

type Pick = fn(&Place<'_>, &Value) -> Vec<String>;

/// Argument that the last word belongs to, after subcommands `path` and positional `values`.
struct Place<'a> {
    path: Vec<&'a str>,
    argument: &'a Arg,
    values: Vec<&'a str>,
    socket: Option<PathBuf>,
}

impl<'a> Place<'a> {
    fn after(root: &'a Command, words: &'a [String]) -> Option<Self> {
        let mut command = root;
        let (mut path, mut values) = (Vec::new(), Vec::new());
        let mut socket = std::env::var_os("CAIRN_CONTROL").map(PathBuf::from);
        let mut option: Option<&Arg> = None;
        for word in words {
            if let Some(arg) = option.take() {
                if arg.get_id() == "socket" {
                    socket = Some(PathBuf::from(word));
                }
            } else if let Some(arg) = find_option(command, word) {
                option = arg.get_action().takes_values().then_some(arg);
            } else if let Some(given) = word.strip_prefix("--socket=") {
                socket = Some(PathBuf::from(given));
            } else if let Some(below) = command.find_subcommand(word) {
                command = below;
                path.push(below.get_name());
            } else if !word.starts_with('-') {
                values.push(&**word);
            }
        }
        let positional = || {
            let repeated = command.get_positionals().last().filter(|last| {
                let most = last.get_num_args().map_or(1, |range| range.max_values());
                most > 1
            });
            let mut all = command.get_positionals();
            all.nth(values.len()).or(repeated)
        };
        let argument = option.or_else(positional)?;
        Some(Self {
            path,
            argument,
            values,
            socket,
        })
    }

    /// Returns the requests that list values for this argument, and a function that extracts the
    /// values from an answer's row.
    fn question(&self) -> Option<(&'static [&'static str], Pick)> {
        let path = self.path.join(" ");
        Some(match (&*path, self.argument.get_id().as_str()) {
            ("subsystem add" | "referral add" | "referral remove", "nqn") => return None,
            ("listener add" | "referral add", "address") | ("namespace add", "nsid") => {
                return None;
            }
            ("referral remove", "address") => (&["cairn_referral_list"], |_, row| place(row)),
            (_, "nqn" | "subsystem") => (&["cairn_subsystem_list"], |_, row| text(&row["nqn"])),
            (_, "host" | "hosts") => (&["cairn_subsystem_list", "cairn_connection_list"], hosts),
            (_, "nsid") => (&["cairn_namespace_list"], |at, row| {
                at.of_subsystem(row, "nsid")
            }),
            (_, "cntlid") => (&["cairn_connection_list"], |at, row| {
                at.of_subsystem(row, "cntlid")
            }),
            (_, "listener" | "address") => (&["cairn_listener_list"], |_, row| place(row)),
            ("host group add" | "host group remove", "name") => {
                (&["cairn_host_group_list"], |_, row| text(&row["name"]))
            }
            _ => return None,
        })
    }

    fn of_subsystem(&self, row: &Value, key: &str) -> Vec<String> {
        let is_it = self.values.first().is_some_and(|nqn| row["nqn"] == **nqn);
        if is_it { text(&row[key]) } else { Vec::new() }
    }
}

fn find_option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let mut all = command.get_arguments();
    match (word.strip_prefix("--"), word.strip_prefix('-')) {
        (Some(long), _) => all.find(|arg| arg.get_long() == Some(long)),
        (None, Some(short)) => {
            let is_it = |arg: &&Arg| {
                arg.get_short()
                    .is_some_and(|own| *short == *own.to_string())
            };
            all.find(is_it)
        }
        (None, None) => None,
    }
}

fn text(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Number(number) => vec![number.to_string()],
        Value::Array(all) => all.iter().flat_map(text).collect(),
        _ => Vec::new(),
    }
}

fn hosts(_: &Place<'_>, row: &Value) -> Vec<String> {
    [text(&row["hosts"]), text(&row["host"])].concat()
}

fn place(row: &Value) -> Vec<String> {
    vec![steer::place(row)]
}
