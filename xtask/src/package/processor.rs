//! Processors for which packages are made.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{do_it, said};

/// Folder of Debian's packages for cross-compilation, with libraries in `lib`.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";

const CROSS_TOOLS: [&str; 2] = ["qemu-aarch64", "aarch64-linux-gnu-gcc"];
const CROSS_PACKAGES: &str = "qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Processor {
    #[value(name = "x86-64")]
    X86_64,
    Aarch64,
}

impl Processor {
    pub(super) const OWN: Self = if cfg!(target_arch = "aarch64") {
        Self::Aarch64
    } else {
        Self::X86_64
    };

    pub(super) fn is_foreign(self) -> bool {
        self != Self::OWN
    }

    /// Adds the Rust target of another processor.
    ///
    /// # Errors
    /// A tool for the processor is missing.
    pub(super) fn require_tools(self) -> Result<()> {
        if !self.is_foreign() {
            return Ok(());
        }
        ensure!(
            self == Self::Aarch64,
            "packages for x86-64 are made on x86-64: run this command there"
        );
        for tool in CROSS_TOOLS {
            let found = said(Command::new(tool).arg("--version"));
            found.with_context(|| format!("run `apt-get install {CROSS_PACKAGES}`"))?;
        }
        do_it(Command::new("rustup").args(["target", "add", self.platform()]))
    }

    /// Name in Debian and in OCI images.
    pub(super) fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Name in RPM packages.
    pub(super) fn rpm(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    pub(super) fn platform(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Aarch64 => "aarch64-unknown-linux-gnu",
        }
    }

    pub(super) fn triplet(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-linux-gnu",
            Self::Aarch64 => "aarch64-linux-gnu",
        }
    }

    pub(super) fn loader(self) -> &'static str {
        match self {
            Self::X86_64 => "ld-linux-x86-64.so.2",
            Self::Aarch64 => "ld-linux-aarch64.so.1",
        }
    }

    /// Name of the linker's program.
    pub(super) fn linker(self) -> &'static str {
        if self.is_foreign() {
            "aarch64-linux-gnu-gcc"
        } else {
            "cc"
        }
    }

    /// Command for a tool of binutils.
    pub(super) fn binutils(self, tool: &str) -> Command {
        match self.is_foreign() {
            true => Command::new(format!("{}-{tool}", self.triplet())),
            false => Command::new(tool),
        }
    }

    /// Command for a packaged program, emulated if it is for another processor.
    pub(super) fn program(self, program: &Path) -> Command {
        self.program_in(Path::new(SYSROOT), program)
    }

    /// Like [`Self::program`]; an emulated program uses the libraries below `root`.
    pub(super) fn program_in(self, root: &Path, program: &Path) -> Command {
        if !self.is_foreign() {
            return Command::new(program);
        }
        let mut emulated = Command::new("qemu-aarch64");
        emulated.arg("-L").arg(root).arg(program);
        emulated
    }

    /// Returns the shared libraries of a program: their files here, and their paths in an image.
    pub(super) fn libraries(self, program: &Path) -> Result<Vec<(PathBuf, PathBuf)>> {
        if !self.is_foreign() {
            let listed = said(Command::new("ldd").arg(program))?;
            let paths = listed
                .split_whitespace()
                .filter(|word| word.starts_with('/'));
            let paths = paths.map(|path| (path.into(), path[1..].into()));
            return Ok(paths.collect());
        }
        let folder = Path::new(SYSROOT).join("lib");
        let (mut names, mut unread) = (BTreeSet::new(), vec![program.to_owned()]);
        while let Some(file) = unread.pop() {
            let headers = said(self.binutils("objdump").arg("-p").arg(&file))?;
            let lines = headers.lines().map(str::trim);
            for needed in lines.filter_map(|line| line.strip_prefix("NEEDED")) {
                if names.insert(needed.trim().to_owned()) {
                    unread.push(folder.join(needed.trim()));
                }
            }
        }
        ensure!(!names.is_empty(), "{} needs no library", program.display());
        names.insert(self.loader().to_owned());
        let place = |name: &String| match name == self.loader() {
            true => Path::new("lib").join(name),
            false => Path::new("lib").join(self.triplet()).join(name),
        };
        let all = names.iter();
        Ok(all.map(|name| (folder.join(name), place(name))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_a_foreign_program_are_found_with_the_loader() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("main.c"), folder.path().join("main"));
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let foreign = Processor::Aarch64;
        let mut compiler = Command::new("aarch64-linux-gnu-gcc");
        let compiled = compiler.arg(&source).arg("-o").arg(&program);
        if !foreign.is_foreign() {
            return;
        }
        if let Err(missing) = cairn_skips::probe(compiled) {
            return cairn_skips::skip(format_args!("packages for aarch64: {missing}"));
        }
        let libraries = foreign.libraries(&program).unwrap();
        for place in [
            "lib/aarch64-linux-gnu/libc.so.6",
            "lib/ld-linux-aarch64.so.1",
        ] {
            let found = libraries.iter().find(|(_, to)| to == Path::new(place));
            let (from, _) = found.unwrap_or_else(|| panic!("{place} is not in {libraries:?}"));
            assert!(from.is_file(), "{}", from.display());
        }
    }
}
