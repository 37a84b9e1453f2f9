//! SPDK's target, from a build tree on the target's machine.

use std::path::Path;

use anyhow::{Context, Result};

use super::ports::TARGET;
use super::shell::{Shell, quote};
use super::target::{NQN, PORT};

const MEMORY_MIB: u32 = 1024;

pub(super) struct Spdk {
    folder: String,
    bdev: String,
    options: String,
    version: String,
}

impl Spdk {
    /// Returns why SPDK cannot be measured if the folder is absent.
    pub(super) fn find(
        folder: Option<&Path>,
        mask: &str,
        far: &Shell,
    ) -> Result<Result<Self, String>> {
        let Some(folder) = folder else {
            return Ok(Err("--spdk names no build tree".to_owned()));
        };
        let folder = quote(&folder.to_string_lossy());
        let found = far.run(&format!(
            "cd {folder}
             test -x build/bin/nvmf_tgt -a -e scripts/rpc.py
             command -v python3 > /dev/null
             cat VERSION 2> /dev/null || echo 'of an unknown version'
             if grep -q bdev_uring_create build/bin/nvmf_tgt; then echo uring; else echo aio; fi
             awk '/^HugePages_Free/ {{ n = $2 }} /^Hugepagesize/ {{ kib = $2 }}
                 END {{ if (n * kib < {MEMORY_MIB} * 1024) print \"--no-huge\"; else print \"\" }}' /proc/meminfo
             echo ."
        ));
        let found = match found {
            Ok(found) => found,
            Err(_) if far.run("true").is_ok() => {
                let needed = "build/bin/nvmf_tgt, scripts/rpc.py and python3";
                return Ok(Err(format!("{} lacks {needed} in {folder}", far.name())));
            }
            Err(error) => return Err(error),
        };
        let mut lines = found.lines();
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (version, bdev, huge) = (next(), next(), next());
        Ok(Ok(Self {
            folder,
            bdev,
            options: format!("-m {} -s {MEMORY_MIB} {huge}", quote(mask)),
            version,
        }))
    }

    pub(super) fn describe(&self) -> String {
        let Self {
            version,
            bdev,
            options,
            ..
        } = self;
        format!(
            "SPDK {version}: nvmf_tgt {} with bdev_{bdev}.",
            options.trim()
        )
    }

    pub(super) fn start(&self, disk: &str, far: &Shell) -> Result<u32> {
        let Self {
            folder,
            bdev,
            options,
            ..
        } = self;
        let own = far.folder();
        let pid = far.spawn(&format!(
            "exec {folder}/build/bin/nvmf_tgt -r {own}/spdk.sock {options} >> {own}/spdk.log 2>&1"
        ))?;
        // rpc.py reads commands from stdin, and retries the connection every 0.2 s.
        let built = far.run(&format!(
            "python3 {folder}/scripts/rpc.py -r 200 -s {own}/spdk.sock > {own}/rpc.log 2>&1 << END || \
             {{ tail -n 10 {own}/spdk.log {own}/rpc.log >&2; exit 1; }}
framework_wait_init
bdev_{bdev}_create {disk} Disk
nvmf_create_transport -t RDMA
nvmf_create_subsystem {NQN} -a
nvmf_subsystem_add_ns {NQN} Disk
nvmf_subsystem_add_listener {NQN} -t rdma -f ipv4 -a {TARGET} -s {PORT}
END"
        ));
        built
            .context("SPDK's nvmf_tgt did not start: repair it, or leave spdk out of --targets")?;
        Ok(pid)
    }
}
