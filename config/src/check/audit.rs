use std::path::{Path, PathBuf};

use super::Check;
use crate::config::Audit;
use crate::file::AuditTable;
use crate::key_path::KeyPath;

/// Maximum length of a socket path in bytes (`sun_path`, unix(7)).
const SOCKET_PATH_MAX: usize = 107;

pub(super) fn check(check: &mut Check<'_>, place: &KeyPath, table: &AuditTable) -> Audit {
    let file = path(check, &place.key("file"), table.file.as_deref());
    let place = place.key("datagram");
    let datagram = path(check, &place, table.datagram.as_deref());
    if let Some(path) = &datagram
        && path.as_os_str().len() > SOCKET_PATH_MAX
    {
        let bytes = path.as_os_str().len();
        check
            .wrong(&place, format!("the path has {bytes} bytes"))
            .help(format!(
                "the path of a socket has at most {SOCKET_PATH_MAX} bytes"
            ));
    }
    Audit {
        file,
        journal: table.journal.unwrap_or(false),
        datagram,
    }
}

fn path(check: &mut Check<'_>, place: &KeyPath, text: Option<&str>) -> Option<PathBuf> {
    let text = text?;
    let path = Path::new(text);
    if !path.is_absolute() || path.file_name().is_none() || text.contains('\0') {
        let message = format!("\"{}\" is not an absolute path", text.escape_debug());
        check
            .wrong(place, message)
            .help("write a path such as /var/log/cairn/audit.json");
        return None;
    }
    Some(path.to_owned())
}
