//! `cairn-target`: exports disks over NVMe over Fabrics on RDMA.

use std::process::ExitCode;

/// Makes cargo rebuild the program when `CAIRN_GLIBC` changes.
const _: Option<&str> = option_env!("CAIRN_GLIBC");

fn main() -> ExitCode {
    cairn_target::cli::main()
}
