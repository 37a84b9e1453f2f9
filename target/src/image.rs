//! Images of a Ceph cluster, as the configuration names them.

use cairn_config::RbdImage;
use cairn_disk::ImageSpec;

/// Which image to open.
pub(crate) fn spec(config: &RbdImage) -> ImageSpec {
    ImageSpec {
        pool: config.pool.clone(),
        namespace: config.namespace.clone(),
        image: config.image.clone(),
        snapshot: config.snapshot.clone(),
        conf: config.conf.clone(),
        user: config.user.clone(),
        keyring: config.keyring.clone(),
    }
}

/// What an export of this image is called.
pub(crate) fn name_of(config: &RbdImage) -> String {
    spec(config).to_string()
}
