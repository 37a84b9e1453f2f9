use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use cairn_config::{Backing, ControlSettings, Nqn};
use cairn_disk::{AdmittedPath, Backend, Claim, Formers, FoundPath, OpenError, disks_max};
use tokio::sync::mpsc::UnboundedSender;

use super::super::error::StartError;
use crate::own_files::OwnFiles;
use cairn_data_path::namespace;
use cairn_data_path::registry::ControlMessage;

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

/// Checks a disk or directory against `[control] exports`.
///
/// Requests at the control socket can name only listed paths. Each opening also checks the resolved
/// object, because links can change. The configuration file may export any path.
///
/// # Errors
/// The path is listed, but leads to an unlisted object.
fn admit(control: &ControlSettings, found: FoundPath) -> Result<AdmittedPath, OpenError> {
    found.admit(|found| match &control.exports {
        Some(exports) if exports.name_path(found.path()) => {
            Ok(exports.allow_path(found.path(), &found.location()?))
        }
        _ => Ok(true),
    })
}

#[derive(Clone)]
pub(crate) struct DiskRules {
    control: Arc<ControlSettings>,
    own: OwnFiles,
}

impl DiskRules {
    pub(crate) fn of(config: &cairn_config::Config) -> Self {
        Self {
            control: Arc::new(config.control.clone()),
            own: OwnFiles::of(config),
        }
    }

    fn find(&self, path: &Path) -> Result<AdmittedPath, OpenError> {
        let found = FoundPath::find(path).map_err(|error| OpenError::lookup(path, &error))?;
        if let Some(role) = self.own.role(&found) {
            return Err(OpenError::new(format!(
                "the target does not export {}, {role}: name another file or device",
                path.display()
            )));
        }
        admit(&self.control, found)
    }

    pub(crate) fn admit_folder(&self, found: FoundPath) -> Result<AdmittedPath, OpenError> {
        if self.own.is_state(&found) {
            return Err(OpenError::new(format!(
                "the target does not export {}, its state_directory: name another directory",
                found.path().display()
            )));
        }
        admit(&self.control, found)
    }

    pub(crate) fn own(&self) -> &OwnFiles {
        &self.own
    }
}

fn claim_of(config: &cairn_config::Namespace) -> Claim {
    Claim {
        read_only: config.read_only,
        shared: config.shared,
        expected: config.pooled.map(|file| (file.id.device, file.id.inode)),
        trial_until: None,
    }
}

/// Opens a namespace's disk like a running target, but writes nothing. Retries a disk in use until
/// `until`. `None` for Ceph images and null disks.
pub(crate) fn try_backend(
    rules: &DiskRules,
    config: &cairn_config::Namespace,
    until: Instant,
) -> Result<Option<Backend>, OpenError> {
    let block_bytes = config.block_size.map(cairn_config::BlockSize::bytes);
    let claim = Claim {
        trial_until: Some(until),
        ..claim_of(config)
    };
    match &config.backing {
        Backing::Disk(path) => {
            let disk = rules.find(path)?;
            Backend::open(&disk, block_bytes, claim, &Formers::default()).map(Some)
        }
        Backing::Memory { bytes } => Backend::memory(*bytes, block_bytes).map(Some),
        Backing::Rbd(_) | Backing::Null { .. } => Ok(None),
    }
}

/// Compares a disk with the size and the reservations that `folder` has for it. Writes nothing.
pub(crate) fn check_stored(
    folder: &Path,
    nqn: Nqn,
    config: &cairn_config::Namespace,
    disk: Backend,
) -> Result<(), OpenError> {
    namespace::check_stored(config, disk, describe(&config.backing), (folder, nqn))
}

pub(super) fn open_backend(
    (rules, config): (&DiskRules, &cairn_config::Namespace),
    transfer_bytes: u32,
    messages: UnboundedSender<ControlMessage>,
    formers: &Formers,
) -> Result<Backend, OpenError> {
    let block_bytes = config.block_size.map(cairn_config::BlockSize::bytes);
    let claim = claim_of(config);
    match &config.backing {
        Backing::Disk(path) => {
            let disk = rules.find(path)?;
            Backend::open(&disk, block_bytes, claim, formers)
        }
        Backing::Rbd(image) => {
            let on_change = Arc::new(move || {
                let _ = messages.send(ControlMessage::DiskChanged);
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
