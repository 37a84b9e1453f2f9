//! Micro-benchmarks (`cargo bench -p cairn-benches`), and in `src/bin` the programs used by `cargo
//! xtask bench`.
