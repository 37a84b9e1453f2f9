use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};

use super::arch::Arch;
use super::cross;
use super::process;
use super::scenario::{Profile, Program};
use crate::package;

pub(crate) struct Tree {
    workspace: PathBuf,
    build: PathBuf,
}

impl Tree {
    pub(crate) fn locate() -> Result<Self> {
        let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let workspace = xtask
            .parent()
            .context("xtask lies in no workspace")?
            .to_path_buf();
        let build = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| workspace.join("build"), |dir| workspace.join(dir));
        Ok(Self { workspace, build })
    }

    pub(crate) fn workspace(&self) -> &Path {
        &self.workspace
    }

    pub(crate) fn build(&self) -> &Path {
        &self.build
    }

    pub(crate) fn vm_tests(&self) -> PathBuf {
        self.workspace.join("tests/vm")
    }

    pub(crate) fn scenarios(&self) -> PathBuf {
        self.vm_tests().join("scenarios")
    }

    pub(crate) fn programs(&self) -> PathBuf {
        self.build.join("vm/.programs")
    }

    /// Locks the folder of programs until the returned file is closed. Each run of scenarios
    /// replaces the folder. Blocks during another run.
    pub(crate) fn lock_programs(&self) -> Result<File> {
        let folder = self.build.join("vm");
        create_dir(&folder)?;
        let path = folder.join(".lock");
        let file =
            File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            println!("waiting for another run in {}", folder.display());
            flock(&file, FlockOperation::LockExclusive)
                .with_context(|| format!("cannot lock {}", path.display()))?;
        }
        Ok(file)
    }

    fn built(&self, profile: Profile, arch: Arch) -> PathBuf {
        let built = if arch.is_foreign() {
            cross::built(&self.workspace)
        } else {
            self.build.clone()
        };
        built.join(profile.folder())
    }

    pub(crate) fn make_packages(&self, profile: Profile, out: &Path) -> Result<()> {
        std::env::set_current_dir(&self.workspace).context("cannot enter the workspace")?;
        for (folder, version_suffix) in [("first", ""), ("second", "+second")] {
            package::run(&package::Args {
                programs: Some(self.built(profile, Arch::X86_64)),
                out: out.join(folder),
                profile: "dev".to_owned(),
                arch: None,
                deb_only: true,
                install_tools: false,
                version_suffix: version_suffix.to_owned(),
            })?;
        }
        Ok(())
    }

    pub(crate) fn times(&self) -> PathBuf {
        self.build.join("xtask-times.json")
    }

    pub(crate) fn skips(&self) -> Result<PathBuf> {
        create_dir(&self.build)?;
        let build = fs::canonicalize(&self.build).context("cannot find cargo's output folder")?;
        Ok(build.join("xtask-skips.txt"))
    }

    pub(crate) fn fresh_out_dir(&self, scenario: &str) -> Result<PathBuf> {
        let dir = self.build.join("vm").join(scenario);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
        }
        create_dir(&dir)?;
        Ok(dir)
    }

    pub(crate) fn stage_programs(
        &self,
        programs: &BTreeSet<&Program>,
        profile: Profile,
        arch: Arch,
        no_build: bool,
    ) -> Result<()> {
        let _ = fs::remove_dir_all(self.programs());
        create_dir(&self.programs())?;
        if programs.is_empty() {
            return Ok(());
        }
        if arch.is_foreign() && !no_build {
            cross::require_compiler()?;
        }
        let is_tests = |program: &&Program| matches!(program, Program::Tests(_));
        let (tests, others) = programs.iter().copied().partition(is_tests);
        self.stage_tests(&tests, arch)?;
        self.stage_others(&others, profile, arch, no_build)
    }

    fn stage_tests(&self, tests: &BTreeSet<&Program>, arch: Arch) -> Result<()> {
        if tests.is_empty() {
            return Ok(());
        }
        let mut cargo = self.cargo(arch);
        cargo.args(["test", "--quiet", "--no-run", "--lib"]);
        if arch.is_foreign() {
            for program in tests {
                if let Program::Tests(package) = program {
                    cargo.args(["-p", package]);
                }
            }
        } else {
            // Features are those of the other tests, so little is compiled again.
            cargo.arg("--workspace");
        }
        let messages = process::output(cargo.arg("--message-format=json"))?;
        for program in tests {
            let Program::Tests(package) = program else {
                continue;
            };
            let built = test_program(&messages, package)
                .with_context(|| format!("cargo built no tests of {package}"))?;
            fs::copy(&built, self.programs().join(program.name()))
                .with_context(|| format!("cannot copy {built}"))?;
        }
        Ok(())
    }

    fn stage_others(
        &self,
        programs: &BTreeSet<&Program>,
        profile: Profile,
        arch: Arch,
        no_build: bool,
    ) -> Result<()> {
        if programs.is_empty() {
            return Ok(());
        }
        if !no_build {
            let mut cargo = self.cargo(arch);
            cargo.args(["build", "--quiet"]).args(profile.arguments());
            for program in programs {
                let kind = match program {
                    Program::Example(_) => "--example",
                    Program::Binary(_) | Program::Tests(_) => "--bin",
                };
                cargo.arg(kind).arg(program.name());
            }
            let status = cargo.status().context("cannot run cargo")?;
            ensure!(status.success(), "cargo build of {programs:?} failed");
        }
        for program in programs {
            let folder = match program {
                Program::Example(_) => "examples",
                Program::Binary(_) | Program::Tests(_) => "",
            };
            let name = program.name();
            let built = self.built(profile, arch).join(folder).join(&name);
            fs::copy(&built, self.programs().join(name)).with_context(|| {
                format!(
                    "no program at {}: build it, or leave out --no-build",
                    built.display()
                )
            })?;
        }
        Ok(())
    }

    fn cargo(&self, arch: Arch) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.current_dir(&self.workspace);
        if arch.is_foreign() {
            cargo.envs(cross::ENVIRONMENT);
        }
        cargo
    }
}

fn test_program(messages: &str, package: &str) -> Option<String> {
    let library = package.replace('-', "_");
    messages.lines().find_map(|message| {
        let message: serde_json::Value = serde_json::from_str(message).ok()?;
        let is_it = message["target"]["name"] == *library;
        message["executable"]
            .as_str()
            .filter(|_| is_it)
            .map(str::to_owned)
    })
}

pub(crate) fn create_dir(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {}", dir.display()))
}
