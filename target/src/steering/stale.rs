use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::shell::shell_word;
use tokio::time::{sleep, timeout};

use super::published::Published;
use super::source::{Source, absolute};
use super::wording::first_of;
use crate::files;

/// Maximum reads of a differing file: a change replaces the file before publication.
const LOOKS: usize = 3;
const PAUSE: Duration = Duration::from_millis(50);

/// Maximum wait for the file, because a hung file system must not delay a status.
const PATIENCE: Duration = Duration::from_millis(300);

/// Configuration file that differs from the configuration in force.
#[derive(Debug)]
pub(super) struct Stale {
    pub(super) why: String,
    pub(super) remedy: String,
}

impl Stale {
    fn of(path: &Path, why: String) -> Self {
        Self {
            why,
            remedy: remedy(path, true),
        }
    }
}

/// Returns the commands that apply a changed configuration file or restore the one in force.
pub(crate) fn remedy(path: &Path, exists: bool) -> String {
    let file = shell_word(&absolute(path).to_string_lossy(), "FILE");
    let restore = format!("cairn-target config show --file {file}");
    match exists {
        true => format!(
            "apply the file: cairn-target reload; or restore the configuration in force: \
             mv {file} {file}.old && {restore}"
        ),
        false => format!("restore the configuration in force: {restore}"),
    }
}

pub(super) async fn difference(source: &Arc<Source>, published: &Published) -> Option<Stale> {
    let path = source.path()?;
    // While a timed-out call for a path still runs, `files::call` fails for that path. Another path
    // as the key keeps other uses of the file possible.
    let call = path.with_extension("status");
    let mut differs = None;
    let unread = |why: &dyn Display| Stale::of(path, format!("{}: {why}", path.display()));
    for _ in 0..LOOKS {
        let file = path.to_owned();
        let read = files::call(&call, move |_| {
            let read = cairn_config::read_file(&file);
            read.map_err(|error| (error.to_string(), !is_absent(&file)))
        });
        let text = match timeout(PATIENCE, read).await {
            Err(_) => return Some(unread(&"no answer of its disk")),
            Ok(Err(error)) => return Some(unread(&error)),
            Ok(Ok(Err((why, exists)))) => {
                let remedy = remedy(path, exists);
                return Some(Stale { why, remedy });
            }
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
    let why = match checked {
        Ok(Some(error)) => format!("a reload would fail: {}", first_of(&error.to_string())),
        _ => "the file has changed since the target read it".to_owned(),
    };
    Some(Stale::of(path, why))
}

#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
fn is_absent(path: &Path) -> bool {
    let found = path.symlink_metadata();
    found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}
