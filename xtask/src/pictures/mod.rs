//! `cargo xtask pictures`: SVG pictures for the documentation.

mod canvas;
mod crates;
mod figures;
mod house;
mod sequence;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::results::Results;

const RESULTS: &str = "docs/performance/results.json";
const FOLDER: &str = "docs/pictures";

fn draw(workspace: &Path) -> Result<Vec<(&'static str, String)>> {
    let results = Results::load(&workspace.join(RESULTS))?;
    Ok(vec![
        ("house.svg", house::draw()),
        ("crates.svg", crates::draw()),
        ("read.svg", sequence::read()),
        ("write.svg", sequence::write()),
        ("figures.svg", figures::draw(&results)),
    ])
}

pub(crate) fn run() -> Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = workspace.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, svg) in draw(&workspace)? {
        let file = folder.join(name);
        fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))?;
        println!("{FOLDER}/{name}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_pictures_are_what_the_chore_draws() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (name, svg) in draw(&workspace).unwrap() {
            let committed = fs::read_to_string(workspace.join(FOLDER).join(name));
            assert!(
                committed.is_ok_and(|committed| committed == svg),
                "{FOLDER}/{name} is out of date: run `cargo xtask pictures` and commit it"
            );
        }
    }
}
