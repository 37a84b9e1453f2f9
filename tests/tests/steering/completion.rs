//! Completion of a running target's names in bash, zsh and fish.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use cairn_tests::process::program;

use crate::target::{NQN, Steered};

const HOST: &str = "nqn.2024-01.com.example:host1";

const SCRIPT: &str = r#"
. <(cairn-target completions bash)
function=$(complete -p cairn-target | sed 's/.* -F \([^ ]*\).*/\1/')
COMP_LINE="$1" COMP_POINT=${#1} COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
read -ra COMP_WORDS <<< "$1"
[[ "$1" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
"$function" cairn-target "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

const IN_ZSH: &str = r#"
mkdir functions; cairn-target completions zsh > functions/_cairn-target
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1= fpath=($PWD/functions $fpath); autoload -U compinit; compinit -u -D
unsetopt zle_bracketed_paste 2> /dev/null
show() { print -r -- "[$BUFFER]"; zle kill-whole-line }; zle -N show; bindkey "^X" show
echo rea""dy'
zpty -r -m shell out '*ready*'
zpty -w -n shell "$1"$'\t'$'\x18'
zpty -r -m shell out '*\[*\]*'
out="${out##*\[cairn}"
print -r -- "cairn${out%%\]*}"
zpty -d shell
"#;

const IN_FISH: &str = "cairn-target completions fish | source; complete -C$argv[1]";

fn complete(socket: &Path, line: &str) -> Vec<String> {
    printed(socket, &["bash", "-c", SCRIPT, "bash", line])
}

fn printed(socket: &Path, command: &[&str]) -> Vec<String> {
    let line = command[command.len() - 1];
    let folder = tempfile::tempdir().unwrap();
    symlink(
        program("cairn-target-process"),
        folder.path().join("cairn-target"),
    )
    .unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(command[0])
        .args(&command[1..])
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .env("CAIRN_CONTROL", socket)
        .env("HOME", folder.path())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "", "{line}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let names = stdout.lines().filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

#[test]
fn bash_completes_the_names_of_a_running_target() {
    let target = Steered::start();
    for host in [HOST, "nqn.2024-01.com.example:$(id)"] {
        let added = target.command(&["host", "add", NQN, host]);
        assert!(added.status.success(), "{added:?}");
    }
    let grouped = target.command(&["host", "group", "add", "cluster", HOST]);
    assert!(grouped.status.success(), "{grouped:?}");
    let _connected = target.connect("one");
    let socket = target.socket();
    let start = &NQN[..NQN.len() - 3];
    let after_colon = NQN.rsplit(':').next().unwrap();
    let place = format!("{}:4420", target.address);
    let hosts = |line: &str| complete(&socket, line).contains(&HOST.to_owned());
    for (line, expected) in [
        ("subsystem remove ".to_owned(), NQN),
        (format!("subsystem remove {start}"), after_colon),
        ("namespace add ".to_owned(), NQN),
        (format!("namespace remove {NQN} "), "1"),
        (format!("limit set {NQN} "), "1"),
        (format!("connection disconnect {NQN} "), "1"),
        (format!("connections remove {NQN} "), "1"),
        ("listener remove ".to_owned(), &*place),
        ("drain ".to_owned(), &place),
        ("drain --timeout 5 ".to_owned(), &place),
        (
            format!("listener set {place} --ana optimized --subsystem "),
            NQN,
        ),
        ("host group remove ".to_owned(), "cluster"),
    ] {
        let completed = complete(&socket, &format!("cairn-target {line}"));
        assert_eq!(completed, [expected], "{line}");
    }
    assert!(hosts(&format!("cairn-target host remove {NQN} ")));
    assert!(hosts(&format!("cairn-target limit set {NQN} --host ")));
    assert!(hosts("cairn-target host group add other a b "));
    let completed = complete(&socket, &format!("cairn-target host remove {NQN} "));
    assert!(
        !completed.iter().any(|name| name.contains('$')),
        "{completed:?}"
    );
    let new = complete(&socket, "cairn-target subsystem add ");
    assert!(!new.contains(&NQN.to_owned()), "{new:?}");
    let line = format!("cairn-target drain --socket {} ", socket.display());
    assert_eq!(complete(Path::new("/none"), &line), [&*place]);
    assert_eq!(
        complete(Path::new("/none"), "cairn-target subs"),
        ["subsystem"]
    );
    assert!(
        !complete(Path::new("/none"), "cairn-target subsystem remove ").contains(&NQN.to_owned())
    );
}

#[test]
fn zsh_and_fish_complete_the_names_of_a_running_target() {
    let target = Steered::start();
    let socket = target.socket();
    let place = format!("{}:4420", target.address);
    let cases = [
        ("subsystem remove ".to_owned(), NQN),
        (format!("namespace remove {NQN} "), "1"),
        ("drain --timeout 5 ".to_owned(), &place),
        (
            format!("listener set {place} --ana optimized --subsystem "),
            NQN,
        ),
        ("subs".to_owned(), "subsystem"),
        ("host rem".to_owned(), "remove"),
        ("status -o j".to_owned(), "json"),
    ];
    let is_there = |shell: &str| {
        let version = cairn_skips::version(&mut Command::new(shell), shell);
        version.map_err(cairn_skips::skip).is_ok()
    };
    if is_there("fish") {
        for (line, expected) in &cases {
            let line = format!("cairn-target {line}");
            let all = printed(&socket, &["fish", "--no-config", "-c", IN_FISH, &line]);
            let [only] = &all[..] else {
                panic!("{line}: {all:?}")
            };
            assert_eq!(only.split('\t').next(), Some(*expected), "{line}");
        }
    }
    if is_there("zsh") {
        for (line, expected) in &cases {
            let line = format!("cairn-target {line}");
            let made = printed(&socket, &["zsh", "-f", "-c", IN_ZSH, "zsh", &line]);
            let before = &line[..=line.rfind(' ').unwrap()];
            assert_eq!(made, [format!("{before}{expected} ")], "{line}");
        }
    }
}
