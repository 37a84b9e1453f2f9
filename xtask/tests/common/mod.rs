use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files_below(folder, ".rs")
}

pub(crate) fn files_below(folder: &Path, end: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(folder, end, &mut files);
    files
}

fn collect(folder: &Path, end: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() {
            if name != "build" && !name.starts_with('.') {
                collect(&path, end, files);
            }
        } else if name.ends_with(end) {
            files.push(path);
        }
    }
}
