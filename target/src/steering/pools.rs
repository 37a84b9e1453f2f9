//! Watches pool directories, and requests scans after changes.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::changes::Job;
use crate::pool::Pools;
use crate::server::{Arrivals, Handle};

/// Time to collect reports before a scan.
const SETTLE: Duration = Duration::from_millis(200);

/// Delay of the next scan while a file or NSID is not ready.
const AGAIN: Duration = Duration::from_secs(1);

/// Scan interval without reports, because some file systems do not report other machines' changes.
const SLOW: Duration = Duration::from_secs(30);

pub(super) async fn watch(handle: Handle, jobs: mpsc::Sender<Job>, pools: Pools) {
    loop {
        let Some(snapshot) = handle.snapshot().await else {
            return;
        };
        let subsystems = snapshot.config.subsystems.iter();
        let all = subsystems.flat_map(|subsystem| &subsystem.pools);
        let folders: Vec<PathBuf> = all.map(|pool| pool.folder.clone()).collect();
        // The folders are watched before the scan, so that no change is missed. The watches are
        // renewed each time, because a path may lead to another directory.
        let mut arrivals = Arrivals::in_folders(&folders).await;
        let mut waits = false;
        if !folders.is_empty() {
            let (answer, answered) = oneshot::channel();
            if jobs.send(Job::Rescan { answer }).await.is_err() {
                return;
            }
            waits = answered.await.unwrap_or(false);
        }
        let pause = async {
            match (folders.is_empty(), waits) {
                (true, _) => std::future::pending().await,
                (false, true) => sleep(AGAIN).await,
                (false, false) => sleep(SLOW).await,
            }
        };
        tokio::select! {
            () = pools.changed() => {}
            () = pause => {}
            () = arrivals.next() => sleep(SETTLE).await,
        }
    }
}
