//! `cairn-target`: exports disks over NVMe over Fabrics on RDMA.

use std::process::ExitCode;

/// Release whose glibc the program is linked with. Read here so that a change of the variable causes a new build.
const _: Option<&str> = option_env!("CAIRN_GLIBC");

fn main() -> ExitCode {
    cairn_target::cli::main()
}
