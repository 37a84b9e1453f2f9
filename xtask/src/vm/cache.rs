//! Cached layers of the lab.
//!
//! A layer is a folder named by the hash of its recipe. Complete layers are renamed into place, so
//! parallel builds do not conflict.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};

use super::process::Log;
use super::tree::create_dir;
use crate::cache::{fingerprint, folder};

/// Age at which an unused layer is removed when a layer of the same name is built.
const KEEP_UNUSED: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(crate) struct Cache {
    dir: PathBuf,
}

impl Cache {
    pub(crate) fn open() -> Result<Self> {
        let dir = folder()?.join("vm");
        create_dir(&dir)?;
        Ok(Self { dir })
    }

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
            let _ = fs::File::open(&dir).and_then(|dir| dir.set_modified(SystemTime::now()));
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
        self.remove_unused(name);
        eprintln!(
            "lab: built the {name} in {:.0} s",
            started.elapsed().as_secs_f32()
        );
        Ok(dir)
    }

    fn remove_unused(&self, name: &str) {
        let Ok(layers) = fs::read_dir(&self.dir) else {
            return;
        };
        for layer in layers.flatten() {
            let same = layer
                .file_name()
                .to_string_lossy()
                .starts_with(&format!("{name}-"));
            if same && layer.path().is_dir() && !in_use(&layer) {
                let _ = fs::remove_dir_all(layer.path());
                let _ = fs::remove_file(layer.path().with_extension("log"));
            }
        }
    }
}

fn in_use(layer: &fs::DirEntry) -> bool {
    let used = layer
        .metadata()
        .and_then(|metadata| metadata.modified())
        .ok();
    used.and_then(|used| used.elapsed().ok())
        .is_none_or(|unused| unused < KEEP_UNUSED)
}
