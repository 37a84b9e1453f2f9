use std::path::{Path, PathBuf};

use super::Check;
use crate::config::{ControlSettings, ControlSocket};
use crate::exports::{EXPORTS_MAX, Exports};
use crate::file::ControlTable;
use crate::key_path::KeyPath;

const OFF: &str = "off";
/// Maximum length of the socket path in bytes. The target first binds the path plus `.new/socket`,
/// which must fit in `sun_path` (unix(7)).
const PATH_MAX: usize = 107 - ".new/socket".len();

pub(super) fn check(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &ControlTable,
) -> ControlSettings {
    let socket = match table.socket.as_deref() {
        None => ControlSocket::Usual,
        Some(OFF) => ControlSocket::Off,
        Some(text) => socket(check, &place.key("socket"), text),
    };
    if table.group.as_deref().is_some_and(str::is_empty) {
        check
            .wrong(&place.key("group"), "the name of the group is empty")
            .help("write a group of /etc/group, or leave it out");
    }
    let place = place.key("exports");
    let exports = table.exports.as_ref().map(|patterns| {
        check.count(&place, patterns.len(), EXPORTS_MAX);
        for (index, pattern) in patterns.iter().enumerate() {
            if let Err(why) = Exports::check(pattern) {
                let message = format!("\"{}\": {why}", pattern.escape_debug());
                check.wrong(&place.index(index), message).help(
                    "write a folder such as \"/srv/images\", a pattern such as \"/dev/vg0/*\", or images \
                     such as \"rbd:pool/*\"",
                );
            }
        }
        Exports::new(patterns.clone())
    });
    ControlSettings {
        exports,
        socket,
        group: table.group.clone(),
        read_only: table.read_only.unwrap_or(false),
    }
}

fn socket(check: &mut Check<'_>, place: &KeyPath, text: &str) -> ControlSocket {
    let path = Path::new(text);
    if !path.is_absolute() || path.file_name().is_none() || text.contains('\0') {
        let message = format!("\"{}\" is not an absolute path", text.escape_debug());
        check
            .wrong(place, message)
            .help("write a path such as /run/cairn/target.sock, or \"off\" for no socket");
        return ControlSocket::Usual;
    }
    if text.len() > PATH_MAX {
        check
            .wrong(place, format!("the path has {} bytes", text.len()))
            .help(format!("the path of a socket has at most {PATH_MAX} bytes"));
    }
    ControlSocket::At(PathBuf::from(text))
}
