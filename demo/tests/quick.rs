//! The README's first command works.

use std::process::Command;

#[test]
fn it_verifies_measures_and_says_what_comes_next() {
    // UDP port 4791 of 127.0.0.1 may be in use.
    let [.., high, low] = std::process::id().to_be_bytes();
    let output = Command::new(env!("CARGO_BIN_EXE_cairn-demo"))
        .args(["--seconds", "1", "--mib", "4", "--address"])
        .arg(format!("127.{high}.{low}.1"))
        .output()
        .expect("the demo can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("verified  4 MiB"), "{text}");
    assert!(text.contains("cairn-target serve --listen"), "{text}");
    assert!(!text.contains('\r'), "a bar without a terminal: {text}");

    let rows: Vec<_> = text.lines().filter(|line| line.contains("k ")).collect();
    let rows: Vec<_> = rows.iter().filter(|row| row.starts_with("  ")).collect();
    assert_eq!(rows.len(), 5, "{text}");
    for row in rows {
        let numbers: Vec<f64> = row
            .split_whitespace()
            .skip(3)
            .flat_map(str::parse)
            .collect();
        assert_eq!(numbers.len(), 7, "{row}");
        assert!(numbers.iter().all(|number| *number > 0.0), "{row}");
    }
}
