//! Parser for the subset of PromQL that the dashboard uses.

use std::collections::BTreeSet;

const AGGREGATIONS: [&str; 5] = ["avg", "count", "max", "min", "sum"];
const OF_RANGES: [&str; 2] = ["increase", "rate"];
const OPERATORS: [&str; 10] = ["==", "!=", ">=", "<=", ">", "<", "+", "-", "*", "/"];
const MATCHES: [&str; 4] = ["=~", "!~", "!=", "="];

#[derive(Debug, Default)]
pub(crate) struct Query {
    pub(crate) selected: Vec<(String, Vec<String>)>,
    pub(crate) grouped: BTreeSet<String>,
}

impl Query {
    pub(crate) fn parse(expression: &str) -> Result<Self, String> {
        let mut reader = Reader {
            rest: expression.trim_start(),
            query: Self::default(),
        };
        reader.instant()?;
        match reader.rest {
            "" => Ok(reader.query),
            rest => Err(format!("{rest:?} follows a complete expression")),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Yields {
    Instant,
    Range,
}

struct Reader<'a> {
    rest: &'a str,
    query: Query,
}

impl<'a> Reader<'a> {
    fn instant(&mut self) -> Result<(), String> {
        let before = self.rest;
        match self.expression()? {
            Yields::Instant => Ok(()),
            Yields::Range => Err(format!("a range vector where none may be: {before:?}")),
        }
    }

    fn expression(&mut self) -> Result<Yields, String> {
        let mut yields = self.operand()?;
        while OPERATORS.iter().any(|operator| self.takes(operator)) {
            let right = self.operand()?;
            if yields == Yields::Range || right == Yields::Range {
                return Err("an operator beside a range vector".to_owned());
            }
            yields = Yields::Instant;
        }
        Ok(yields)
    }

    fn operand(&mut self) -> Result<Yields, String> {
        if self.takes("(") {
            let yields = self.expression()?;
            self.expect(")")?;
            return Ok(yields);
        }
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            self.word(|c| c.is_ascii_digit() || c == '.')
                .parse::<f64>()
                .map_err(|error| error.to_string())?;
            return Ok(Yields::Instant);
        }
        let name = self.name()?;
        if AGGREGATIONS.contains(&name) {
            if self.takes("by") {
                let labels = self.list("(", ")", Self::name)?;
                self.query
                    .grouped
                    .extend(labels.into_iter().map(str::to_owned));
            }
            self.in_parentheses(Self::instant)?;
        } else if OF_RANGES.contains(&name) {
            self.in_parentheses(|reader| match reader.expression()? {
                Yields::Range => Ok(()),
                Yields::Instant => Err(format!("{name} of what is no range vector")),
            })?;
        } else if name == "histogram_quantile" {
            self.in_parentheses(|reader| {
                reader.instant()?;
                reader.expect(",")?;
                reader.instant()
            })?;
        } else if name == "scalar" {
            self.in_parentheses(Self::instant)?;
        } else {
            return self.selector(name);
        }
        Ok(Yields::Instant)
    }

    fn selector(&mut self, name: &str) -> Result<Yields, String> {
        let mut labels = Vec::new();
        if self.rest.starts_with('{') {
            labels = self.list("{", "}", Self::matcher)?;
        }
        self.query.selected.push((name.to_owned(), labels));
        if !self.takes("[") {
            return Ok(Yields::Instant);
        }
        let length = self.word(|c| c.is_ascii_digit());
        let unit = self.word(|c| c.is_ascii_alphabetic());
        if length.is_empty() || !["ms", "s", "m", "h", "d"].contains(&unit) {
            return Err(format!("no duration: {length:?} {unit:?}"));
        }
        self.expect("]")?;
        Ok(Yields::Range)
    }

    fn matcher(&mut self) -> Result<String, String> {
        let label = self.name()?.to_owned();
        if !MATCHES.iter().any(|operator| self.takes(operator)) {
            return Err(format!("no operator after the label {label}"));
        }
        self.expect("\"")?;
        let value = self.rest.split_once('"');
        let (value, rest) = value.ok_or_else(|| format!("the value of {label} has no end"))?;
        if value.contains('\\') {
            return Err(format!("escapes are not known here: {value}"));
        }
        self.rest = rest.trim_start();
        Ok(label)
    }

    fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        item: impl Fn(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        self.expect(open)?;
        let mut items = vec![item(self)?];
        while self.takes(",") {
            items.push(item(self)?);
        }
        self.expect(close)?;
        Ok(items)
    }

    fn in_parentheses(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect("(")?;
        inner(self)?;
        self.expect(")")
    }

    fn name(&mut self) -> Result<&'a str, String> {
        let before = self.rest;
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("no name: {before:?}"));
        }
        Ok(name)
    }

    fn word(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !fits(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn takes(&mut self, symbol: &str) -> bool {
        let rest = self.rest.strip_prefix(symbol);
        self.rest = rest.map_or(self.rest, str::trim_start);
        rest.is_some()
    }

    fn expect(&mut self, symbol: &str) -> Result<(), String> {
        if self.takes(symbol) {
            Ok(())
        } else {
            Err(format!("{symbol:?} is missing before {:?}", self.rest))
        }
    }
}

#[test]
fn names_and_labels_are_found() {
    let text = "sum by (stage) (rate(a_sum{op=\"read\", stage!=\"x\"}[5m])) / scalar(sum(b)) > 0";
    let query = Query::parse(text).unwrap();
    let selected: Vec<_> = query
        .selected
        .iter()
        .map(|(name, labels)| (name.as_str(), labels.len()))
        .collect();
    assert_eq!(selected, [("a_sum", 2), ("b", 0)]);
    assert_eq!(query.grouped, BTreeSet::from(["stage".to_owned()]));
    Query::parse("histogram_quantile(0.99, sum by (le, op) (rate(c_bucket[1h])))").unwrap();
}

#[test]
fn what_prometheus_does_not_take_is_an_error() {
    for wrong in [
        "",
        "sum(rate(cairn_host_ios_total[5m])",
        "rate(cairn_host_ios_total)",
        "sum by host (cairn_host_ios_total)",
        "cairn_host_ios_total{op=read}",
        "cairn_host_ios_total{op=\"read}",
        "cairn_host_ios_total{op \"read\"}",
        "cairn_host_ios_total[5m]",
        "cairn_host_ios_total[5]",
        "sum(cairn_host_ios_total[5m])",
        "a b",
        "a /",
        "histogram_quantile(a_bucket)",
        "1a",
    ] {
        assert!(Query::parse(wrong).is_err(), "{wrong}");
    }
}
