//! Opens the disks of namespaces.

use std::sync::Arc;
use std::time::Instant;

use cairn_config::Backing;
use cairn_disk::{Backend, Claim, Formers, OpenError, disks_max};
use tokio::sync::mpsc::UnboundedSender;

use super::super::error::StartError;
use crate::registry::ControlMessage;

/// Refuses more disks than fit in a reactor's ring or than the process may open.
pub(crate) fn check_count(config: &cairn_config::Config) -> Result<(), StartError> {
    let namespaces = config.subsystems.iter().flat_map(|s| &s.namespaces);
    let is_disk =
        |namespace: &&cairn_config::Namespace| matches!(namespace.backing, Backing::Disk(_));
    let (disks, most) = (namespaces.filter(is_disk).count(), disks_max());
    if disks > most {
        return Err(StartError::TooManyDisks { disks, most });
    }
    Ok(())
}

fn claim_of(config: &cairn_config::Namespace) -> Claim {
    Claim {
        read_only: config.read_only,
        shared: config.shared,
        expected: config.pooled.map(|file| (file.id.device, file.id.inode)),
        trial_until: None,
    }
}

/// Opens the disk of a namespace as a running target does, but writes nothing. Does not open Ceph images. Retries a
/// disk in use until `until`.
///
/// # Errors
/// Same as for a target that opens the disk.
pub(crate) fn try_backend(
    config: &cairn_config::Namespace,
    until: Instant,
) -> Result<Option<Backend>, OpenError> {
    let block_bytes = config.block_size.map(cairn_config::BlockSize::bytes);
    let claim = Claim {
        trial_until: Some(until),
        ..claim_of(config)
    };
    match &config.backing {
        Backing::Disk(path) => Backend::open_file(path, block_bytes, claim).map(Some),
        Backing::Memory { bytes } => Backend::memory(*bytes, block_bytes).map(Some),
        Backing::Rbd(_) | Backing::Null { .. } => Ok(None),
    }
}

pub(super) fn open_backend(
    config: &cairn_config::Namespace,
    transfer_bytes: u32,
    control: UnboundedSender<ControlMessage>,
    formers: &Formers,
) -> Result<Backend, OpenError> {
    let block_bytes = config.block_size.map(cairn_config::BlockSize::bytes);
    let claim = claim_of(config);
    match &config.backing {
        Backing::Disk(path) => Backend::open_after(path, block_bytes, claim, formers),
        Backing::Rbd(image) => {
            let on_change = Arc::new(move || {
                // The send fails only if the control plane has ended.
                let _ = control.send(ControlMessage::DiskChanged);
            });
            Backend::open_image(image, block_bytes, claim, on_change)
        }
        Backing::Memory { bytes } => Backend::memory(*bytes, block_bytes),
        Backing::Null { bytes } => Backend::null(*bytes, block_bytes, transfer_bytes),
    }
}

pub(super) fn describe(backing: &Backing) -> String {
    match backing {
        Backing::Disk(path) => path.display().to_string(),
        Backing::Rbd(image) => image.to_string(),
        Backing::Memory { .. } => "memory".to_owned(),
        Backing::Null { .. } => "null".to_owned(),
    }
}
