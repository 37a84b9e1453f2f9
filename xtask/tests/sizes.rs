//! Length limit of source files. clippy limits functions (`clippy.toml`).
//!
//! A file of more than 600 lines usually contains a type that should have its own module.

mod common;

use std::fs;
use std::path::Path;

const LINES_MAX: usize = 600;

const LONGER: [(&str, usize); 2] = [
    ("rdma/verbs/src/sys/bindings.rs", 2519),
    ("rdma/src/loopback/network.rs", 640),
];

#[test]
fn files_are_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = common::rust_files(&root);
    assert!(files.len() > 300, "only {} files are found", files.len());
    let mut long = Vec::new();
    for file in files {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        let name = file.strip_prefix(&root).unwrap().to_string_lossy();
        let longer = LONGER.iter().find(|(known, _)| *known == name);
        let most = longer.map_or(LINES_MAX, |(_, most)| *most);
        if lines > most {
            long.push(format!("{name} has {lines} lines, more than {most}"));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}
