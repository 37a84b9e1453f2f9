//! Micro-benchmarks (`cargo bench -p cairn-benches`), and programs for `cargo xtask bench`.
