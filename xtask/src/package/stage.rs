use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::processor::Processor;
use super::{do_it, licences, said};

pub(super) const PROGRAMS: [&str; 2] = ["cairn-target", "cairn-initiator"];

const DOC: &str = "usr/share/doc/cairn";

pub(super) struct Staged {
    pub(super) main: PathBuf,
    pub(super) debug: PathBuf,
    pub(super) engine: Option<PathBuf>,
}

impl Staged {
    pub(super) fn make(processor: Processor, programs: &Path, root: &Path) -> Result<Self> {
        let (main, debug) = (root.join("main"), root.join("debug"));
        for name in PROGRAMS {
            strip(processor, &programs.join(name), &main, "usr/bin", &debug)?;
            describe(processor, &programs.join(name), name, &main)?;
        }
        for (from, to) in [
            (
                "packaging/cairn-target.service",
                "usr/lib/systemd/system/cairn-target.service",
            ),
            ("packaging/roce-v1.conf", &format!("{DOC}/roce-v1.conf")),
            (
                "packaging/nvme-drives.conf",
                &format!("{DOC}/nvme-drives.conf"),
            ),
            (
                "config/examples/minimal.toml",
                &format!("{DOC}/examples/minimal.toml"),
            ),
            (
                "config/examples/two-hosts.toml",
                &format!("{DOC}/examples/two-hosts.toml"),
            ),
            (
                "config/examples/everything.toml",
                &format!("{DOC}/examples/everything.toml"),
            ),
            (
                "docs/grafana/cairn-target.json",
                &format!("{DOC}/grafana/cairn-target.json"),
            ),
            ("docs/guide-target.md", &format!("{DOC}/guide-target.md")),
            (
                "docs/guide-initiator.md",
                &format!("{DOC}/guide-initiator.md"),
            ),
            ("CHANGELOG.md", &format!("{DOC}/CHANGELOG.md")),
        ] {
            copy(Path::new(from), &main.join(to))?;
        }
        for (from, to) in [
            ("packaging/prometheus", "prometheus"),
            ("docs/operations", "operations"),
            ("docs/roce", "roce"),
            ("doctor/tests/recordings", "recordings"),
        ] {
            for entry in fs::read_dir(from)? {
                let from = entry?.path();
                if from.is_file() {
                    let name = from.file_name().context("a file has a name")?;
                    copy(&from, &main.join(DOC).join(to).join(name))?;
                }
            }
        }
        put(&main.join(DOC).join("copyright"), &licences::all()?)?;
        let library = programs.join("libcairn_fio.so");
        let engine = library.is_file().then(|| root.join("engine"));
        if let Some(engine) = &engine {
            strip(processor, &library, engine, "usr/lib/cairn", &debug)?;
            put(
                &engine.join("usr/share/doc/cairn-fio/copyright"),
                &licences::engine(),
            )?;
        }
        Ok(Self {
            main,
            debug,
            engine,
        })
    }
}

pub(super) fn oldest_glibc(processor: Processor, staged: &Staged) -> Result<String> {
    let mut newest = vec![2, 17];
    for name in PROGRAMS {
        let program = staged.main.join("usr/bin").join(name);
        let symbols = said(processor.binutils("objdump").arg("-T").arg(program))?;
        for version in symbols.split("GLIBC_").skip(1) {
            let end = version.find(|c: char| c != '.' && !c.is_ascii_digit());
            let numbers = version[..end.unwrap_or(version.len())].split('.');
            let numbers: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
            newest = newest.max(numbers);
        }
    }
    let numbers: Vec<String> = newest.iter().map(ToString::to_string).collect();
    Ok(numbers.join("."))
}

fn describe(processor: Processor, program: &Path, name: &str, tree: &Path) -> Result<()> {
    let pages = tree.join("usr/share/man/man1");
    fs::create_dir_all(&pages)?;
    do_it(processor.program(program).arg("manual").arg(&pages))?;
    for entry in fs::read_dir(&pages)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "1") {
            do_it(Command::new("gzip").args(["-9", "-n"]).arg(path))?;
        }
    }
    for (shell, folder, file) in [
        (
            "bash",
            "usr/share/bash-completion/completions",
            name.to_owned(),
        ),
        (
            "zsh",
            "usr/share/zsh/vendor-completions",
            format!("_{name}"),
        ),
        (
            "fish",
            "usr/share/fish/vendor_completions.d",
            format!("{name}.fish"),
        ),
    ] {
        let text = said(processor.program(program).args(["completions", shell]))?;
        put(&tree.join(folder).join(file), &(text + "\n"))?;
    }
    Ok(())
}

fn strip(processor: Processor, from: &Path, tree: &Path, folder: &str, debug: &Path) -> Result<()> {
    let name = from.file_name().context("a program has a name")?;
    let to = &tree.join(folder).join(name);
    copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    let mut name = name.to_owned();
    name.push(".debug");
    let symbols = debug.join("usr/lib/debug").join(folder).join(name);
    fs::create_dir_all(symbols.parent().context("a file is in a folder")?)?;
    let objcopy = || processor.binutils("objcopy");
    do_it(objcopy().arg("--only-keep-debug").arg(from).arg(&symbols))?;
    fs::set_permissions(&symbols, fs::Permissions::from_mode(0o644))?;
    let link = format!("--add-gnu-debuglink={}", symbols.display());
    do_it(objcopy().args(["--strip-unneeded", &link]).arg(to))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o644))?;
    Ok(())
}

fn put(to: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o644))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gdb_finds_debug_symbols_in_a_folder_of_the_programs_name() {
        if let Err(missing) = cairn_skips::version(&mut Command::new("objcopy"), "binutils") {
            return cairn_skips::skip(format_args!("packages: {missing}"));
        }
        let root = tempfile::tempdir().unwrap();
        let (tree, debug) = (root.path().join("main"), root.path().join("debug"));
        let own = std::env::current_exe().unwrap();
        let name = own.file_name().unwrap().to_str().unwrap();
        strip(Processor::OWN, &own, &tree, "usr/lib/cairn", &debug).unwrap();
        let stripped = fs::metadata(tree.join("usr/lib/cairn").join(name)).unwrap();
        assert!(stripped.len() < fs::metadata(&own).unwrap().len());
        let symbols = debug.join(format!("usr/lib/debug/usr/lib/cairn/{name}.debug"));
        assert!(symbols.is_file(), "{} is missing", symbols.display());
    }
}
