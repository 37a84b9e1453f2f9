//! Micro-benchmarks: see `benches/`. `cargo bench -p cairn-benches` runs them.
