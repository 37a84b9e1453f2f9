//! Words of commands that users paste into a shell.

/// Quotes a word, which may come from another machine, so that a shell reads it literally. Returns
/// `placeholder` for a word with a null byte, which cannot be an argument.
#[must_use]
pub fn shell_word(text: &str, placeholder: &str) -> String {
    shlex::try_quote(text).map_or_else(|_| placeholder.to_owned(), |word| word.into_owned())
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(
            shell_word("nqn.2024-01.com.example:a", "NQN"),
            "nqn.2024-01.com.example:a"
        );
        assert_eq!(shell_word("a b;c", "NQN"), "'a b;c'");
        assert_eq!(shell_word("a\0b", "NQN"), "NQN");
    }
}
