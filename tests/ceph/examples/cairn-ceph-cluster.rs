//! Runs a Ceph cluster in the given folder until standard input ends.
//!
//! Reads the commands `kill-osd` and `start-osd`, and prints a line after each completed command.

use std::io::{self, BufRead as _};
use std::path::PathBuf;

use cairn_ceph::Cluster;

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("usage: cairn-ceph-cluster FOLDER"))?;
    let mut cluster = Cluster::start(&folder)?;
    println!("ready");
    for order in io::stdin().lock().lines() {
        let order = order?;
        match order.as_str() {
            "kill-osd" => cluster.kill_osd()?,
            "start-osd" => cluster.start_osd()?,
            _ => return Err(io::Error::other(format!("unknown order {order:?}"))),
        }
        println!("{order}");
    }
    Ok(())
}
