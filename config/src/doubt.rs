use nvme_proto::wire::Nqn;

const USUAL_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

const SLIP_MAX: usize = 2;

/// Returns the reason why `host` is probably mistyped, if it is.
#[must_use]
pub fn host_doubt(host: &Nqn) -> Option<String> {
    if let Some(why) = host.irregularity() {
        return Some(format!("no host has such a name: it is not an NQN: {why}"));
    }
    let text = host.raw();
    if text.starts_with(USUAL_PREFIX) {
        return None;
    }
    let around = USUAL_PREFIX.len() - SLIP_MAX..=USUAL_PREFIX.len() + SLIP_MAX;
    let mut starts = around.filter_map(|end| text.get(..end));
    let is_near = starts.any(|start| start.ends_with(':') && is_near(start, USUAL_PREFIX));
    is_near.then(|| format!("its prefix is almost \"{USUAL_PREFIX}\""))
}

/// True if the names differ only by a probable typing error: in letter case, or in at most two
/// adjacent characters. Different counters, as in host1 and host2, are no typing errors.
#[must_use]
pub fn is_slip(one: &str, other: &str) -> bool {
    one != other && is_near(one, other) && !are_counted(one, other)
}

/// Returns the name most similar to `typed`, if at most two typing errors separate the two.
#[must_use]
pub fn nearest_name<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Maximum length in bytes of the differing part, because a comparison takes quadratic time.
    const DIFFERENT_MAX: usize = 16;
    let distance = |name: &str| {
        let [start, end] = common_ends(typed, name);
        let [a, b] = [typed, name].map(|text| &text.as_bytes()[start..text.len() - end]);
        (a.len().max(b.len()) <= DIFFERENT_MAX)
            .then(|| strsim::generic_damerau_levenshtein(a, b))
            .filter(|distance| *distance <= SLIP_MAX)
    };
    let near = names
        .into_iter()
        .filter_map(|name| Some((distance(name)?, name)));
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

fn is_near(one: &str, other: &str) -> bool {
    let same: usize = common_ends(one, other).into_iter().sum();
    one.eq_ignore_ascii_case(other) || one.len().max(other.len()) - same <= SLIP_MAX
}

fn common_ends(one: &str, other: &str) -> [usize; 2] {
    let shorter = one.len().min(other.len());
    let start = one.bytes().zip(other.bytes());
    let start = start.take_while(|(a, b)| a == b).count();
    let end = one.bytes().rev().zip(other.bytes().rev());
    let end = end.take(shorter - start).take_while(|(a, b)| a == b);
    [start, end.count()]
}

/// True if the texts differ in a number, or in one letter from a to h at the end of a word. The
/// difference must follow the first colon, and not be in a UUID.
fn are_counted(one: &str, other: &str) -> bool {
    let [start, end] = common_ends(one, other);
    if !one[..start].contains(':') || one[..start].contains(":uuid:") {
        return false;
    }
    let [before, after] = [&one.as_bytes()[..start], &one.as_bytes()[one.len() - end..]];
    let number_ends = [before.last(), after.first()].into_iter().flatten();
    let borders_number = number_ends.clone().any(u8::is_ascii_digit);
    let [a, b] = [one, other].map(|text| &text.as_bytes()[start..text.len() - end]);
    if a.iter().chain(b).all(u8::is_ascii_digit) {
        return borders_number || !a.is_empty() && !b.is_empty();
    }
    let counts = |letter: &u8| matches!(letter.to_ascii_lowercase(), b'a'..=b'h');
    let is_end = after
        .first()
        .is_none_or(|next| !next.is_ascii_alphanumeric());
    matches!((a, b), ([a], [b]) if is_end && counts(a) && counts(b) && !a.eq_ignore_ascii_case(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_one_place_of_two_characters() {
        let name = "nqn.2024-01.com.example:db1";
        for slip in [
            "nqn.2024-01.com.example:dc1",
            "nqn.2024-02.com.example:db1",
            "nqn.2024-01.com.exmaple:db1",
            "nqn.2024-01.com.example:db",
            "nqn.2024-01.com.example:dbq",
            "nqn.2024-01.com.exaple:db1",
            "NQN.2024-01.com.example:DB1",
        ] {
            assert!(is_slip(name, slip) && is_slip(slip, name), "{slip}");
        }
        for other in [
            name,
            "",
            "nqn.2024-01.com.example:web",
            "nqn.2025-01.com.example:dc1",
            "nqn.2024-01.com.example:db2",
            "nqn.2024-01.com.example:db11",
            "nqn.2024-01.com.example:db01",
        ] {
            assert!(!is_slip(name, other) && !is_slip(other, name), "{other}");
        }
        assert!(is_slip("aa", "aaa") && !is_slip("", ""));
    }

    #[test]
    fn the_nearest_name_is_found_within_two_errors() {
        let names = [
            "nqn.2024-01.com.example:open",
            "nqn.2024-01.com.example:disks",
        ];
        let of = |typed: &str| nearest_name(&format!("nqn.2024-01.com.example:{typed}"), names);
        assert_eq!(of("opne"), Some(names[0]));
        assert_eq!(of("dsik"), Some(names[1]));
        assert_eq!(of("other"), None);
        assert_eq!(of(&"x".repeat(100_000)), None);
        assert_eq!(nearest_name("", names), None);
    }

    #[test]
    fn counted_names_are_no_slips() {
        for (one, other, is) in [
            ("hosta", "hostb", false),
            ("hosta.rack", "hostb.rack", false),
            ("host1", "host2", false),
            ("host9", "host10", false),
            ("esx01", "esx02", false),
            ("esx01.rack", "esx19.rack", false),
            ("hosta", "Hosta", true),
            ("hosta", "hostA", true),
            ("host", "host1", true),
            ("hostl", "host1", true),
            ("mail", "maik", true),
            ("uuid:7f2b2c3a", "uuid:7f2b2c3b", true),
            ("uuid:7f2b2c31", "uuid:7f2b2c32", true),
        ] {
            let [one, other] = [one, other].map(|name| format!("nqn.2024-01.com.example:{name}"));
            assert_eq!(is_slip(&one, &other), is, "{one} {other}");
            assert_eq!(is_slip(&other, &one), is, "{one} {other}");
        }
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
                .starts_with("no host has such a name: it is not an NQN")
        );
        let near = doubt(&format!("nqn.2014-08.org.nvmexpres:uuid:{uuid}"));
        assert!(near.unwrap().contains("almost"));
    }
}
