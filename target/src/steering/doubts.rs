//! Warnings about hosts that were just added to a list.

use cairn_config::{Config, GROUP_PREFIX, Nqn, host_doubt, is_slip};

use super::wording::word;

const WARNINGS_MAX: usize = 32;

/// Maximum comparisons of one request, which take a few milliseconds.
const LOOKS_MAX: usize = 1 << 16;

struct Examination<'c> {
    config: &'c Config,
    /// Hosts and subsystems of refused Connects.
    refused: &'c [(Nqn, Nqn)],
    hosts: Vec<Nqn>,
    looks: usize,
    warnings: Vec<String>,
}

pub(super) fn doubts(config: &Config, refused: &[(Nqn, Nqn)], hosts: &[String]) -> Vec<String> {
    Examination::of(config, refused, hosts).warnings
}

impl<'c> Examination<'c> {
    fn of(config: &'c Config, refused: &'c [(Nqn, Nqn)], hosts: &[String]) -> Self {
        let hosts = hosts.iter().filter(|host| !host.starts_with(GROUP_PREFIX));
        let hosts = hosts.filter_map(|host| Nqn::parse(host).ok());
        let mut hosts: Vec<Nqn> = hosts.collect();
        hosts.sort_unstable();
        let mut it = Self {
            config,
            refused,
            hosts,
            looks: 0,
            warnings: Vec::new(),
        };
        let is_whole = it.names() && it.keys();
        if !is_whole && it.warnings.len() < WARNINGS_MAX {
            it.warnings.push(
                "the rest was not compared, because that takes too long: cairn-target status \
                 shows mistyped hosts"
                    .to_owned(),
            );
        }
        it
    }

    fn may(&mut self, looks: usize) -> bool {
        let may = self.looks + looks <= LOOKS_MAX && self.warnings.len() < WARNINGS_MAX;
        self.looks += if may { looks } else { 0 };
        may
    }

    fn names(&mut self) -> bool {
        for at in 0..self.hosts.len() {
            if !self.may(1 + self.refused.len()) {
                return false;
            }
            let host = self.hosts[at];
            let doubt = host_doubt(&host);
            let doubt = doubt.map(|why| {
                format!("{host} is probably mistyped: {why}; see /etc/nvme/hostnqn of the host")
            });
            let near = self.refused.iter();
            let near = near.filter(|(other, _)| is_slip(other.raw(), host.raw()));
            let near = near.map(|(other, subsystem)| {
                format!(
                    "{host} is almost the host {other} that {subsystem} refused: is it mistyped?"
                )
            });
            let left = WARNINGS_MAX - self.warnings.len();
            self.warnings
                .extend(doubt.into_iter().chain(near).take(left));
        }
        true
    }

    fn keys(&mut self) -> bool {
        for subsystem in &self.config.subsystems {
            let keys = &subsystem.authentication;
            if keys.hosts.is_empty() || keys.is_required || keys.others.is_some() {
                continue;
            }
            if !self.may(keys.hosts.len() + self.hosts.len()) {
                return false;
            }
            let mut has_key = vec![false; self.hosts.len()];
            for (host, _) in &keys.hosts {
                if let Ok(at) = self.hosts.binary_search(host) {
                    has_key[at] = true;
                }
            }
            let keyless = self.hosts.iter().zip(has_key);
            let keyless = keyless.filter(|(host, has_key)| {
                !has_key && subsystem.allowed_hosts.hosts.contains(*host)
            });
            let nqn = subsystem.nqn;
            let of = word(nqn.raw());
            let warnings = keyless.map(|(host, _)| {
                format!(
                    "{host} connects without a key, although other hosts of {nqn} have one: \
                     cairn-target host key set {of} {} --key FILE, or: \
                     cairn-target subsystem set {of} --require-key on",
                    word(host.raw())
                )
            });
            let left = WARNINGS_MAX - self.warnings.len();
            self.warnings.extend(warnings.take(left));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use cairn_config::Flags;

    fn host(number: usize) -> String {
        format!("nqn.2024-01.com.example:host-{number:05}")
    }

    fn config(subsystems: usize, hosts: usize, keys: usize) -> Config {
        let hosts: Vec<String> = (0..hosts).map(host).collect();
        let mut text = format!(
            "[[listener]]\naddress = \"192.0.2.1\"\n[[host_group]]\nname = \"g\"\nhosts = {hosts:?}\n"
        );
        for number in 0..subsystems {
            let nqn = format!("nqn.2024-01.com.example:s{number}");
            writeln!(
                text,
                "[[subsystem]]\nnqn = \"{nqn}\"\nallowed_hosts = [\"@g\"]"
            )
            .unwrap();
            for key in 0..keys {
                let host = host(key);
                writeln!(
                    text,
                    "[[subsystem.host]]\nnqn = \"{host}\"\ndhchap_key = \"/k\""
                )
                .unwrap();
            }
        }
        Config::parse("test", &text, &Flags::default()).unwrap()
    }

    #[test]
    fn ten_thousand_hosts_are_compared_in_bounded_work() {
        let hosts: Vec<String> = (0..10_000).map(host).collect();
        let one = config(1, 4_096, 4_086);
        let it = Examination::of(&one, &[], &hosts);
        assert_eq!(it.warnings.len(), 10, "{:?}", it.warnings);
        assert!(it.warnings[0].starts_with(&host(4_086)));
        assert!(it.looks <= 25_000, "{}", it.looks);

        let others: Vec<String> = (20_000..30_000).map(host).collect();
        let many = config(10, 1, 1);
        let it = Examination::of(&many, &[], &others);
        assert!(it.looks <= LOOKS_MAX, "{}", it.looks);
        assert!(it.warnings.last().unwrap().contains("was not compared"));
        let refused = vec![(Nqn::discovery(), Nqn::discovery()); 256];
        let it = Examination::of(&many, &refused, &others);
        assert!(it.looks <= LOOKS_MAX, "{}", it.looks);
        assert!(it.warnings.last().unwrap().contains("was not compared"));
    }
}
