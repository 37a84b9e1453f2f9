use std::process::Command;

pub(crate) fn require() -> Result<(), String> {
    if version().is_ok() {
        return Ok(());
    }
    rustup(["toolchain", "install", "nightly", "--profile", "minimal"])?;
    version()
}

pub(crate) fn require_components(components: &[&str]) -> Result<(), String> {
    require()?;
    let mut components = components.iter();
    components
        .try_for_each(|component| rustup(["component", "add", "--toolchain", "nightly", component]))
}

fn version() -> Result<(), String> {
    rustup(["run", "nightly", "rustc", "--version"])
}

fn rustup<const N: usize>(arguments: [&str; N]) -> Result<(), String> {
    cairn_skips::probe(Command::new("rustup").args(arguments)).map(drop)
}
