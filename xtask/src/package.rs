//! `cargo xtask package`: .deb, .rpm, tar.gz and OCI image archive from one file tree.
//!
//! The same sources and tools produce the same bytes, because order, owner and time of files are
//! fixed. An .rpm requires cargo-generate-rpm. If Debian 11's glibc cannot be fetched, the packages
//! require this machine's glibc.

mod assets;
mod deb;
mod glibc;
mod image;
mod licences;
mod processor;
mod rpm;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use deb::Compression;
use processor::Processor;
use stage::Staged;

const GZIP: &str = "--use-compress-program=gzip -n";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder with the programs, instead of a release build
    #[arg(long, value_name = "DIR")]
    pub(crate) programs: Option<PathBuf>,
    /// Cargo profile of the programs
    #[arg(
        long,
        value_name = "PROFILE",
        default_value = "release",
        conflicts_with = "programs"
    )]
    pub(crate) profile: String,
    /// Processor of the packages [default: this machine's]
    #[arg(long)]
    pub(crate) arch: Option<Processor>,
    /// Folder for the packages
    #[arg(long, value_name = "DIR", default_value = "build/package")]
    pub(crate) out: PathBuf,
    /// Install cargo-generate-rpm into the cache if it is missing
    #[arg(long)]
    pub(crate) install_tools: bool,
    /// Make only the .deb of target and host, compressed by gzip
    #[arg(long)]
    pub(crate) deb_only: bool,
    /// Suffix of the version, such as ~rc1 or +local1
    #[arg(long, value_name = "SUFFIX", default_value = "")]
    pub(crate) version_suffix: String,
}

struct About {
    version: String,
    processor: Processor,
    time: String,
    glibc: String,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let processor = args.arch.unwrap_or(Processor::OWN);
    processor.require_tools()?;
    let programs = match &args.programs {
        Some(folder) => folder.clone(),
        None => glibc::build(processor, &args.profile)?,
    };
    if args.out.exists() {
        fs::remove_dir_all(&args.out).context("cannot empty the folder of packages")?;
    }
    fs::create_dir_all(&args.out)?;
    let out = fs::canonicalize(&args.out)?;
    let staged = Staged::make(processor, &programs, &out.join("tree"))?;
    let about = About {
        version: env!("CARGO_PKG_VERSION").to_owned() + &args.version_suffix,
        processor,
        time: said(Command::new("git").args(["log", "-1", "--format=%ct"]))?,
        glibc: stage::oldest_glibc(processor, &staged)?,
    };
    if args.deb_only {
        let file = deb::write(&staged.main, &deb::MAIN, &about, &out, Compression::Gzip)?;
        println!("{}", file.display());
        return Ok(ExitCode::SUCCESS);
    }
    for file in [
        deb::write(&staged.main, &deb::MAIN, &about, &out, Compression::Xz)?,
        deb::write(&staged.debug, &deb::DEBUG, &about, &out, Compression::Xz)?,
        tarball(&staged.main, &about, &out)?,
        image::write(&staged, &about, &out)?,
    ] {
        println!("{}", file.display());
    }
    if processor.is_foreign() {
        try_image(processor, &out.join("tree/image"))?;
    }
    if let Some(engine) = &staged.engine {
        println!(
            "{}",
            deb::write(engine, &deb::ENGINE, &about, &out, Compression::Xz)?.display()
        );
    }
    match rpm::write(&staged.main, &about, &out, args.install_tools)? {
        Some(file) => println!("{}", file.display()),
        None => println!("no .rpm: run `cargo install cargo-generate-rpm`, or add --install-tools"),
    }
    println!("the programs run on glibc {} and later", about.glibc);
    Ok(ExitCode::SUCCESS)
}

/// Runs the image's programs with the image's libraries.
fn try_image(processor: Processor, root: &Path) -> Result<()> {
    for name in stage::PROGRAMS {
        let program = root.join("usr/bin").join(name);
        let version = said(processor.program_in(root, &program).arg("--version"))?;
        ensure!(
            version.starts_with(name),
            "{name} --version says {version:?}"
        );
    }
    Ok(())
}

fn tarball(tree: &Path, about: &About, out: &Path) -> Result<PathBuf> {
    let name = format!("cairn-{}-{}", about.version, about.processor.debian());
    let file = out.join(format!("{name}.tar.gz"));
    let rename = format!("--transform=s,^\\./,{name}/,");
    do_it(tar(tree, &file, about).args([GZIP, &rename, "."]))?;
    Ok(file)
}

fn tar(tree: &Path, file: &Path, about: &About) -> Command {
    let mut tar = Command::new("tar");
    tar.arg("--create")
        .arg("--file")
        .arg(file)
        .arg("--directory")
        .arg(tree);
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{}", about.time));
    tar
}

fn do_it(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
