//! Results of a benchmark, saved as JSON, tables and plots. A [`Row`] is a workload; a [`Metric`]
//! is one quantity with its samples.

mod comparison;
mod figure;
mod machine;
mod mark;
mod plot;
mod table;

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

pub(crate) use comparison::Comparison;
pub(crate) use figure::{Better, Metric};
pub(crate) use machine::Machine;
pub(crate) use mark::{Mark, Marks};
pub(crate) use plot::{Curve, Point, bars, curves};
pub(crate) use table::{markdown, terminal};

/// Version of the JSON, incremented when fields change their meaning.
const FORMAT: u32 = 1;

const DOCUMENT: &str = "results.json";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    format: u32,
    pub(crate) name: String,
    pub(crate) began_s: u64,
    pub(crate) machine: Machine,
    pub(crate) notes: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) metrics: Vec<Metric>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<Mark>,
}

impl Results {
    pub(crate) fn begin(name: impl Into<String>, machine: Machine) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            format: FORMAT,
            name: name.into(),
            began_s: now.map_or(0, |now| now.as_secs()),
            machine,
            notes: Vec::new(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !groups.contains(&row.group.as_str()) {
                groups.push(&row.group);
            }
        }
        groups
    }

    pub(crate) fn group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter(move |row| row.group == group)
    }

    pub(crate) fn row(&self, group: &str, name: &str) -> Option<&Row> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.group == group && row.name == name)
    }

    pub(crate) fn record(&mut self, group: &str, name: &str, sample: Vec<Metric>) {
        let known = self
            .rows
            .iter_mut()
            .find(|row| row.group == group && row.name == name);
        match known {
            Some(row) => row.add(sample),
            None => self.rows.push(Row {
                group: group.to_owned(),
                name: name.to_owned(),
                metrics: sample,
                mark: None,
            }),
        }
    }

    pub(crate) fn load(path: &Path) -> Result<Self> {
        let file = if path.is_dir() {
            path.join(DOCUMENT)
        } else {
            path.to_owned()
        };
        let text = fs::read_to_string(&file).with_context(|| {
            format!(
                "no results in {}: name a folder that `cargo xtask bench` wrote, or its {DOCUMENT}",
                file.display()
            )
        })?;
        Self::parse(&text).with_context(|| file.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let results: Self = serde_json::from_str(text).context("these are no results")?;
        ensure!(
            results.format == FORMAT,
            "results of format {}, and only {FORMAT} is known here: use the commit that wrote them",
            results.format
        );
        Ok(results)
    }

    pub(crate) fn save(&self, folder: &Path) -> Result<()> {
        let mut json = serde_json::to_string_pretty(self)?;
        json.push('\n');
        for (name, text) in [(DOCUMENT, json), ("README.md", markdown(self))] {
            let file = folder.join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }
}

impl Row {
    pub(crate) fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    fn add(&mut self, sample: Vec<Metric>) {
        for metric in sample {
            match self.metrics.iter_mut().find(|own| own.name == metric.name) {
                Some(own) => own.samples.extend(metric.samples),
                None => self.metrics.push(metric),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn one_row(better: Better, samples: &[f64]) -> Results {
        let mut results = Results::begin("test", Machine::default());
        for sample in samples {
            let metric = Metric::once("IOPS", "1/s", better, *sample);
            results.record("soft mem", "randread 4k qd1", vec![metric]);
        }
        results
    }

    #[test]
    fn repetitions_come_together() {
        let mut results = one_row(Better::Higher, &[1.0, 2.0]);
        let other = Metric::once("IOPS", "1/s", Better::Higher, 3.0);
        results.record("soft mem", "randread 4k qd32", vec![other]);
        assert_eq!(results.rows.len(), 2);
        assert_eq!(results.rows[0].metrics[0].samples, [1.0, 2.0]);
        assert_eq!(results.groups(), ["soft mem"]);
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = one_row(Better::Lower, &[1.5, 2.0e9, 0.25]);
        results.notes.push("a \"note\"".into());
        results.rows[0].mark = Some(Mark {
            metric: "IOPS".into(),
            low: 48_000.0,
            high: 62_000.0,
            source: "elsewhere".into(),
        });
        results.save(folder.path()).unwrap();
        assert_eq!(Results::load(folder.path()).unwrap(), results);
        let file = folder.path().join(DOCUMENT);
        assert_eq!(Results::load(&file).unwrap(), results);
    }

    #[test]
    fn what_is_no_document_is_refused_with_a_reason() {
        let text = serde_json::to_string(&one_row(Better::Higher, &[1.0])).unwrap();
        let newer = text.replace("\"format\":1", "\"format\":2");
        let error = Results::parse(&newer).unwrap_err().to_string();
        assert!(error.contains("format 2"), "{error}");
        assert!(Results::parse("{}").is_err());
        let error = Results::load(Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
    }
}
