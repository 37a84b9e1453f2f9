//! The lab's layers, built once and kept.
//!
//! A layer is a folder named by the hash of its recipe. It is built under a temporary name and
//! renamed when complete, so whatever bears a layer's name is whole, and two builds at a time do
//! no harm.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use super::process::Log;
use super::tree::create_dir;

/// The folder that holds the layers.
pub(crate) struct Cache {
    dir: PathBuf,
}

impl Cache {
    /// `$CAIRN_CACHE`, or the user's cache folder.
    pub(crate) fn open() -> Result<Self> {
        let user_cache = || {
            std::env::var_os("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
                .map(|dir| dir.join("cairn"))
        };
        let dir = std::env::var_os("CAIRN_CACHE")
            .map(PathBuf::from)
            .or_else(user_cache)
            .context("no place for the lab's cache: set CAIRN_CACHE or HOME")?
            .join("vm");
        create_dir(&dir)?;
        Ok(Self { dir })
    }

    /// The folder of a layer; `build` fills it the first time that its recipe is asked for.
    pub(crate) fn layer(
        &self,
        name: &str,
        recipe: &[&str],
        build: impl FnOnce(&Path, &Log) -> Result<()>,
    ) -> Result<PathBuf> {
        let dir = self
            .dir
            .join(format!("{name}-{:016x}", fingerprint(recipe)));
        if dir.exists() {
            return Ok(dir);
        }
        eprintln!("lab: building the {name} ({})", dir.display());
        let started = Instant::now();
        let partial = self.dir.join(format!(".{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&partial);
        create_dir(&partial)?;
        let built = Log::create(dir.with_extension("log"))
            .and_then(|log| build(&partial, &log))
            .with_context(|| format!("cannot build the lab's {name}"));
        if built.is_ok() && !dir.exists() {
            fs::rename(&partial, &dir).context("cannot keep the finished layer")?;
        }
        let _ = fs::remove_dir_all(&partial);
        built?;
        eprintln!(
            "lab: built the {name} in {:.0} s",
            started.elapsed().as_secs_f32()
        );
        Ok(dir)
    }
}

/// FNV-1a over the parts of a recipe: stable across compilers, which std's hashers are not.
fn fingerprint(recipe: &[&str]) -> u64 {
    let bytes = recipe.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn fingerprints_tell_recipes_apart() {
        assert_eq!(fingerprint(&["a", "b"]), fingerprint(&["a", "b"]));
        assert_ne!(fingerprint(&["ab"]), fingerprint(&["a", "b"]));
        assert_ne!(fingerprint(&["a", "b"]), fingerprint(&["b", "a"]));
    }
}
