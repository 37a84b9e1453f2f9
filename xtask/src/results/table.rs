use super::figure::number;
use super::{Results, Row};

pub(crate) fn terminal(results: &Results) -> String {
    let mut text = String::new();
    for group in results.groups() {
        let grid = Grid::of(results, group);
        text += &format!("\n{group}\n{}", grid.aligned());
    }
    text
}

pub(crate) fn markdown(results: &Results) -> String {
    let mut text = format!("# {}\n\n{}\n", results.name, results.machine.summary());
    for note in &results.notes {
        text += &format!("\n{note}\n");
    }
    for group in results.groups() {
        let grid = Grid::of(results, group);
        text += &format!("\n## {group}\n\n{}", grid.piped());
    }
    for source in sources(results) {
        text += &format!("\nMarks: {source}.\n");
    }
    text
}

fn sources(results: &Results) -> Vec<&str> {
    let mut sources: Vec<&str> = Vec::new();
    for mark in results.rows.iter().filter_map(|row| row.mark.as_ref()) {
        if !sources.contains(&mark.source.as_str()) {
            sources.push(&mark.source);
        }
    }
    sources
}

pub(super) struct Grid(pub(super) Vec<Vec<String>>);

impl Grid {
    fn of(results: &Results, group: &str) -> Self {
        let rows: Vec<&Row> = results.group(group).collect();
        let mut names: Vec<(&str, String)> = Vec::new();
        for metric in rows.iter().flat_map(|row| &row.metrics) {
            if !names.iter().any(|(name, _)| *name == metric.name) {
                names.push((&metric.name, metric.head()));
            }
        }
        let has_marks = rows.iter().any(|row| row.mark.is_some());
        let mut head = vec![String::new()];
        head.extend(names.iter().map(|(_, head)| head.clone()));
        head.insert(2.min(head.len()), "min - max".to_owned());
        if has_marks {
            head.extend(["mark".to_owned(), "of the mark".to_owned()]);
        }
        let mut grid = vec![head];
        for row in rows {
            let mut cells = vec![row.name.clone()];
            for (at, (name, _)) in names.iter().enumerate() {
                let metric = row.metric(name);
                cells.push(metric.map_or(String::new(), |metric| number(metric.median())));
                if at == 0 {
                    cells.push(metric.map_or(String::new(), |metric| {
                        format!("{} - {}", number(metric.min()), number(metric.max()))
                    }));
                }
            }
            if has_marks {
                cells.extend(mark_cells(row));
            }
            grid.push(cells);
        }
        Self(grid)
    }

    pub(super) fn aligned(&self) -> String {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.0 {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                line += &match column {
                    0 => format!("  {cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    pub(super) fn piped(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        let Some((head, rows)) = self.0.split_first() else {
            return String::new();
        };
        let rule = "|---".to_owned() + &"|---:".repeat(head.len() - 1) + "|\n";
        line(head) + &rule + &rows.iter().map(line).collect::<String>()
    }
}

fn mark_cells(row: &Row) -> [String; 2] {
    let found = row
        .mark
        .as_ref()
        .and_then(|mark| Some((mark, row.metric(&mark.metric)?)));
    match found {
        Some((mark, metric)) => [
            format!("{} {}", mark.range(), metric.name),
            mark.ratio(metric),
        ],
        None => Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::one_row;
    use super::*;
    use crate::results::{Better, Mark, Metric};

    #[test]
    fn a_table_has_median_range_and_mark() {
        let mut results = one_row(Better::Higher, &[30_000.0, 10_000.0, 20_000.0]);
        let p99 = Metric::once("p99", "us", Better::Lower, 12.5);
        results.record("soft mem", "randread 4k qd1", vec![p99]);
        let slower = Metric::once("IOPS", "1/s", Better::Higher, 5.0);
        results.record("soft mem", "a", vec![slower]);
        results.rows[0].mark = Some(Mark {
            metric: "IOPS".into(),
            low: 10_000.0,
            high: 10_000.0,
            source: "another program".into(),
        });
        assert_eq!(
            terminal(&results),
            "\nsoft mem\n\
             \x20                  IOPS [1/s]        min - max  p99 [us]         mark  of the mark\n\
             \x20 randread 4k qd1      20,000  10,000 - 30,000      12.5  10,000 IOPS         2.00\n\
             \x20 a                      5.00      5.00 - 5.00\n"
        );
        let page = markdown(&results);
        for line in [
            "|  | IOPS [1/s] | min - max | p99 [us] | mark | of the mark |",
            "|---|---:|---:|---:|---:|---:|",
            "| randread 4k qd1 | 20,000 | 10,000 - 30,000 | 12.5 | 10,000 IOPS | 2.00 |",
            "Marks: another program.",
        ] {
            assert!(
                page.lines().any(|found| found == line),
                "{line}\nin\n{page}"
            );
        }
    }
}
