//! Conversion of configurations from and to other targets. A note names each setting that has no
//! counterpart and is left out.

#![expect(clippy::disallowed_methods, reason = "a command for one file")]

mod fields;
mod notes;
mod nvmet;
mod nvmet_saved;
mod spdk;
mod spdk_saved;
mod spdk_transport;

pub use nvmet::from_nvmet;
pub use nvmet_saved::to_nvmet;
pub use spdk::from_spdk;
pub use spdk_saved::to_spdk;

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use cairn_config::Draft;

use notes::Notes;

const NO_RDMA: &str = "no listener is left, because none is RDMA: write a [[listener]] with the address that hosts use";

const ELSEWHERE: &str = "its address has an interface of one machine, and hosts are on others";

/// Default of `in_capsule_data`, of nvmet's `inline_data_size` and of SPDK's
/// `in_capsule_data_size`, in bytes.
const IN_CAPSULE_DEFAULT: u32 = 4 << 10;

/// Maximum of `in_capsule_data`, in bytes.
const IN_CAPSULE_MAX: u32 = 16 << 10;

const IN_CAPSULE_UNIT: u32 = 512;

/// Returns the largest valid `in_capsule_data` up to a size in bytes.
fn in_capsule_data(bytes: u32) -> u32 {
    bytes.min(IN_CAPSULE_MAX) / IN_CAPSULE_UNIT * IN_CAPSULE_UNIT
}

fn set_in_capsule_data(draft: &mut Draft, bytes: u32) {
    if bytes != IN_CAPSULE_DEFAULT {
        draft.set_in_capsule_data(bytes);
    }
}

#[derive(Debug)]
pub struct Converted {
    pub text: String,
    pub notes: Vec<String>,
    /// Notes about restrictions of access that the result lacks.
    pub opens: Vec<String>,
    /// True if the result lacks an object, such as a namespace.
    pub is_partial: bool,
}

fn is_device(path: &Path) -> bool {
    match std::fs::metadata(path).map(|there| there.file_type()) {
        Ok(kind) => kind.is_block_device() || kind.is_char_device(),
        Err(_) => {
            let files = ["/dev/shm", "/dev/mqueue", "/dev/hugepages"];
            path.starts_with("/dev") && !files.iter().any(|folder| path.starts_with(folder))
        }
    }
}
