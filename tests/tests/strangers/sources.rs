//! Check of source files: log lines that peers can cause must be rate-limited and without Debug
//! output.

use std::fs;
use std::path::{Path, PathBuf};

const FOLDERS: [&str; 10] = [
    "target/data-path/src",
    "target/src",
    "target/disk/src",
    "target/interop/src",
    "target/rbd/src",
    "rdma/src",
    "rdma/roce/src",
    "rdma/roce-proto/src",
    "rdma/verbs/src",
    "nvme-proto/src",
];
const MACROS: [&str; 5] = ["error!", "warn!", "info!", "debug!", "trace!"];
const ABOVE: usize = 3;

/// The macros `peer_line!` and `peer_detail!` require a `LogLine` from the rate limiter. Other log
/// macros need a comment that names a cause other than a peer.
#[test]
fn each_log_line_has_permission_or_a_cause() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = 0;
    let mut bad = Vec::new();
    for folder in FOLDERS {
        for path in rust_files(&root.join(folder)) {
            let text = fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            for (at, line) in lines.iter().enumerate() {
                let is_log = |name: &&str| line.contains(&format!("tracing::{name}("));
                assert!(
                    !line.contains("use tracing::"),
                    "{}: {line}",
                    path.display()
                );
                if !MACROS.iter().any(is_log) {
                    continue;
                }
                found += 1;
                let above = &lines[at.saturating_sub(ABOVE)..at];
                if !above
                    .iter()
                    .any(|line| line.trim_start().starts_with("// Logged "))
                {
                    bad.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
                }
            }
        }
    }
    assert!(found > 10, "the sources are elsewhere");
    assert!(
        bad.is_empty(),
        "use cairn_base::peer_line!, or say in a comment `// Logged ...` when the line is logged, \
         if not at the will of a peer:\n{}",
        bad.join("\n")
    );
}

fn has_debug_field(line: &str) -> bool {
    line.match_indices('?').any(|(at, _)| {
        let begins =
            line[..at].trim_end().ends_with(['(', ',', '=']) || line[..at].trim().is_empty();
        begins && line[at + 1..].starts_with(|c: char| c.is_ascii_lowercase())
    })
}

#[test]
fn no_log_line_shows_rusts_debug_output() {
    assert!(has_debug_field("tracing::info!(?error, \"text\");"));
    assert!(has_debug_field("    ?error, path"));
    assert!(has_debug_field("    nsid, op = ?block.op, offset"));
    assert!(!has_debug_field("let value = read(file?, other)?;"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut bad = Vec::new();
    for path in FOLDERS
        .iter()
        .flat_map(|folder| rust_files(&root.join(folder)))
    {
        let text = fs::read_to_string(&path).unwrap();
        for (at, line) in text.lines().enumerate() {
            if has_debug_field(line) {
                bad.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
            }
        }
    }
    assert!(bad.is_empty(), "use `%` and Display:\n{}", bad.join("\n"));
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
