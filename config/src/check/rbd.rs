//! Checks of Ceph images: `export = "rbd:POOL/IMAGE"`.

use std::path::PathBuf;

use cairn_base::ImageSpec;
use cairn_base::image_spec::is_reserved;

use super::Check;
use crate::file::{CephTable, NamespaceTable};
use crate::key_path::KeyPath;

pub(super) const PREFIX: &str = "rbd:";
const FORM: &str = "write \"rbd:POOL/IMAGE\", \"rbd:POOL/NAMESPACE/IMAGE\", or either with \
                    @SNAPSHOT at the end";

pub(super) fn image(
    check: &mut Check<'_>,
    place: &KeyPath,
    text: &str,
    ceph: Option<&CephTable>,
) -> Option<ImageSpec> {
    let at = place.key("export");
    let (path, snapshot) = match text.split_once('@') {
        Some((path, snapshot)) => (path, Some(snapshot)),
        None => (text, None),
    };
    let parts: Vec<&str> = path.split('/').collect();
    let (pool, namespace, image) = match parts[..] {
        [pool, image] => (pool, None, image),
        [pool, namespace, image] => (pool, Some(namespace), image),
        _ => ("", None, ""),
    };
    let names = [Some(pool), namespace, Some(image), snapshot];
    let is_name = |name: &&str| !name.is_empty() && !name.contains(['\0', '@']);
    if !names.iter().flatten().all(is_name) {
        let message = format!("\"{PREFIX}{}\" names no image", text.escape_debug());
        check.wrong(&at, message).help(FORM);
        return None;
    }
    let owned = |name: Option<&str>| name.map(str::to_owned);
    let place = place.key("ceph");
    let conf = path_of(
        check,
        &place,
        "conf",
        ceph.and_then(|it| it.conf.as_deref()),
    );
    let keyring = path_of(
        check,
        &place,
        "keyring",
        ceph.and_then(|it| it.keyring.as_deref()),
    );
    let user = user(check, &place, ceph.and_then(|it| it.id.as_deref()));
    Some(ImageSpec {
        pool: pool.to_owned(),
        namespace: owned(namespace),
        image: image.to_owned(),
        snapshot: owned(snapshot),
        conf: conf?,
        user: user?,
        keyring: keyring?,
        options: options(check, &place, ceph)?,
    })
}

fn options(
    check: &mut Check<'_>,
    place: &KeyPath,
    ceph: Option<&CephTable>,
) -> Option<Vec<(String, String)>> {
    let mut options = Vec::new();
    let place = place.key("options");
    let all = ceph.and_then(|table| table.options.as_ref());
    let mut is_right = true;
    for (option, value) in all.into_iter().flatten() {
        let wrong = if is_reserved(option) {
            "is an option that the target sets itself, or that has its own key"
        } else if option.trim().is_empty() || option.contains('\0') || value.contains('\0') {
            "is not an option of Ceph's client"
        } else {
            options.push((option.clone(), value.clone()));
            continue;
        };
        let message = format!("\"{}\" {wrong}", option.escape_debug());
        check
            .wrong(&place.key(option), message)
            .help("leave it out; `ceph config help OPTION` describes the others");
        is_right = false;
    }
    is_right.then_some(options)
}

pub(super) fn is_snapshot(export: &str) -> bool {
    export.starts_with(PREFIX) && export.contains('@')
}

pub(super) fn place_of(export: &str, ceph: Option<&CephTable>) -> PathBuf {
    let conf = ceph.and_then(|ceph| ceph.conf.as_deref());
    PathBuf::from(format!("{export} of {}", conf.unwrap_or_default()))
}

pub(super) fn check_stray(check: &mut Check<'_>, place: &KeyPath, table: &NamespaceTable) {
    let export = table.export.as_deref().unwrap_or_default();
    if table.ceph.is_some() && !export.starts_with(PREFIX) {
        check
            .wrong(
                &place.key("ceph"),
                "this key applies only to images of a Ceph cluster",
            )
            .help("leave it out, or export \"rbd:POOL/IMAGE\"");
    }
}

#[expect(clippy::option_option, reason = "wrong, not given, or given")]
fn path_of(
    check: &mut Check<'_>,
    place: &KeyPath,
    key: &str,
    text: Option<&str>,
) -> Option<Option<PathBuf>> {
    match text {
        None => Some(None),
        Some(text) if text.starts_with('/') && !text.contains('\0') => {
            Some(Some(PathBuf::from(text)))
        }
        Some(text) => {
            let message = format!("\"{}\" is not an absolute path", text.escape_debug());
            check
                .wrong(&place.key(key), message)
                .help("write the absolute path of a file");
            None
        }
    }
}

#[expect(clippy::option_option, reason = "wrong, not given, or given")]
fn user(check: &mut Check<'_>, place: &KeyPath, text: Option<&str>) -> Option<Option<String>> {
    match text {
        None => Some(None),
        Some(text) if text.starts_with("client.") => {
            check
                .wrong(
                    &place.key("id"),
                    "the id of the user begins with \"client.\"",
                )
                .help(format!("write id = \"{}\"", &text["client.".len()..]));
            None
        }
        Some(text) if text.is_empty() || text.contains('\0') => {
            check
                .wrong(&place.key("id"), "not a valid id of a user")
                .help("write the name without \"client.\", or leave it out for \"admin\"");
            None
        }
        Some(text) => Some(Some(text.to_owned())),
    }
}
