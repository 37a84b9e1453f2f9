use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::published::Published;
use super::source::Source;
use crate::files;

/// Maximum reads of the file, which may briefly differ from the configuration in force, because a
/// change is renamed into place before it is published.
const LOOKS: usize = 3;
const PAUSE: Duration = Duration::from_millis(50);

/// Maximum wait for the file, because a hung file system must not delay a status.
const PATIENCE: Duration = Duration::from_millis(300);

pub(super) async fn difference(source: &Arc<Source>, published: &Published) -> Option<String> {
    let path = source.path()?;
    // The call has a separate path, because a late call makes other calls for its path fail.
    let call = path.with_extension("status");
    let mut differs = None;
    for _ in 0..LOOKS {
        let file = path.to_owned();
        let read = files::call(&call, move |_| cairn_config::read_file(&file));
        let text = match timeout(PATIENCE, read).await {
            Err(_) => return Some(format!("{}: no answer of its disk", path.display())),
            Ok(Err(error)) => return Some(format!("{}: {error}", path.display())),
            Ok(Ok(Err(error))) => return Some(error.to_string()),
            Ok(Ok(Ok(text))) => text,
        };
        if *text == *published.facts().text {
            return None;
        }
        differs = Some(text);
        sleep(PAUSE).await;
    }
    let (text, source) = (differs?, Arc::clone(source));
    let checked = tokio::task::spawn_blocking(move || source.check(&text).err()).await;
    Some(match checked {
        Ok(Some(error)) => format!("a reload would fail: {error}"),
        _ => "the file has changed since the target read it".to_owned(),
    })
}
