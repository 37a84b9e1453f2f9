//! `cairn-initiator`: a host of NVMe over Fabrics on RDMA, in user space.

use std::process::ExitCode;

/// Release whose glibc the program is linked with. A changed variable links the program again.
const _: Option<&str> = option_env!("CAIRN_GLIBC");

fn main() -> ExitCode {
    cairn_initiator_cli::main()
}
