//! cairn-target as a program of this package, for tests that run it in a child process.

fn main() -> std::process::ExitCode {
    cairn_target::cli::main()
}
