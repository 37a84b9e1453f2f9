//! Numbers with their nouns, for sentences.

pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = match (number, noun.ends_with('s')) {
        (1, _) => "",
        (_, false) => "s",
        (_, true) => "es",
    };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_noun_is_no_plural() {
        let counted = [(0, "host"), (1, "host"), (1, "address"), (2, "address")];
        let counted = counted.map(|(number, noun)| count(number, noun));
        assert_eq!(counted, ["0 hosts", "1 host", "1 address", "2 addresses"]);
    }
}
