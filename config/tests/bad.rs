//! Errors of invalid configurations: bad/NAME.toml must produce bad/NAME.txt.

use std::path::{Path, PathBuf};

use cairn_config::{Config, Flags};
use proptest::prelude::*;

fn bad_files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let mut files: Vec<PathBuf> = directory
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    files
}

#[test]
fn each_bad_file_is_explained() {
    let files = bad_files();
    assert!(!files.is_empty());
    let mut wrong = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let explained = match Config::parse(name, &text, &Flags::default()) {
            Ok(_) => "no error\n".to_owned(),
            Err(error) => format!("{error}\n"),
        };
        let expected_path = path.with_extension("txt");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&expected_path, &explained).unwrap();
        }
        let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
        if explained != expected {
            wrong.push(format!(
                "=== {name} gives\n{explained}=== instead of\n{expected}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn some_lines() -> impl Strategy<Value = String> {
    let mut lines: Vec<String> = Vec::new();
    for path in bad_files() {
        let text = std::fs::read_to_string(path).unwrap();
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.extend(
        include_str!("../examples/everything.toml")
            .lines()
            .map(str::to_owned),
    );
    prop::collection::vec(prop::sample::select(lines), 0..24).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_text_is_a_configuration_or_an_error(text in "(?s).{0,200}") {
        if let Err(error) = Config::parse("any.toml", &text, &Flags::default()) {
            prop_assert!(!error.problems().is_empty());
            prop_assert!(error.to_string().starts_with("error: "));
        }
    }

    #[test]
    fn any_lines_are_a_configuration_or_an_error(text in some_lines()) {
        if let Err(error) = Config::parse("any.toml", &text, &Flags::default()) {
            for problem in error.problems() {
                if let Some((line, column)) = problem.line_column() {
                    prop_assert!(line <= text.lines().count().max(1), "{}", problem);
                    let width = text.lines().nth(line - 1).unwrap_or("").chars().count();
                    prop_assert!(column <= width + 1, "{}", problem);
                }
            }
        }
    }

    #[test]
    fn any_flags_are_a_configuration_or_an_error(
        listen in prop::collection::vec("[0-9a-f:.\\[\\]]{0,20}", 0..3),
        export in prop::collection::vec("(mem:|null:|/|)[0-9a-zA-Z/.:]{0,12}", 0..3),
        nqn in prop::option::of("(nqn\\.2024-01\\.)?[a-z.:]{0,20}"),
    ) {
        let flags = Flags { listen, export, nqn, ..Flags::default() };
        let _ = Config::from_flags(&flags);
    }
}

#[test]
fn errors_of_a_draft_name_objects() {
    let parts = [
        "[[listener]]\naddress = \"192.0.2.1\"\nana = \"optimised\"\n",
        "[[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallowed_hosts = [\"@nogroup\"]\n",
        "[[subsystem.namespace]]\nnsid = 7\nexport = \"/a\"\n",
        "[[subsystem.namespace]]\nnsid = 7\nexport = \"/b\"\n",
        "[[subsystem.namespace]]\nnsid = 8\nexport = \"/c\"\nblock_size = 3\n",
    ];
    let error = Config::parse_draft(&parts.concat(), &Flags::default()).unwrap_err();
    let text = error.to_string();
    for part in [
        "--> ana of listener 192.0.2.1:4420",
        "--> allowed_hosts of subsystem nqn.2024-01.com.example:a",
        "given twice, first by namespace 7 of subsystem nqn.2024-01.com.example:a",
        "--> namespace 7 of subsystem nqn.2024-01.com.example:a",
        "--> block_size of namespace 8 of subsystem nqn.2024-01.com.example:a",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("line "), "{text}");
    assert!(
        error
            .problems()
            .iter()
            .all(|one| one.line_column().is_none())
    );
}

#[test]
fn control_characters_of_a_line_are_shown() {
    let text = "listener = [{ address = \"192.0.2.1\" }]\n\tx\0y = 1\n";
    let error = Config::parse("nul.toml", text, &Flags::default()).unwrap_err();
    let shown = error.to_string();
    let lines = "2 | \tx\\u{0}y = 1\n  | \t ^^^^^";
    assert!(
        shown.contains("--> nul.toml:2:3") && shown.contains(lines),
        "{shown}"
    );
    let trailing = "listener = [{ address = \"192.0.2.1\" }]\n\0\0";
    let error = Config::parse("nul.toml", trailing, &Flags::default()).unwrap_err();
    let line = "2 | \\u{0}\\u{0}\n";
    assert!(error.to_string().contains(line), "{error}");
}
