//! File lists of packages, in the formats of the packaging tools.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

pub(super) struct Assets(Vec<Asset>);

struct Asset {
    from: PathBuf,
    to: PathBuf,
}

impl Assets {
    pub(super) fn of(tree: &Path) -> Result<Self> {
        let mut assets = Vec::new();
        list(tree, tree, &mut assets)?;
        Ok(Self(assets))
    }

    pub(super) fn of_deb(&self) -> String {
        let line = |asset: &Asset| {
            let (from, to) = (asset.from.display(), asset.to.display());
            format!("[\"{from}\", \"{to}\", \"{}\"],\n", asset.mode())
        };
        self.0.iter().map(line).collect()
    }

    pub(super) fn of_rpm(&self) -> String {
        let line = |asset: &Asset| {
            let (from, to, mode) = (asset.from.display(), asset.to.display(), asset.mode());
            format!("{{ source = \"{from}\", dest = \"/{to}\", mode = \"{mode}\" }},\n")
        };
        self.0.iter().map(line).collect()
    }
}

impl Asset {
    fn mode(&self) -> &'static str {
        if self.to.starts_with("usr/bin") {
            "755"
        } else {
            "644"
        }
    }
}

fn list(tree: &Path, folder: &Path, assets: &mut Vec<Asset>) -> Result<()> {
    let entries: std::io::Result<Vec<_>> = fs::read_dir(folder)?.collect();
    let mut entries = entries?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let from = entry.path();
        if from.is_dir() {
            list(tree, &from, assets)?;
        } else {
            let to = from.strip_prefix(tree)?.to_owned();
            assets.push(Asset { from, to });
        }
    }
    Ok(())
}
