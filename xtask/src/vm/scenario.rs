//! Scenarios: shell scripts with a header that states purpose and required machine.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) summary: String,
    pub(crate) options: Options,
    programs: Vec<Program>,
    pub(crate) packages: bool,
    pub(crate) spdk_client: bool,
    pub(crate) live: bool,
    by_name: bool,
    main: bool,
    /// Whether it also passes on aarch64, in a short time.
    aarch64: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    Binary(String),
    Example(String),
    Tests(String),
}

impl Program {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Binary(name) | Self::Example(name) => name.clone(),
            Self::Tests(package) => format!("{package}-tests"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NvmeNamespace {
    /// Block size in bytes.
    Blocks(u32),
    /// Protection information of type `kind`, in 8 bytes of metadata.
    Protected {
        bytes: u32,
        kind: u8,
    },
    Metadata,
    Zoned,
    ReadOnly,
}

impl NvmeNamespace {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "512" => Self::Blocks(512),
            "4096" => Self::Blocks(4096),
            "512-pi1" => Self::protected(512, 1),
            "512-pi2" => Self::protected(512, 2),
            "512-pi3" => Self::protected(512, 3),
            "4096-pi1" => Self::protected(4096, 1),
            "4096-pi2" => Self::protected(4096, 2),
            "4096-pi3" => Self::protected(4096, 3),
            "metadata" => Self::Metadata,
            "zoned" => Self::Zoned,
            "read-only" => Self::ReadOnly,
            _ => bail!(
                "no namespace {text:?}: 512, 4096, 512-pi1 to 4096-pi3, metadata, zoned and \
                 read-only are known"
            ),
        })
    }

    fn protected(bytes: u32, kind: u8) -> Self {
        Self::Protected { bytes, kind }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    name: String,
    value: String,
}

impl Variable {
    /// Parses `NAME=VALUE`. A shell in the guest evaluates the text, so only some characters are
    /// permitted.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (name, value) = text
            .split_once('=')
            .with_context(|| format!("{text:?} is not NAME=VALUE"))?;
        let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
        ensure!(
            !name.is_empty() && name.chars().all(is_name),
            "{name:?} is no variable's name: it takes capital letters and underscores"
        );
        let is_plain = |c: char| c.is_ascii_graphic() && !"\"'".contains(c);
        ensure!(
            value.chars().all(is_plain),
            "{value:?} has blanks or quotes; separate words by commas"
        );
        Ok(Self {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}='{}'", self.name, self.value)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) mem: String,
    pub(crate) disk: Option<String>,
    /// Physical block size of the second disk in bytes; logical blocks have 512 bytes.
    pub(crate) disk_physical: u32,
    /// Namespaces of an NVMe drive, from NSID 1. Without namespaces, the guest has no drive.
    pub(crate) nvme: Vec<NvmeNamespace>,
    pub(crate) network: Network,
    pub(crate) vhost_user: bool,
    pub(crate) timeout_s: u64,
    /// Whether process 1 of the guest is systemd, without which the guest cannot reboot.
    pub(crate) systemd: bool,
    /// Whether the guest's clock counts instructions instead of time; the guest then has one
    /// processor.
    pub(crate) counted: bool,
}

impl Options {
    pub(crate) fn plain() -> Self {
        Self {
            mem: "2G".to_owned(),
            disk: None,
            disk_physical: 512,
            nvme: Vec::new(),
            network: Network::None,
            vhost_user: false,
            timeout_s: 300,
            systemd: false,
            counted: false,
        }
    }

    pub(crate) fn are_plain(&self) -> bool {
        let timeout_s = self.timeout_s;
        *self
            == Self {
                timeout_s,
                ..Self::plain()
            }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    None,
    /// Card on a tap interface in a network namespace.
    Tap {
        /// Script in `tests/vm/beside` that runs in the network namespace.
        beside: String,
    },
}

impl Scenario {
    pub(crate) fn load_all(dir: &Path) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        let entries = fs::read_dir(dir).with_context(|| format!("no folder {}", dir.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "sh") {
                let name = path
                    .file_stem()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                let text = fs::read_to_string(&path)?;
                let parsed = Self::parse(name, &text);
                all.push(parsed.with_context(|| format!("in the header of {}", path.display()))?);
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    pub(crate) fn plain() -> Self {
        Self::parse(String::new(), "# A plain machine").expect("a header without options is valid")
    }

    fn parse(name: String, text: &str) -> Result<Self> {
        let header = text.lines().skip_while(|line| line.starts_with("#!"));
        let comments: Vec<&str> = header.map_while(|line| line.strip_prefix('#')).collect();
        let summary = comments
            .first()
            .context("a scenario begins with what it shows")?
            .trim();
        let mut scenario = Self {
            name,
            summary: summary.to_owned(),
            options: Options::plain(),
            programs: Vec::new(),
            packages: false,
            spdk_client: false,
            live: false,
            by_name: false,
            main: false,
            aarch64: false,
        };
        for options in comments
            .iter()
            .filter_map(|line| line.trim().strip_prefix("vm:"))
        {
            options
                .split_whitespace()
                .try_for_each(|option| scenario.set(option))?;
        }
        Ok(scenario)
    }

    fn set(&mut self, option: &str) -> Result<()> {
        match option.split_once('=') {
            Some(("mem", size)) => size.clone_into(&mut self.options.mem),
            Some(("disk", size)) => self.options.disk = Some(size.to_owned()),
            Some(("disk-physical", bytes)) => self.options.disk_physical = bytes.parse()?,
            Some(("nvme", namespaces)) => {
                let namespaces = namespaces.split(',').map(NvmeNamespace::parse);
                self.options.nvme = namespaces.collect::<Result<_>>()?;
            }
            Some(("timeout", seconds)) => self.options.timeout_s = seconds.parse()?,
            Some(("programs", names)) => self.add_programs(names, Program::Binary),
            Some(("examples", names)) => self.add_programs(names, Program::Example),
            Some(("tests", packages)) => self.add_programs(packages, Program::Tests),
            Some(("network", "tap")) => {
                let beside = self.name.clone();
                self.options.network = Network::Tap { beside };
            }
            None if option == "vhost-user" => self.options.vhost_user = true,
            None if option == "packages" => self.packages = true,
            None if option == "spdk-client" => self.spdk_client = true,
            None if option == "systemd" => self.options.systemd = true,
            None if option == "counted" => self.options.counted = true,
            None if option == "live" => self.live = true,
            None if option == "by-name" => self.by_name = true,
            None if option == "main" => self.main = true,
            None if option == "aarch64" => self.aarch64 = true,
            _ => bail!(
                "unknown option {option:?}: mem=SIZE, disk=SIZE, disk-physical=BYTES, \
                 nvme=NAMESPACE,NAMESPACE, timeout=SECONDS, programs=NAME,NAME, examples=NAME,NAME, tests=PACKAGE,PACKAGE, \
                 network=tap, vhost-user, packages, spdk-client, systemd, counted, live, by-name, main and aarch64 are known"
            ),
        }
        Ok(())
    }

    pub(crate) fn program_names(&self) -> String {
        let names: Vec<_> = self.programs.iter().map(Program::name).collect();
        names.join(" ")
    }

    fn add_programs(&mut self, names: &str, kind: fn(String) -> Program) {
        let named = names.split(',').map(|name| kind(name.to_owned()));
        self.programs.extend(named);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    All,
    Main,
    Others,
    Foreign,
}

pub(crate) fn choose<'a>(
    known: &'a [Scenario],
    names: &[String],
    share: Share,
) -> Result<Vec<&'a Scenario>> {
    if names.is_empty() {
        let is_chosen = |s: &&Scenario| {
            !s.by_name
                && match share {
                    Share::All => true,
                    Share::Main => s.main,
                    Share::Others => !s.main,
                    Share::Foreign => s.aarch64,
                }
        };
        return Ok(known.iter().filter(is_chosen).collect());
    }
    let unknown: Vec<&str> = names
        .iter()
        .filter(|name| known.iter().all(|scenario| scenario.name != **name))
        .map(String::as_str)
        .collect();
    ensure!(
        unknown.is_empty(),
        "no such scenario: {} (see --list)",
        unknown.join(", ")
    );
    Ok(names
        .iter()
        .flat_map(|name| known.iter().find(|s| s.name == *name))
        .collect())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Dev,
    Release,
}

impl Profile {
    pub(crate) fn of(scenarios: &[&Scenario]) -> Self {
        if scenarios.iter().any(|s| s.by_name) {
            Self::Release
        } else {
            Self::Dev
        }
    }

    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Dev => &["--profile", "dev", "--test", "words"],
            Self::Release => &["--profile", "release"],
        }
    }

    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }
}

pub(crate) fn programs<'a>(scenarios: &[&'a Scenario]) -> BTreeSet<&'a Program> {
    scenarios.iter().flat_map(|s| &s.programs).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        Network, NvmeNamespace, Options, Profile, Program, Scenario, Share, Variable, choose,
        programs,
    };

    #[test]
    fn a_header_describes_scenario_and_machine() {
        let text = "#!/bin/bash\n# Shows a thing.\n# More words.\n# vm: disk=1G disk-physical=4096 timeout=60 live\n\
                    # vm: programs=a,b examples=c tests=d network=tap vhost-user packages spdk-client systemd counted nvme=512,4096-pi3,zoned\n\n\
                    # vm: mem=9G\n";
        let scenario = Scenario::parse("x".into(), text).unwrap();
        assert_eq!(scenario.summary, "Shows a thing.");
        let expected = Options {
            mem: "2G".into(),
            disk: Some("1G".into()),
            disk_physical: 4096,
            nvme: vec![
                NvmeNamespace::Blocks(512),
                NvmeNamespace::protected(4096, 3),
                NvmeNamespace::Zoned,
            ],
            network: Network::Tap { beside: "x".into() },
            vhost_user: true,
            timeout_s: 60,
            systemd: true,
            counted: true,
        };
        assert_eq!(scenario.options, expected);
        assert!(scenario.live && scenario.packages && scenario.spdk_client);
        assert!(!scenario.options.are_plain());
        assert!(
            Scenario::parse("x".into(), "# Shows.\n# vm: timeout=9")
                .unwrap()
                .options
                .are_plain()
        );
        let binary = |name: &str| Program::Binary(name.into());
        let (example, tests) = (Program::Example("c".into()), Program::Tests("d".into()));
        let wanted = [binary("a"), binary("b"), example, tests];
        assert!(programs(&[&scenario]).into_iter().eq(&wanted));
        assert_eq!(wanted[3].name(), "d-tests");
    }

    #[test]
    fn a_mistyped_option_is_an_error() {
        let error = Scenario::parse("x".into(), "# Shows.\n# vm: dsik=1G\n")
            .err()
            .unwrap();
        assert!(error.to_string().contains("dsik"), "{error}");
        assert!(Scenario::parse("x".into(), "# Shows.\n# vm: timeout=soon\n").is_err());
        assert!(Scenario::parse("x".into(), "# Shows.\n# vm: nvme=1024\n").is_err());
        assert!(Scenario::parse("x".into(), "#!/bin/bash\necho\n").is_err());
    }

    #[test]
    fn names_choose_scenarios() {
        let headers = [
            ("a", ""),
            ("b", "# vm: main aarch64\n"),
            ("measures", "# vm: by-name\n"),
        ];
        let known = headers.map(|(name, more)| {
            Scenario::parse(name.into(), &format!("# Shows.\n{more}")).unwrap()
        });
        let share = |share| {
            let chosen = choose(&known, &[], share).unwrap();
            chosen.iter().map(|s| s.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(share(Share::All), ["a", "b"]);
        assert_eq!(share(Share::Main), ["b"]);
        assert_eq!(share(Share::Others), ["a"]);
        assert_eq!(share(Share::Foreign), ["b"]);
        let choose = |known, names: &[String]| choose(known, names, Share::All);
        let measures = choose(&known, &["measures".into()]).unwrap();
        assert_eq!(measures.len(), 1);
        assert_eq!(Profile::of(&measures), Profile::Release);
        assert_eq!(choose(&known, &["b".into()]).unwrap()[0].name, "b");
        let error = choose(&known, &["b".into(), "c".into()]).err().unwrap();
        assert!(error.to_string().contains("no such scenario: c"), "{error}");
    }

    #[test]
    fn a_variable_fits_on_a_command_line() {
        let variable = Variable::parse("BENCH_TARGETS=a,b+c=1").unwrap();
        assert_eq!(variable.to_string(), "BENCH_TARGETS='a,b+c=1'");
        for text in [
            "BENCH",
            "=1",
            "bench=1",
            "BENCH=a b",
            "BENCH=\"a\"",
            "BENCH='a'",
        ] {
            assert!(Variable::parse(text).is_err(), "{text}");
        }
    }
}
