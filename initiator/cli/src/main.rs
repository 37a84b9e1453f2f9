//! `cairn-initiator`: a host of NVMe over Fabrics on RDMA, in user space.

use std::process::ExitCode;

/// Debian release of the linked glibc. If the variable changes, Cargo links again.
const _: Option<&str> = option_env!("CAIRN_GLIBC");

fn main() -> ExitCode {
    cairn_initiator_cli::main()
}
