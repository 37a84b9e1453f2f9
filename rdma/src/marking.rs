//! Rules for the traffic class (ToS, DSCP) and hop limit of a queue pair's packets.
//!
//! A rule has the syntax of the drivers' force-DSCP files
//! (`/sys/class/infiniband/DEV/tc/PORT/traffic_class`), extended by `host_nqn` and `hop_limit`:
//!
//! ```
//! use std::net::IpAddr;
//! use cairn_rdma::marking::Rules;
//!
//! let rules = Rules::parse([
//!     "104",
//!     "tclass=16,src_ip=1.1.1.2,dst_ip=1.1.1.0/24",
//!     "tclass=32,host_nqn=nqn.2024-01.com.example:db,hop_limit=3",
//! ])?;
//! let of = |host: [u8; 4], nqn| {
//!     rules.choose([1, 1, 1, 2].into(), IpAddr::from(host), nqn).traffic_class
//! };
//! assert_eq!(of([1, 1, 1, 9], None), Some(16));
//! assert_eq!(of([1, 1, 1, 9], Some("nqn.2024-01.com.example:db")), Some(32));
//! assert_eq!(of([9, 9, 9, 9], None), Some(104));
//! # Ok::<(), cairn_rdma::marking::RuleError>(())
//! ```

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::net::IpAddr;

/// Requested traffic class and hop limit of a queue pair's packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marking {
    /// Traffic class (ToS). With `None`, an accepted queue pair uses the class of the peer's
    /// request; a connecting queue pair uses the provider's default, usually 0.
    pub traffic_class: Option<u8>,
    /// Hop limit; `None`: the provider's default.
    pub hop_limit: Option<u8>,
}

impl Marking {
    /// Returns this marking, with missing fields from `fallback`.
    #[must_use]
    pub fn or(self, fallback: Self) -> Self {
        Self {
            traffic_class: self.traffic_class.or(fallback.traffic_class),
            hop_limit: self.hop_limit.or(fallback.hop_limit),
        }
    }
}

/// Traffic class and hop limit in a queue pair's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marked {
    /// Traffic class (ToS). The provider sets the two ECN bits.
    pub traffic_class: u8,
    /// Hop limit (TTL in IPv4).
    pub hop_limit: u8,
}

/// IP prefix, such as 192.0.2.0/24.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// First address of the prefix.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub bits: u8,
}

/// Conditions on a queue pair. A rule applies if every set condition holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Prefix of the local address.
    pub source: Option<Prefix>,
    /// Prefix of the peer's address.
    pub destination: Option<Prefix>,
    /// HOSTNQN of the queue pair's host.
    pub host_nqn: Option<Box<str>>,
}

/// Marking for the queue pairs in a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Queue pairs to which the rule applies.
    pub scope: Scope,
    /// Marking with at least one set field.
    pub marking: Marking,
}

/// Rules, the most specific first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// Reason why a line is no valid rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}: {remedy}")]
pub struct RuleError {
    /// Description of the error.
    pub message: String,
    /// Valid syntax, or action to take.
    pub remedy: String,
}

impl Rules {
    /// Creates rules by [`Self::add`] of each line, in order.
    ///
    /// # Errors
    /// A line cannot be parsed, or two rules have the same scope.
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Self, RuleError> {
        let mut rules = Self::default();
        for line in lines {
            rules.add(line)?;
        }
        Ok(rules)
    }

    /// Adds the rule in `line`. As in the driver's file, `tclass=-1` instead removes the rule with
    /// the same scope.
    pub fn add(&mut self, line: &str) -> Result<(), RuleError> {
        let (scope, marking) = read(line)?;
        let Some(marking) = marking else {
            self.rules.retain(|rule| rule.scope != scope);
            return Ok(());
        };
        if let Some(other) = self.rules.iter().find(|rule| rule.scope == scope) {
            return Err(RuleError {
                message: format!("\"{line}\" is about the same queue pairs as \"{other}\""),
                remedy: "remove one of them: the order of rules does not matter".to_owned(),
            });
        }
        let rule = Rule { scope, marking };
        let place = self
            .rules
            .partition_point(|other| other.scope.rank() <= rule.scope.rank());
        self.rules.insert(place, rule);
        Ok(())
    }

    /// Returns the marking of a queue pair.
    ///
    /// Each field comes from the most specific matching rule that sets it: by host NQN, then by the
    /// longest destination prefix, then by the longest source prefix.
    #[must_use]
    pub fn choose(&self, source: IpAddr, destination: IpAddr, host_nqn: Option<&str>) -> Marking {
        let (source, destination) = (source.to_canonical(), destination.to_canonical());
        self.rules
            .iter()
            .filter(|rule| rule.scope.includes(source, destination, host_nqn))
            .fold(Marking::default(), |chosen, rule| chosen.or(rule.marking))
    }

    /// True if any rule has a host NQN.
    #[must_use]
    pub fn name_hosts(&self) -> bool {
        self.iter().any(|rule| rule.scope.host_nqn.is_some())
    }

    /// Returns the rules, the most specific first.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }
}

impl Rule {
    /// Parses a rule.
    ///
    /// # Errors
    /// The line cannot be parsed, or removes a rule (`tclass=-1`).
    pub fn parse(line: &str) -> Result<Self, RuleError> {
        match read(line)? {
            (scope, Some(marking)) => Ok(Self { scope, marking }),
            (_, None) => Err(wrong(line, "sets nothing")),
        }
    }
}

impl Scope {
    fn rank(&self) -> impl Ord {
        let bits = |prefix: Option<Prefix>| Reverse(prefix.map(|prefix| prefix.bits));
        (
            Reverse(self.host_nqn.is_some()),
            bits(self.destination),
            bits(self.source),
        )
    }

    fn includes(&self, source: IpAddr, destination: IpAddr, host_nqn: Option<&str>) -> bool {
        let is_in = |prefix: Option<Prefix>, address| prefix.is_none_or(|p| p.includes(address));
        let own = self.host_nqn.as_deref();
        is_in(self.source, source)
            && is_in(self.destination, destination)
            && own.is_none_or(|own| host_nqn == Some(own))
    }
}

impl Prefix {
    /// True if the prefix contains `address`.
    #[must_use]
    pub fn includes(&self, address: IpAddr) -> bool {
        masked(address, self.bits) == Some(self.address)
    }

    /// Parses an address, or a prefix such as "192.0.2.0/24".
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits = bits.unwrap_or_else(|| width(address));
        let address = masked(address, bits)?;
        Some(Self { address, bits })
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self {
            address,
            bits: width(address),
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, bits: u8) -> Option<IpAddr> {
    let gone = u32::from(width(address).checked_sub(bits)?);
    Some(match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(gone).unwrap_or(0);
            IpAddr::from((v4.to_bits() & mask).to_be_bytes())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(gone).unwrap_or(0);
            IpAddr::from((v6.to_bits() & mask).to_be_bytes())
        }
    })
}

fn read(line: &str) -> Result<(Scope, Option<Marking>), RuleError> {
    let mut scope = Scope::default();
    let mut class: Option<Option<u8>> = None;
    let mut hop_limit = None;
    let fields = line.trim();
    let fields = fields.strip_prefix("Global ").unwrap_or(fields);
    for field in fields.split(',').map(str::trim) {
        let (key, value) = field.split_once('=').unwrap_or(("tclass", field));
        let bad = |what: &str| wrong(line, &format!("\"{value}\" is not a valid {what}"));
        let is_new = match key {
            "tclass" if value == "-1" => class.replace(None).is_none(),
            "tclass" => {
                let value = value.parse().map_err(|_| bad("number from -1 to 255"))?;
                class.replace(Some(value)).is_none()
            }
            "hop_limit" => {
                let value = value.parse().ok().filter(|hops| *hops > 0);
                let value: u8 = value.ok_or_else(|| bad("number from 1 to 255"))?;
                hop_limit.replace(value).is_none()
            }
            "src_ip" | "dst_ip" => {
                let prefix = Prefix::parse(value).ok_or_else(|| bad("address or prefix"))?;
                let end = if key == "src_ip" {
                    &mut scope.source
                } else {
                    &mut scope.destination
                };
                end.replace(prefix).is_none()
            }
            "host_nqn" if value.is_empty() => return Err(bad("NQN")),
            "host_nqn" => scope.host_nqn.replace(value.into()).is_none(),
            _ => return Err(wrong(line, &format!("\"{key}\" is not known"))),
        };
        if !is_new {
            return Err(wrong(line, &format!("\"{key}\" is given twice")));
        }
    }
    let marking = match (class, hop_limit) {
        (Some(None), None) => return Ok((scope, None)),
        (Some(None), Some(_)) => return Err(wrong(line, "both takes back and sets")),
        (None, None) => return Err(wrong(line, "sets nothing")),
        (Some(traffic_class), hop_limit) => Marking {
            traffic_class,
            hop_limit,
        },
        (None, hop_limit) => Marking {
            traffic_class: None,
            hop_limit,
        },
    };
    let is_mixed = match (scope.source, scope.destination) {
        (Some(one), Some(other)) => one.address.is_ipv4() != other.address.is_ipv4(),
        _ => false,
    };
    if is_mixed {
        return Err(wrong(line, "mixes IPv4 and IPv6"));
    }
    Ok((scope, Some(marking)))
}

fn wrong(line: &str, what: &str) -> RuleError {
    RuleError {
        message: format!("the rule \"{line}\": {what}"),
        remedy: "write tclass=0..255 and what it is for, such as \
                 \"tclass=104,src_ip=192.0.2.1,dst_ip=192.0.2.0/24\"; src_ip, dst_ip, host_nqn and \
                 hop_limit may be left out, and tclass=-1 takes a rule back"
            .to_owned(),
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bits == width(self.address) {
            return self.address.fmt(f);
        }
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scope {
            source,
            destination,
            host_nqn,
        } = &self.scope;
        let fields = [
            ("tclass", self.marking.traffic_class.map(|c| c.to_string())),
            ("hop_limit", self.marking.hop_limit.map(|h| h.to_string())),
            ("src_ip", source.map(|prefix| prefix.to_string())),
            ("dst_ip", destination.map(|prefix| prefix.to_string())),
            ("host_nqn", host_nqn.as_deref().map(str::to_owned)),
        ];
        let mut separator = "";
        for (key, value) in fields {
            if let Some(value) = value {
                write!(f, "{separator}{key}={value}")?;
                separator = ",";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.2024-01.com.example:db";

    fn class_of(rules: &Rules, source: &str, destination: &str, host: Option<&str>) -> Option<u8> {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        rules.choose(source, destination, host).traffic_class
    }

    #[test]
    fn the_most_specific_rule_counts_in_any_order() {
        let lines = [
            "8",
            "tclass=16,src_ip=10.0.0.1",
            "tclass=24,dst_ip=10.0.0.0/8",
            "32,dst_ip=10.1.0.0/16",
            "tclass=40,src_ip=10.0.0.1,dst_ip=10.1.0.0/16",
            "tclass=48,dst_ip=10.1.2.3",
            "tclass=56,host_nqn=nqn.2024-01.com.example:db",
            "tclass=64,host_nqn=nqn.2024-01.com.example:db,dst_ip=10.1.2.3/32",
        ];
        let cases = [
            ("10.0.0.9", "192.0.2.1", None, 8),
            ("10.0.0.1", "192.0.2.1", None, 16),
            ("10.0.0.1", "10.9.9.9", None, 24),
            ("10.0.0.9", "10.1.9.9", None, 32),
            ("10.0.0.1", "10.1.9.9", None, 40),
            ("10.0.0.1", "10.1.2.3", None, 48),
            ("10.0.0.1", "10.1.9.9", Some(HOST), 56),
            ("10.0.0.1", "10.1.2.3", Some(HOST), 64),
            (
                "10.0.0.1",
                "10.1.2.3",
                Some("nqn.2024-01.com.example:d"),
                48,
            ),
            ("::1", "2001:db8::1", None, 8),
            ("::ffff:10.0.0.1", "::ffff:10.1.2.3", None, 48),
        ];
        for turn in 0..2 * lines.len() {
            let mut lines = lines;
            lines.rotate_left(turn / 2);
            if turn % 2 == 1 {
                lines.reverse();
            }
            let rules = Rules::parse(lines).unwrap();
            for (source, destination, host, class) in cases {
                let chosen = class_of(&rules, source, destination, host);
                assert_eq!(
                    chosen,
                    Some(class),
                    "{lines:?} {source} {destination} {host:?}"
                );
            }
        }
    }

    #[test]
    fn class_and_hop_limit_are_chosen_each_by_itself() {
        let lines = [
            "hop_limit=9",
            "tclass=96,dst_ip=192.0.2.0/24",
            "hop_limit=1,dst_ip=192.0.2.7",
        ];
        let rules = Rules::parse(lines).unwrap();
        let near = rules.choose([192, 0, 2, 1].into(), [192, 0, 2, 7].into(), None);
        assert_eq!((near.traffic_class, near.hop_limit), (Some(96), Some(1)));
        let far = rules.choose([192, 0, 2, 1].into(), [9, 9, 9, 9].into(), None);
        assert_eq!((far.traffic_class, far.hop_limit), (None, Some(9)));
    }

    #[test]
    fn minus_one_takes_a_rule_back() {
        let lines = [
            "104",
            "tclass=16,dst_ip=10.0.0.0/8",
            "-1",
            "tclass=-1,dst_ip=10.0.0.0/9",
        ];
        let rules = Rules::parse(lines).unwrap();
        assert_eq!(class_of(&rules, "10.0.0.1", "10.0.0.2", None), Some(16));
        assert_eq!(class_of(&rules, "10.0.0.1", "9.0.0.2", None), None);
        let rules = Rules::parse(["16,dst_ip=10.0.0.0/8", "-1,dst_ip=10.9.9.9/8"]).unwrap();
        assert_eq!(rules, Rules::default());
        let rules = Rules::parse(["16", "-1", "24"]).unwrap();
        assert_eq!(class_of(&rules, "10.0.0.1", "10.0.0.2", None), Some(24));
        assert!(Rule::parse("-1").is_err());
    }

    #[test]
    fn a_rule_is_written_as_it_is_read() {
        for line in [
            "tclass=106",
            "tclass=16,src_ip=1.1.1.2,dst_ip=1.1.1.0/24",
            "tclass=0,hop_limit=1,src_ip=2001:db8::1,dst_ip=::/0,host_nqn=nqn.2024-01.com.example:a",
        ] {
            assert_eq!(Rule::parse(line).unwrap().to_string(), line);
        }
        let sloppy = Rule::parse(" Global tclass=106 \n").unwrap();
        assert_eq!(sloppy.to_string(), "tclass=106");
        let sloppy = Rule::parse("16, dst_ip=1.1.1.9/24").unwrap();
        assert_eq!(sloppy.to_string(), "tclass=16,dst_ip=1.1.1.0/24");
    }

    #[test]
    fn what_is_wrong_is_named_and_fixed() {
        for (line, what) in [
            ("", "\"\" is not a valid number"),
            ("256", "\"256\" is not a valid number"),
            ("tclass=-2", "\"-2\" is not a valid number"),
            ("16,tclass=16", "\"tclass\" is given twice"),
            (
                "16,dst_ip=1.1.1.1/33",
                "\"1.1.1.1/33\" is not a valid address",
            ),
            ("16,src_ip=::1/129", "\"::1/129\" is not a valid address"),
            ("16,src_ip=1.1.1", "\"1.1.1\" is not a valid address"),
            ("16,src_ip=1.1.1.1,dst_ip=::1", "mixes IPv4 and IPv6"),
            ("16,host_nqn=", "\"\" is not a valid NQN"),
            ("16,port=1", "\"port\" is not known"),
            ("16,hop_limit=0", "\"0\" is not a valid number from 1"),
            ("dst_ip=1.1.1.1", "sets nothing"),
            ("-1,hop_limit=3", "both takes back and sets"),
        ] {
            let error = Rules::parse([line]).unwrap_err();
            assert!(error.message.contains(what), "{line}: {error}");
            assert!(error.remedy.contains("tclass="), "{line}: {error}");
        }
        let twice = Rules::parse(["16,dst_ip=1.1.1.1/24", "24,dst_ip=1.1.1.0/24"]).unwrap_err();
        assert!(
            twice
                .message
                .contains("same queue pairs as \"tclass=16,dst_ip=1.1.1.0/24\"")
        );
    }
}
