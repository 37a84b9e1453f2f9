//! `cairn-initiator`: a host of NVMe over Fabrics on RDMA, in user space.

use std::process::ExitCode;

fn main() -> ExitCode {
    cairn_initiator_cli::main()
}
