//! `cairn-target`: exports disks over NVMe over Fabrics on RDMA.

use std::process::ExitCode;

/// Release of the linked glibc. Read here so that its change causes a new build.
const _: Option<&str> = option_env!("CAIRN_GLIBC");

fn main() -> ExitCode {
    cairn_target::cli::main()
}
