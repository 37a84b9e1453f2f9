//! Demonstration with Ceph: a monitor and an OSD in a temporary folder on loopback, which end with
//! this process.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use cairn_bench::NvmeLanes;
use cairn_ceph::Cluster;
use cairn_rdma::Provider;
use cairn_roce::Soft;
use cairn_target::Target;

use super::{Args, bench, config, connect, measure};

const BEFORE_KILL: Duration = Duration::from_millis(700);
const DEAD: Duration = Duration::from_millis(500);

pub(crate) fn run(args: &Args, install: bool) -> Result<()> {
    if let Some(missing) = cairn_ceph::missing() {
        if !install {
            bail!("{missing}\n`cargo demo ceph --install`, as root, does it");
        }
        install_packages()?;
    }
    let folder = tempfile::tempdir()?;
    let mut cluster = Cluster::start(folder.path()).context("Ceph does not start")?;
    println!(
        "cluster   a monitor and an OSD in {}",
        folder.path().display()
    );
    cluster.image("demo", &format!("{}M", args.mib))?;

    let conf = cluster.conf();
    let more = format!("ceph = {{ conf = \"{}\" }}", conf.display());
    let soft: Arc<dyn Provider> = Arc::new(Soft::default());
    let config = config(args.address, "rbd:rbd/demo", &more)?;
    let target = Target::start(config, vec![Arc::clone(&soft)])?;
    println!(
        "target    image rbd/demo of {} MiB, exported at {} by RoCE in user space",
        args.mib,
        target.addresses()[0]
    );
    let lanes = connect(&*soft, &target)?;
    verify_under_kill(&mut cluster, &lanes)?;
    measure(&lanes, args.seconds)?;
    target.stop().map_err(anyhow::Error::msg)?;
    println!("{NEXT}");
    Ok(())
}

fn verify_under_kill(cluster: &mut Cluster, lanes: &NvmeLanes) -> Result<()> {
    let keys = [
        ("rw", "write"),
        ("bs", "4k"),
        ("iodepth", "32"),
        ("verify", "crc32c"),
    ];
    let verified = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            std::thread::sleep(BEFORE_KILL);
            cluster.kill_osd()?;
            std::thread::sleep(DEAD);
            cluster.start_osd()
        });
        let label = "writing while the OSD is killed".to_owned();
        let verified = bench::run_job(label, lanes, &keys);
        let killed = killer.join().map_err(|_| anyhow!("the killer panicked"))?;
        killed.context("the OSD does not start again")?;
        verified
    })?;
    let mib = (verified.stats.verified * verified.plan.job.bs_min) >> 20;
    ensure!(mib > 0, "nothing was verified");
    println!(
        "verified  {mib} MiB written while the OSD was killed by SIGKILL, read back and compared \
         by CRC-32C: nothing was lost"
    );
    Ok(())
}

fn install_packages() -> Result<()> {
    let words: Vec<&str> = cairn_ceph::INSTALL.split(' ').collect();
    let [program, arguments @ ..] = &words[..] else {
        bail!("no words");
    };
    let status = Command::new(program).args(arguments).arg("-y").status()?;
    ensure!(
        status.success(),
        "`{}` failed: are you root?",
        cairn_ceph::INSTALL
    );
    Ok(())
}

const NEXT: &str = "
Your own cluster: docs/guide-ceph.md leads from its administrator to an exported image.

  cairn-target serve --listen ADDRESS --export rbd:POOL/IMAGE";
