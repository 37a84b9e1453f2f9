//! Suggestions of similar words ("did you mean").

/// Minimum Jaro-Winkler similarity, from 0 to 1, of a suggested word.
const LIKENESS_MIN: f64 = 0.8;

pub(crate) fn nearest<'a>(
    typed: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    words
        .into_iter()
        .map(|word| (strsim::jaro_winkler(&typed, word), word))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, word)| word)
}

pub(crate) fn choices<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = words
        .into_iter()
        .map(|word| format!("\"{word}\""))
        .collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised() {
        let keys = ["address", "port", "provider", "backlog"];
        assert_eq!(nearest("adress", keys), Some("address"));
        assert_eq!(nearest("Provider", keys), Some("provider"));
        assert_eq!(nearest("prot", keys), Some("port"));
        assert_eq!(nearest("colour", keys), None);
    }

    #[test]
    fn choices_read_as_a_sentence() {
        assert_eq!(choices(["a"]), "\"a\"");
        assert_eq!(choices(["a", "b", "c"]), "\"a\", \"b\" or \"c\"");
    }
}
