//! Detects a lost directory of persistent reservations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;

use crate::files;
use crate::server::Snapshot;

const PATIENCE: Duration = Duration::from_millis(300);

/// Returns the directory and a reason if reservations stored there are lost.
pub(super) async fn look(snapshot: &Snapshot) -> Option<(PathBuf, String)> {
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
    // The call has a separate path, because a late call makes other calls for its path fail.
    let call = folder.join("status");
    let at = folder.clone();
    let looked = files::call(&call, move |_| loss(&at, &stored));
    let why = match timeout(PATIENCE, looked).await {
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
