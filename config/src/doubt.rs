//! Host NQNs that are probably mistyped.

use nvme_proto::wire::Nqn;

/// Prefix of the host NQNs that nvme-cli makes.
const USUAL_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Maximum length of the differing part of two texts that are near each other.
const SLIP_MAX: usize = 2;

/// Returns the reason if `host` is probably mistyped.
#[must_use]
pub fn host_doubt(host: &Nqn) -> Option<String> {
    if let Some(why) = host.irregularity() {
        return Some(format!("it is not an NQN: {why}"));
    }
    let text = host.raw();
    if text.starts_with(USUAL_PREFIX) {
        return None;
    }
    let around = USUAL_PREFIX.len() - SLIP_MAX..=USUAL_PREFIX.len() + SLIP_MAX;
    let mut starts = around.filter_map(|end| text.get(..end));
    let is_near = starts.any(|start| start.ends_with(':') && is_slip(start, USUAL_PREFIX));
    is_near.then(|| format!("its prefix is almost \"{USUAL_PREFIX}\""))
}

/// Returns true if one slip of the keyboard makes one text of the other: they differ in case only,
/// or in at most two adjacent characters.
#[must_use]
pub fn is_slip(one: &str, other: &str) -> bool {
    if one == other || one.eq_ignore_ascii_case(other) {
        return one != other;
    }
    let pairs = || one.bytes().zip(other.bytes());
    let shorter = one.len().min(other.len());
    let start = pairs().take_while(|(a, b)| a == b).count();
    let backwards = one.bytes().rev().zip(other.bytes().rev());
    let end = backwards.take(shorter - start).take_while(|(a, b)| a == b);
    let same = start + end.count();
    one.len().max(other.len()) - same <= SLIP_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_one_place_of_two_characters() {
        let name = "nqn.2024-01.com.example:db1";
        for slip in [
            "nqn.2024-01.com.example:db2",
            "nqn.2024-01.com.exmaple:db1",
            "nqn.2024-01.com.example:db11",
            "nqn.2024-01.com.exaple:db1",
            "NQN.2024-01.com.example:DB1",
        ] {
            assert!(is_slip(name, slip) && is_slip(slip, name), "{slip}");
        }
        for other in [
            name,
            "",
            "nqn.2024-01.com.example:web",
            "nqn.2025-01.com.example:db2",
        ] {
            assert!(!is_slip(name, other) && !is_slip(other, name), "{other}");
        }
        assert!(is_slip("aa", "aaa") && !is_slip("", ""));
    }

    #[test]
    fn a_host_is_doubtful_without_the_format_or_near_the_usual_prefix() {
        let doubt = |text: &str| host_doubt(&Nqn::parse(text).unwrap());
        let uuid = "7f2b2c3a-0000-4000-8000-000000000001";
        assert_eq!(doubt(&format!("{USUAL_PREFIX}{uuid}")), None);
        assert_eq!(doubt("nqn.2024-01.com.example:db1"), None);
        assert!(
            doubt("iqn.2024-01.com.example:db1")
                .unwrap()
                .contains("not an NQN")
        );
        let near = doubt(&format!("nqn.2014-08.org.nvmexpres:uuid:{uuid}"));
        assert!(near.unwrap().contains("almost"));
    }
}
