//! cairn-target as a program of this package, for tests with child processes.

fn main() -> std::process::ExitCode {
    cairn_target::cli::main()
}
