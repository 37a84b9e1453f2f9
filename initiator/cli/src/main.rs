//! `cairn-initiator`: a host of NVMe over Fabrics on RDMA, in user space.

use std::process::ExitCode;

/// Debian release of the linked glibc. Cargo links again when the variable changes.
const _: Option<&str> = option_env!("CAIRN_GLIBC");

fn main() -> ExitCode {
    cairn_initiator_cli::main()
}
