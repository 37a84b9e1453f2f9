/// Text table; each column is as wide as its widest cell.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    #[must_use]
    pub fn new(names: &[&str]) -> Self {
        let mut table = Self::default();
        table.row(names.iter().map(|name| (*name).to_owned()).collect());
        table
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    #[must_use]
    pub fn text(&self, indent: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = indent.to_owned();
            for (cell, &width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let mut table = Table::new(&["A", "LONG"]);
        table.row(vec!["wide".into(), "x".into()]);
        assert_eq!(table.text(" "), " A     LONG\n wide  x\n");
    }
}
