//! Replacement of a namespace by a reload: same NSID, other disk or settings.
//!
//! The new disk opens while the old disk is in use, and takes over the lock if both are one file.
//! Then the namespaces are exchanged. Connected hosts access the new disk only after they have
//! noticed the removal, because their earlier writes are for the old disk.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use cairn_config::{Backing, Config};
use nvme_proto::wire::feature::WriteProtectionState;

use super::super::error::ReloadError;
use super::super::lookup::at_place;
use crate::health::Place;
use cairn_data_path::namespace::Namespace;
use cairn_data_path::reservations::Reserving;

pub(crate) type Replaced = HashSet<Place>;

pub(crate) type Former = HashMap<Place, FormerNamespace>;

pub(crate) struct FormerNamespace {
    pub(super) seen: nvme_proto::namespace::Namespace,
    pub(super) file: Option<PathBuf>,
    pub(super) reserving: Arc<Reserving>,
}

impl FormerNamespace {
    pub(super) fn hand_on(&self, config: &cairn_config::Namespace, new: &Namespace) {
        if new.uuid.into_bytes() != self.seen.uuid {
            new.withhold();
            return;
        }
        new.stays_reserved(&self.reserving);
        // A host may have changed the protection after `new` read the file.
        let is_kept = file_of(new) == self.file;
        let state = self.seen.protection;
        if config.write_protection && (is_kept || state != WriteProtectionState::NONE) {
            new.stays_protected(state);
        }
    }
}

pub(super) fn file_of(namespace: &Namespace) -> Option<PathBuf> {
    let file = namespace.protection_file.as_ref();
    file.map(|file| file.path().to_owned())
}

/// Refuses changed settings of an open Ceph image, unless it is read-only or shared before and
/// after the change. The new namespace would open the image again, but only one client can hold the
/// lock.
pub(crate) fn check_images(
    old: &Config,
    new: &Config,
    replaced: &Replaced,
) -> Result<(), ReloadError> {
    let is_alone = |one: &cairn_config::Namespace| !one.read_only && !one.shared;
    for place @ (nqn, nsid) in replaced {
        let (Some((_, before)), Some((_, now))) = (at_place(old, place), at_place(new, place))
        else {
            continue;
        };
        let Backing::Rbd(image) = &now.backing else {
            continue;
        };
        if before.backing == now.backing && (is_alone(before) || is_alone(now)) {
            return Err(ReloadError::ImageChanged {
                image: image.to_string(),
                nqn: nqn.to_string(),
                nsid: *nsid,
            });
        }
    }
    Ok(())
}

pub(super) fn is_same_disk(
    before: &cairn_config::Namespace,
    now: &cairn_config::Namespace,
) -> bool {
    // A renamed or resized pool file is the same disk.
    let file = |one: &cairn_config::Namespace| one.pooled.map(|file| file.id);
    let is_same_file = file(before).is_some() && file(before) == file(now);
    let stays = if is_same_file { now } else { before };
    let moved = cairn_config::Namespace {
        backing: match (&stays.backing, &now.backing) {
            (Backing::Null { .. }, Backing::Null { bytes }) => Backing::Null { bytes: *bytes },
            (before, _) => before.clone(),
        },
        pooled: stays.pooled,
        ana_group: now.ana_group,
        name: now.name.clone(),
        hosts: now.hosts.clone(),
        write_protection: now.write_protection,
        limits: now.limits,
        ..before.clone()
    };
    moved == *now
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::{Flags, Nqn};

    const NQN: &str = "nqn.2026-01.org.example:images";

    fn config(exports: &[&str]) -> Config {
        let mut text = "[[listener]]\naddress = \"192.0.2.1\"\n".to_owned();
        text += &format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n");
        for (export, nsid) in exports.iter().zip(1..) {
            text += &format!("[[subsystem.namespace]]\nnsid = {nsid}\nexport = {export}\n");
        }
        Config::parse("test", &text, &Flags::default()).unwrap()
    }

    #[test]
    fn an_image_does_not_take_its_own_place() {
        let place = (Nqn::parse(NQN).unwrap(), 1);
        let check = |before: &str, now: &str| {
            check_images(&config(&[before]), &config(&[now]), &HashSet::from([place]))
        };
        let refused = check("\"rbd:pool/a\"", "\"rbd:pool/a\"\nread_only = true").unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("pool/a") && refused.contains("remove"),
            "{refused}"
        );
        check("\"rbd:pool/a\"", "\"rbd:pool/b\"").unwrap();
        check("\"rbd:pool/a\"", "\"mem:1MiB\"").unwrap();
        let [shared, other] =
            ["", "block_size = 4096"].map(|more| format!("\"rbd:pool/a\"\nshared = true\n{more}"));
        check(&shared, &other).unwrap();
    }

    #[test]
    fn what_can_change_in_place_does() {
        let of = |export: &str| config(&[export]).subsystems[0].namespaces[0].clone();
        for (before, now, stays) in [
            ("\"null:1MiB\"", "\"null:2MiB\"", true),
            ("\"null:1MiB\"", "\"null:1MiB\"\nname = \"b\"", true),
            (
                "\"mem:1MiB\"",
                "\"mem:1MiB\"\nlimits = { iops = 100 }",
                true,
            ),
            ("\"mem:1MiB\"", "\"mem:2MiB\"", false),
            ("\"null:1MiB\"", "\"mem:1MiB\"", false),
            ("\"/a\"", "\"/b\"", false),
            ("\"/a\"", "\"/a\"\nread_only = true", false),
            ("\"/a\"", "\"/a\"\nblock_size = 4096", false),
        ] {
            assert_eq!(is_same_disk(&of(before), &of(now)), stays, "{before} {now}");
        }
    }
}
