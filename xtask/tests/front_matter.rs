//! The README must name existing scenarios and CI's test command.

use std::path::Path;

const README: &str = include_str!("../../README.md");
const CI: &str = include_str!("../../.ci/run");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn the_scenarios_that_it_names_exist() {
    let named: Vec<&str> = README
        .split("vm ")
        .skip(1)
        .filter(|rest| rest.split([' ', '\n', '|']).next().unwrap().ends_with('`'))
        .map(|rest| rest.split('`').next().unwrap())
        .collect();
    assert!(named.len() >= 10, "{named:?}");
    for name in named {
        let script = root().join(format!("tests/vm/scenarios/{name}.sh"));
        assert!(
            script.is_file(),
            "README.md names the scenario {name}, which does not exist"
        );
    }
}

#[test]
fn ci_runs_its_test_command() {
    assert!(README.contains("\ncargo xtask test "));
    assert!(CI.contains("\ncargo xtask test 2>&1 | tee \"$output\" || first=$?\n"));
    let second = "\ncargo xtask test --all --not-again 2>&1 | tee -a \"$output\" || second=$?\n";
    assert!(CI.contains(second));
}
