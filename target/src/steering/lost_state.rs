//! Detects a lost directory of persistent reservations. Once it is back, stores the reservations in
//! force there, and locks it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cairn_data_path::namespace::Namespace;
use cairn_data_path::reservation_file::RESERVATIONS_END;
use tokio::time::{sleep, timeout};

use crate::files;
use crate::server::{Handle, Snapshot, StateDirectory, store_again};

const PATIENCE: Duration = Duration::from_millis(300);

const INTERVAL: Duration = Duration::from_secs(5);

/// Remedy of a loss.
pub(super) const REMEDY: &str = "mount it, or make an empty one, before this target ends: the \
                                 target then stores its reservations there";

/// Repairs, logs and counts each loss and each return of the directory.
pub(super) async fn watch(handle: Handle) {
    let mut known = None;
    while let Some(snapshot) = handle.snapshot().await {
        repair(&snapshot).await;
        let lost = look_within(&snapshot, INTERVAL, "watch").await;
        if lost.is_some() || snapshot.config.target.state_directory.is_some() {
            handle.note_state(lost.is_some());
        }
        if lost != known {
            log(lost.as_ref().or(known.as_ref()), lost.is_some());
            known = lost;
        }
        sleep(INTERVAL).await;
    }
}

fn log(loss: Option<&(PathBuf, String)>, is_lost: bool) {
    let Some((folder, why)) = loss else {
        return;
    };
    let folder = folder.display();
    if is_lost {
        // Logged once for each change of the state directory.
        tracing::warn!(
            %folder, why,
            "state_directory is lost: {REMEDY}; at a start, {RESERVATIONS_END}"
        );
    } else {
        // Logged once for each change of the state directory.
        tracing::info!(%folder, "state_directory is complete again");
    }
}

async fn repair(snapshot: &Snapshot) {
    let Some(state) = snapshot.state_directory.clone() else {
        return;
    };
    let exports = snapshot.exports();
    let namespaces: Vec<Arc<Namespace>> = exports.map(|one| one.entry.namespace).collect();
    // A result that comes too late is that of the next check.
    let call = state.path().join("repair");
    let _ = timeout(
        INTERVAL,
        files::call(&call, move |_| repaired(&state, &namespaces)),
    )
    .await;
}

#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
fn repaired(state: &StateDirectory, namespaces: &[Arc<Namespace>]) {
    if !state.path().is_dir() || state.lock().is_err() {
        return;
    }
    for namespace in namespaces {
        let Some(file) = &namespace.reservation_file else {
            continue;
        };
        match store_again(namespace, file) {
            Ok(false) => {}
            // Logged when a file of reservations is lost or replaced.
            Ok(true) => tracing::warn!(
                file = %file.path().display(),
                "the file of reservations was missing or older: it has those in force again"
            ),
            Err(error) => {
                // Logged every few seconds while the directory cannot be written.
                tracing::warn!(
                    file = %file.path().display(), %error,
                    "the reservations in force cannot be stored again"
                );
                return;
            }
        }
    }
}

/// Returns the directory and a reason if reservations stored there are lost.
pub(super) async fn look(snapshot: &Snapshot) -> Option<(PathBuf, String)> {
    look_within(snapshot, PATIENCE, "status").await
}

async fn look_within(
    snapshot: &Snapshot,
    patience: Duration,
    caller: &str,
) -> Option<(PathBuf, String)> {
    let mut folder = None;
    let mut stored = Vec::new();
    for export in snapshot.exports() {
        let namespace = &export.entry.namespace;
        let Some(file) = &namespace.reservation_file else {
            continue;
        };
        folder = folder.or_else(|| file.path().parent().map(Path::to_owned));
        let reserving = namespace.reserving();
        // A pending change may have removed the file.
        if reserving.answered().is_persistent() && reserving.to_store().is_none() {
            stored.push(file.path().to_owned());
        }
    }
    let folder = folder?;
    let state = snapshot.state_directory.clone();
    // Each caller has a separate path, because a late call makes other calls for its path fail.
    let call = folder.join(caller);
    let at = folder.clone();
    let looked = files::call(&call, move |_| {
        loss(&at, &stored).or_else(|| taken(state.as_deref()?))
    });
    let why = match timeout(patience, looked).await {
        Err(_) => Some("no answer of its disk".to_owned()),
        Ok(looked) => looked.unwrap_or_else(|error| Some(error.to_string())),
    };
    Some((folder, why?))
}

#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
fn loss(folder: &Path, stored: &[PathBuf]) -> Option<String> {
    match folder.metadata() {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Some("it is not a directory".to_owned()),
        Err(error) => return Some(error.to_string()),
    }
    let lost = |file: &&PathBuf| matches!(file.try_exists(), Ok(false));
    let lost = stored.iter().filter(lost).count();
    (lost > 0).then(|| format!("{lost} of its files of persistent reservations are missing"))
}

fn taken(state: &StateDirectory) -> Option<String> {
    let is_taken = state.has_another_owner();
    is_taken.then(|| "it was replaced, and another target uses it: stop that target".to_owned())
}
