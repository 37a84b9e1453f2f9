//! Runs the examples, which check their own results.

#[path = "../examples/host.rs"]
mod host;

#[test]
fn the_target_serves_a_host_built_by_hand() {
    host::target::main();
}

#[test]
fn the_host_uses_the_target() {
    host::main();
}
