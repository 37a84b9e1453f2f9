//! cairn-target, where tests find it: as a process of its own, which can be killed.

fn main() -> std::process::ExitCode {
    cairn_target::cli::main()
}
