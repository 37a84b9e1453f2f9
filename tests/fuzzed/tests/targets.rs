//! Fuzz targets with random bytes and stored inputs.

use std::fs;
use std::path::{Path, PathBuf};

use cairn_fuzzed::TARGETS;
use proptest::collection::vec;
use proptest::prelude::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = folder().join("corpus").join(target);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let bytes = fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect()
}

#[test]
fn every_target_has_a_program_and_inputs() {
    let mut programs: Vec<String> = fs::read_dir(folder().join("fuzz_targets"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    programs.sort();
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(programs, names);
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
    for name in names {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        assert!(!corpus(name).is_empty(), "{name}");
    }
}

#[test]
fn the_inputs_that_are_kept_break_nothing() {
    for (name, target) in TARGETS {
        for (path, bytes) in corpus(name) {
            println!("{}", path.display());
            target(&bytes);
        }
    }
}

#[test]
fn random_bytes_break_nothing() {
    let config = ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    for (name, target) in TARGETS {
        let mut runner = proptest::test_runner::TestRunner::new(config.clone());
        let ran = runner.run(&vec(any::<u8>(), 0..2000), |bytes| {
            target(&bytes);
            Ok(())
        });
        ran.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn changed_inputs_break_nothing() {
    for (name, target) in TARGETS {
        let mut random = cairn_sim::Random::new(7);
        for (_, bytes) in corpus(name) {
            for _ in 0..50 {
                let mut changed = bytes.clone();
                for _ in 0..=random.below(4) {
                    let place = random.below(bytes.len().max(1) as u64) as usize;
                    if let Some(byte) = changed.get_mut(place) {
                        *byte = random.below(256) as u8;
                    }
                }
                changed.truncate(bytes.len() - random.below(3).min(bytes.len() as u64) as usize);
                target(&changed);
            }
        }
    }
}
