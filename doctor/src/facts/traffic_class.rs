use std::fmt;
use std::net::IpAddr;

use cairn_rdma::marking::{Rule, Scope};
use serde::Serialize;

use crate::tos::Tos;

/// Traffic classes that a driver forces on queue pairs
/// (`/sys/class/infiniband/DEV/tc/PORT/traffic_class`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ForcedClass {
    /// Class of all queue pairs; overrides the rules.
    pub global: Option<Tos>,
    pub rules: Vec<ForcedRule>,
}

/// Rule that forces a class on some queue pairs, such as
/// "tclass=16,src_ip=1.1.1.2,dst_ip=1.1.1.0/24".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForcedRule {
    pub class: Tos,
    /// Source address; `None` for any.
    pub source: Option<IpAddr>,
    /// Destination prefix and its length in bits; `None` for any destination.
    pub destination: Option<(IpAddr, u8)>,
}

impl ForcedClass {
    /// Parses the driver's file; invalid lines are skipped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut class = Self::default();
        for line in text.lines().map(str::trim) {
            if line.starts_with("Global ") {
                class.global = rule(line).map(|rule| rule.class);
            } else {
                class.rules.extend(rule(line));
            }
        }
        class
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.global.is_none() && self.rules.is_empty()
    }
}

impl fmt::Display for ForcedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tclass={}", self.class.0)?;
        if let Some(source) = self.source {
            write!(f, ",src_ip={source}")?;
        }
        if let Some((address, bits)) = self.destination {
            write!(f, ",dst_ip={address}/{bits}")?;
        }
        Ok(())
    }
}

/// Parses a rule; `None` if it is invalid, lacks a class, or has a host NQN.
fn rule(line: &str) -> Option<ForcedRule> {
    let rule = Rule::parse(line).ok()?;
    let Scope {
        source,
        destination,
        host_nqn: None,
    } = rule.scope
    else {
        return None;
    };
    Some(ForcedRule {
        class: Tos(rule.marking.traffic_class?),
        source: source.map(|prefix| prefix.address),
        destination: destination.map(|prefix| (prefix.address, prefix.bits)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_global_value_and_rules_are_distinguished() {
        let class = ForcedClass::parse("Global tclass=106\n");
        assert_eq!(class.global, Some(Tos(106)));
        assert!(class.rules.is_empty());

        let text = "tclass=16,src_ip=1.1.1.2,dst_ip=1.1.1.0/24\n96,dst_ip=2001:db8::1\n";
        let class = ForcedClass::parse(text);
        assert_eq!(class.global, None);
        let [first, second] = &class.rules[..] else {
            panic!("two rules")
        };
        assert_eq!(
            (first.class, first.source),
            (Tos(16), "1.1.1.2".parse().ok())
        );
        assert_eq!(first.destination, Some(("1.1.1.0".parse().unwrap(), 24)));
        assert_eq!(first.to_string(), text.lines().next().unwrap());
        assert_eq!(second.class, Tos(96));
        assert_eq!(second.destination.unwrap().1, 128);
    }

    #[test]
    fn nonsense_forces_nothing() {
        for text in ["", "\n", "tclass=256", "tclass=1,what=2", "dst_ip=1.1.1.1"] {
            assert!(ForcedClass::parse(text).is_empty(), "{text:?}");
        }
    }
}
