//! Completion of command lines in bash.

use libtest_mimic::Failed;

use super::Bench;

pub(super) fn loads() -> Result<(), Failed> {
    let bench = Bench::new();
    for program in ["cairn-target", "cairn-initiator"] {
        let load = format!(
            "set -eu; {program} completions bash > completions; bash -n completions; . ./completions; \
             complete -p {program}"
        );
        let said = bench.succeed(&load)?;
        assert!(said.contains(" -F "), "{said}");
        let words = format!(
            "{program} completions bash > completions; . ./completions; COMP_WORDS=({program} li); \
             COMP_CWORD=1; $(complete -p {program} | sed 's/.* -F \\([^ ]*\\).*/\\1/') {program} li {program}; \
             echo ${{COMPREPLY[@]}}"
        );
        let said = bench.succeed(&words)?;
        let wanted = match program {
            "cairn-target" => "limit",
            _ => "list",
        };
        assert!(said.split_whitespace().any(|word| word == wanted), "{said}");
    }
    bench.stop()
}

pub(super) fn below() -> Result<(), Failed> {
    let bench = Bench::new();
    let cases: [(&str, &str, &[&str]); 7] = [
        ("cairn-target", "host rem", &["remove"]),
        ("cairn-target", "namespace ", &["list", "add", "remove"]),
        ("cairn-target", "status -o ", &["table", "json"]),
        ("cairn-target", "host key s", &["show", "set"]),
        ("cairn-initiator", "fabric ex", &["explain"]),
        (
            "cairn-initiator",
            "list -o ",
            &["table", "json", "wide", "name"],
        ),
        ("cairn-initiator", "id-ctrl --outp", &["--output"]),
    ];
    for (program, words, wanted) in cases {
        let said = bench.succeed(&format!(
            "{program} completions bash > completions; . ./completions; COMP_LINE='{program} {words}'; \
             COMP_POINT=${{#COMP_LINE}}; read -ra COMP_WORDS <<< \"$COMP_LINE\"; \
             [[ $COMP_LINE != *' ' ]] || COMP_WORDS+=(''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             $(complete -p {program} | sed 's/.* -F \\([^ ]*\\).*/\\1/') {program} \
             \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo ${{COMPREPLY[@]}}"
        ))?;
        let offered: Vec<&str> = said.split_whitespace().collect();
        let is_offered = |word: &&str| offered.contains(word);
        assert!(wanted.iter().all(is_offered), "{program} {words}: {said}");
    }
    bench.stop()
}
