//! `cairn-target doctor`: checks that the fabric meets a target's needs.

use std::path::{Path, PathBuf};

use cairn_config::{Config, ConfigError, Flags, Listener, Provider, Target};
use cairn_doctor::cli::DoctorArgs;
use cairn_doctor::rules::{Choice, Intent, Membership, Severity};
use cairn_doctor::tos::Tos;
use clap::Args;
use nvme_proto::limits::PAGE_BYTES;

use super::probe;
use crate::nouns::count;
use crate::placement;
use cairn_data_path::ending::CALLER;

const SQE_BYTES: u64 = 64;
const RESPONSE_BYTES: u64 = 16;

#[derive(Debug, Clone, Args)]
pub(super) struct Doctor {
    /// Configuration that the target will run with
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) args: DoctorArgs,
}

pub(super) fn run(doctor: &Doctor) -> u8 {
    let config = doctor.config.as_deref().map(read).transpose();
    let mut printed = Vec::new();
    if let Err(error) = &config {
        let text = error.to_string();
        crate::logging::print_failure(&text);
        let errors = text.lines().filter(|line| line.starts_with("error: "));
        printed.resize(errors.count().max(1), Severity::Error);
    }
    let config = config.ok().flatten();
    let missing = config.as_ref().map(probe::probe).unwrap_or_default();
    probe::print(&missing);
    printed.extend(missing.iter().map(|one| one.severity));
    let intent = intent(config.as_ref());
    cairn_doctor::cli::doctor(&doctor.args, intent, &printed)
}

fn read(file: &Path) -> Result<Config, ConfigError> {
    Config::from_file(file, &Flags::default())
}

fn intent(config: Option<&Config>) -> Intent {
    let Some(config) = config else {
        let anywhere = Flags {
            listen: vec!["127.0.0.1".to_owned()],
            export: vec!["null:1MiB".to_owned()],
            ..Flags::default()
        };
        let defaults = Config::from_flags(&anywhere).expect("these are right");
        return Intent {
            caller: CALLER,
            addresses: Vec::new(),
            tos: Vec::new(),
            partitions: Vec::new(),
            memory: memory(&defaults.target),
            is_soft: false,
        };
    };
    let mut listeners = config.listeners.iter();
    let addresses = listeners.clone().map(|listener| listener.address.ip());
    Intent {
        caller: CALLER,
        addresses: addresses
            .filter(|address| !address.is_unspecified())
            .collect(),
        tos: choices(config),
        partitions: partitions(config),
        memory: memory(&config.target),
        is_soft: listeners.all(|listener| listener.provider == Provider::Soft),
    }
}

fn choices(config: &Config) -> Vec<Choice> {
    let by_rules = config.marking.iter().filter_map(|rule| {
        Some(Choice {
            tos: Tos(rule.marking.traffic_class?),
            by: format!("the rule \"{rule}\""),
            source: rule.scope.source,
        })
    });
    let by_listeners = config.listeners.iter().filter_map(|listener| {
        Some(Choice {
            tos: Tos(listener.traffic_class?),
            by: format!("the listener {}", listener.trid()),
            source: (!listener.address.ip().is_unspecified()).then(|| listener.address.ip().into()),
        })
    });
    by_rules.chain(by_listeners).collect()
}

fn partitions(config: &Config) -> Vec<Membership> {
    let of_listener = |listener: &Listener| Membership {
        pkey: listener.pkey,
        address: listener.address.ip(),
        is_soft: listener.provider == Provider::Soft,
        by: format!("the listener {}", listener.trid()),
    };
    config.listeners.iter().map(of_listener).collect()
}

/// Returns the bytes of memory that the data path needs for one device, by purpose.
pub(super) fn memory(target: &Target) -> Vec<(String, u64)> {
    let reactors = placement::count(&target.reactors) as u64;
    let receives = u64::from(target.receives);
    let in_capsule =
        u64::from(target.in_capsule_data_bytes).next_multiple_of(u64::from(PAGE_BYTES));
    let of_receives = receives * (SQE_BYTES + RESPONSE_BYTES + in_capsule);
    let of_reactors = count(reactors, "reactor");
    vec![
        (
            format!("data buffers of {of_reactors}"),
            reactors * target.data_buffers_bytes,
        ),
        (
            format!("{receives} receives of {of_reactors}"),
            reactors * of_receives,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_the_defaults_are_examined() {
        let intent = intent(None);
        let each = (16 << 20) + 1024 * (4096 + 64 + 16);
        assert_eq!(intent.memory_bytes() % each, 0, "{:?}", intent.memory);
        assert!(!intent.is_soft && intent.addresses.is_empty());
    }

    #[test]
    fn a_file_says_addresses_tos_and_provider() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("target.toml");
        let text = "[target]\nprovider = \"soft\"\nreactors = 1\n\
                    [marking]\nrules = [\"200\", \"16,src_ip=192.0.2.1\", \"hop_limit=9,src_ip=192.0.2.2\"]\n\
                    [[listener]]\naddress = \"192.0.2.1\"\ndscp = 24\n\
                    [[listener]]\naddress = \"::\"\nport = 4421\npkey = 0x8001\n\
                    [[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n";
        std::fs::write(&file, text).unwrap();
        let intent = intent(Some(&read(&file).unwrap()));
        assert_eq!(
            intent.addresses,
            ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]
        );
        let classes: Vec<u8> = intent.tos.iter().map(|choice| choice.tos.0).collect();
        assert_eq!(classes, [16, 200, 96], "all that hosts may get");
        let [near, everywhere, listener] = &intent.tos[..] else {
            panic!("three")
        };
        assert!(near.source.is_some() && everywhere.source.is_none());
        assert_eq!(listener.by, "the listener 192.0.2.1:4420");
        let keys: Vec<u16> = intent
            .partitions
            .iter()
            .map(|one| one.pkey.bits())
            .collect();
        assert_eq!(keys, [0xffff, 0x8001]);
        assert!(intent.is_soft && intent.partitions.iter().all(|one| one.is_soft));
        assert!(intent.memory[0].0.ends_with("of 1 reactor"));
    }
}
