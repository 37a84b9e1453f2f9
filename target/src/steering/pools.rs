//! Looks at directories whose files are namespaces, when the kernel reports that they have changed.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::changes::Job;
use crate::pool::{LOOK_TIMEOUT, Pools};
use crate::server::{Arrivals, Handle};

/// Reports that come closer together cause one look.
const SETTLE: Duration = Duration::from_millis(200);

/// When a file may be whole that was not.
const AGAIN: Duration = Duration::from_secs(1);

/// Without a report: some file systems report nothing of other machines.
const SLOW: Duration = Duration::from_secs(30);

/// Watches for as long as the target runs.
pub(super) async fn watch(handle: Handle, jobs: mpsc::Sender<Job>, pools: Pools) {
    let mut stuck = None;
    loop {
        let Some(picture) = handle.look().await else {
            return;
        };
        let subsystems = picture.config.subsystems.iter();
        let all = subsystems.flat_map(|subsystem| &subsystem.pools);
        let folders: Vec<PathBuf> = all.map(|pool| pool.folder.clone()).collect();
        // Before the look, which sees all that was before; anew, as a directory may be another one.
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

/// Has the kernel report on directories. One that hangs keeps a thread, and no second one; until it
/// answers the slow looks remain.
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
