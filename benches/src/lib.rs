//! Micro-benchmarks (`cargo bench -p cairn-benches`), and in `src/bin` the programs that
//! `cargo xtask bench` runs beside target and host.
