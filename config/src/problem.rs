use std::fmt;

use crate::secret::without_secrets;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    message: String,
    source: Option<Excerpt>,
    help: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// Position (`cairn.toml:7:1`), file (`cairn.toml`) or option (`--export mem:10X`).
    spot: String,
    line: Option<SourceLine>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceLine {
    number: usize,
    column: usize,
    text: String,
    marked_chars: usize,
}

impl ConfigError {
    pub(crate) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(Problem::order);
        problems.dedup();
        Self { problems }
    }

    /// Returns the problems in the order of the file.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl Problem {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: without_secrets(&message.into()).into_owned(),
            source: None,
            help: None,
        }
    }

    pub(crate) fn located(mut self, excerpt: Excerpt) -> Self {
        self.source = Some(excerpt);
        self
    }

    pub(crate) fn help(&mut self, help: impl Into<String>) {
        self.help = Some(help.into());
    }

    /// Returns the description without position and help.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns line and column, counted from 1, if the problem is in a file.
    #[must_use]
    pub fn line_column(&self) -> Option<(usize, usize)> {
        let line = self.source.as_ref()?.line.as_ref()?;
        Some((line.number, line.column))
    }

    fn order(&self) -> (bool, usize, usize) {
        match self.line_column() {
            Some((line, column)) => (false, line, column),
            None => (true, 0, 0),
        }
    }
}

impl Excerpt {
    pub(crate) fn of_line(
        file: &str,
        number: usize,
        column: usize,
        text: &str,
        marked_chars: usize,
    ) -> Self {
        Self {
            spot: format!("{file}:{number}:{column}"),
            line: Some(SourceLine {
                number,
                column,
                text: without_secrets(text).into_owned(),
                marked_chars,
            }),
        }
    }

    pub(crate) fn of_file(file: &str) -> Self {
        Self {
            spot: file.to_owned(),
            line: None,
        }
    }

    pub(crate) fn of_flag(flag: &str) -> Self {
        Self {
            spot: flag.to_owned(),
            line: None,
        }
    }

    pub(crate) fn reference(&self) -> String {
        match &self.line {
            Some(line) => format!("line {}", line.number),
            None => self.spot.clone(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        let source = self.source.as_ref();
        if let Some(excerpt) = source.filter(|excerpt| !excerpt.spot.is_empty()) {
            write!(f, "\n  --> {}", excerpt.spot)?;
            if let Some(line) = &excerpt.line {
                write!(f, "{line}")?;
            }
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number.to_string();
        let margin = " ".repeat(number.len());
        let text: String = self.text.chars().map(shown).collect();
        let (before, marked): (Vec<_>, Vec<_>) =
            (self.text.chars().enumerate()).partition(|(index, _)| *index < self.column - 1);
        let indent = before.into_iter().map(|(_, c)| match c {
            '\t' => c.to_string(),
            _ => " ".repeat(shown(c).chars().count()),
        });
        let indent: String = indent.collect();
        let extra = marked.into_iter().take(self.marked_chars);
        let extra: usize = extra.map(|(_, c)| shown(c).chars().count() - 1).sum();
        let mark = "^".repeat(self.marked_chars + extra);
        write!(
            f,
            "\n{margin} |\n{number} | {text}\n{margin} | {indent}{mark}"
        )
    }
}

fn shown(c: char) -> String {
    match c.is_control() && c != '\t' {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    }
}
