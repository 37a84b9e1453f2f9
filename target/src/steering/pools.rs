//! Watches pool directories and requests a scan when the kernel reports a change.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::changes::Job;
use crate::pool::{LOOK_TIMEOUT, Pools};
use crate::server::{Arrivals, Handle};

/// Time to collect further reports before a scan.
const SETTLE: Duration = Duration::from_millis(200);

/// Delay before a file that was incomplete is scanned again.
const AGAIN: Duration = Duration::from_secs(1);

/// Scan interval without reports: some file systems do not report changes by other machines.
const SLOW: Duration = Duration::from_secs(30);

/// Watches pool directories until the target stops.
pub(super) async fn watch(handle: Handle, jobs: mpsc::Sender<Job>, pools: Pools) {
    let mut stuck = None;
    loop {
        let Some(picture) = handle.look().await else {
            return;
        };
        let subsystems = picture.config.subsystems.iter();
        let all = subsystems.flat_map(|subsystem| &subsystem.pools);
        let folders: Vec<PathBuf> = all.map(|pool| pool.folder.clone()).collect();
        // Watches start before the scan, so that no change is missed. They are renewed each time
        // because a path may lead to another directory.
        let mut arrivals = watched(&mut stuck, folders.clone()).await;
        let mut waits = false;
        if !folders.is_empty() {
            let (answer, answered) = oneshot::channel();
            if jobs.send(Job::Look { answer }).await.is_err() {
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

/// Watches directories for changes.
///
/// If this hangs, the thread is kept in `stuck` and no second one is started; until it returns,
/// only the periodic scans find changes.
async fn watched(stuck: &mut Option<JoinHandle<Arrivals>>, folders: Vec<PathBuf>) -> Arrivals {
    if stuck.as_ref().is_some_and(|task| !task.is_finished()) {
        return Arrivals::default();
    }
    let mut task = spawn_blocking(move || Arrivals::in_folders(&folders));
    match timeout(LOOK_TIMEOUT, &mut task).await {
        Ok(arrivals) => arrivals.unwrap_or_default(),
        Err(_) => {
            *stuck = Some(task);
            Arrivals::default()
        }
    }
}
