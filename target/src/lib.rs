//! The Cairn target: exports disks over NVMe over Fabrics on RDMA.

pub mod backend;
mod memlock;
mod pool;
mod ring;
