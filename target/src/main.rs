//! `cairn-target`: exports disks over NVMe over Fabrics on RDMA.

use std::process::ExitCode;

fn main() -> ExitCode {
    cairn_target::cli::main()
}
