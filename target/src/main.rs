//! `cairn-target`: exports disks over NVMe over Fabrics on RDMA.

use std::process::ExitCode;

/// Makes cargo build the program again if the glibc release to link with has changed.
const _: Option<&str> = option_env!("CAIRN_GLIBC");

fn main() -> ExitCode {
    cairn_target::cli::main()
}
