//! Terminal view of one table at a time, sorted by a selectable column.

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell as Drawn, Paragraph, Row, Table as Grid};

use super::fit::{self, Fitted};
use super::rates::Rates;
use super::tables::{self, Table, Tone};
use super::text;

const KEYS: &str = "q quit  Tab 1-4 table  < > sort by  r reverse  arrows scroll  space pause";

const PAGE_ROWS: usize = 10;

#[derive(Debug)]
pub(super) struct View {
    from: String,
    has_colours: bool,
    rates: Option<Rates>,
    problem: Option<String>,
    is_paused: bool,
    chosen: usize,
    orders: [Option<Order>; 4],
    above: [usize; 4],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    column: usize,
    descending: bool,
}

impl View {
    pub(super) fn new(from: String, has_colours: bool) -> Self {
        Self {
            from,
            has_colours,
            rates: None,
            problem: None,
            is_paused: false,
            chosen: 0,
            orders: [None; 4],
            above: [0; 4],
        }
    }

    pub(super) fn take(&mut self, reading: Result<Rates, String>) {
        if self.is_paused {
            return;
        }
        match reading {
            Ok(rates) => {
                self.rates = Some(rates);
                self.problem = None;
            }
            Err(problem) => self.problem = Some(problem),
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return true;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return false,
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char(digit @ '1'..='4') => self.chosen = digit as usize - '1' as usize,
            KeyCode::Tab | KeyCode::Right => self.chosen = (self.chosen + 1) % 4,
            KeyCode::BackTab | KeyCode::Left => self.chosen = (self.chosen + 3) % 4,
            KeyCode::Char('>' | '.') => self.reorder(|order, columns| Order {
                column: (order.column + 1) % columns,
                ..order
            }),
            KeyCode::Char('<' | ',') => self.reorder(|order, columns| Order {
                column: (order.column + columns - 1) % columns,
                ..order
            }),
            KeyCode::Char('r') => self.reorder(|order, _| Order {
                descending: !order.descending,
                ..order
            }),
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Down | KeyCode::Char('j') => self.scroll(|above| above + 1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(|above| above.saturating_sub(1)),
            KeyCode::PageDown => self.scroll(|above| above + PAGE_ROWS),
            KeyCode::PageUp => self.scroll(|above| above.saturating_sub(PAGE_ROWS)),
            KeyCode::Home => self.scroll(|_| 0),
            KeyCode::End => self.scroll(|_| usize::MAX / 2),
            _ => {}
        }
        true
    }

    fn scroll(&mut self, to: impl FnOnce(usize) -> usize) {
        let above = &mut self.above[self.chosen];
        *above = to(*above);
    }

    fn reorder(&mut self, change: impl FnOnce(Order, usize) -> Order) {
        let Some(rates) = &self.rates else { return };
        let table = &tables::all(rates)[self.chosen];
        let order = change(self.order(table), table.columns.len());
        self.orders[self.chosen] = Some(order);
    }

    fn order(&self, table: &Table) -> Order {
        self.orders[self.chosen].unwrap_or(Order {
            column: table.first_sort,
            descending: true,
        })
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let Some(rates) = &self.rates else {
            let wait = self.problem.as_deref().unwrap_or("reading ...");
            frame.render_widget(Paragraph::new(wait), frame.area());
            return;
        };
        let mut head = vec![Line::from(text::heading(rates, &self.from)), totals(rates)];
        head.extend(text::refused(rates).map(|line| Line::styled(line, self.style(Tone::Bad))));
        if let Some(problem) = &self.problem {
            head.push(Line::styled(problem.clone(), self.style(Tone::Bad)));
        }
        let tables = tables::all(rates);
        head.push(Line::default());
        head.push(self.tabs(&tables));
        let height = u16::try_from(head.len()).unwrap_or(u16::MAX);
        let areas = Layout::vertical([
            Constraint::Length(height),
            Constraint::Min(0),
            Constraint::Length(1),
        ]);
        let [above, middle, below] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(head), above);
        let state = if self.is_paused { "PAUSED  " } else { "" };
        let keys = Line::styled(format!("{state}{KEYS}"), self.style(Tone::Idle));
        frame.render_widget(Paragraph::new(keys), below);
        let table = tables.into_iter().nth(self.chosen);
        self.draw_table(frame, middle, table.expect("one of four is chosen"));
    }

    fn tabs(&self, tables: &[Table; 4]) -> Line<'static> {
        let spans = tables.iter().enumerate().flat_map(|(at, table)| {
            let label = format!(" {}: {} ({}) ", at + 1, table.name, table.rows.len());
            let style = if at == self.chosen {
                Style::new().add_modifier(Modifier::REVERSED)
            } else {
                Style::new()
            };
            [Span::styled(label, style), Span::raw(" ")]
        });
        Line::from(spans.collect::<Vec<_>>())
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect, mut table: Table) {
        let order = self.order(&table);
        table.rows.sort_by(|one, other| {
            let ordering = one[order.column].compare(&other[order.column]);
            if order.descending {
                ordering.reverse()
            } else {
                ordering
            }
        });
        let shown = usize::from(area.height.saturating_sub(1));
        let above = &mut self.above[self.chosen];
        *above = (*above).min(table.rows.len().saturating_sub(shown));
        let above = *above;
        let fitted = fit::columns(&table, area.width, order.column);
        let head = Row::new(fitted.iter().map(|fitted| {
            let title = table.columns[fitted.column].title;
            let mark = match (fitted.column == order.column, order.descending) {
                (false, _) => "",
                (true, true) => "v",
                (true, false) => "^",
            };
            Drawn::from(aligned(&table, fitted, format!("{title}{mark}")))
        }));
        let rows = table.rows.iter().skip(above).take(shown).map(|row| {
            Row::new(fitted.iter().map(|fitted| {
                let cell = &row[fitted.column];
                let text = fit::end_of(&cell.text, fitted.width);
                Drawn::from(aligned(&table, fitted, text)).style(self.style(cell.tone))
            }))
        });
        let widths = fitted.iter().map(|f| Constraint::Length(f.width));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let grid = Grid::new(rows, widths)
            .header(head.style(bold))
            .column_spacing(fit::SPACING);
        frame.render_widget(grid, area);
    }

    fn style(&self, tone: Tone) -> Style {
        let (colour, modifier) = match tone {
            Tone::Plain => return Style::new(),
            Tone::Idle => (Color::DarkGray, Modifier::DIM),
            Tone::Warning => (Color::Yellow, Modifier::BOLD),
            Tone::Bad => (Color::Red, Modifier::BOLD),
        };
        if self.has_colours {
            Style::new().fg(colour)
        } else {
            Style::new().add_modifier(modifier)
        }
    }
}

fn aligned(table: &Table, fitted: &Fitted, text: String) -> Line<'static> {
    let is_name = table.columns[fitted.column].is_name;
    Line::from(text).alignment(if is_name {
        Alignment::Left
    } else {
        Alignment::Right
    })
}

fn totals(rates: &Rates) -> Line<'static> {
    let sum = |of: fn(&super::rates::Load) -> f64| {
        let loads = rates.namespaces.iter().map(|one| of(&one.load));
        loads.fold(0.0, |sum, load| sum + load)
    };
    Line::from(format!(
        "read {}/s, {:.1} MiB/s; write {}/s, {:.1} MiB/s",
        tables::rate(sum(|load| load.reads_per_s)),
        sum(|load| load.read_bytes_per_s) / tables::MIB,
        tables::rate(sum(|load| load.writes_per_s)),
        sum(|load| load.written_bytes_per_s) / tables::MIB,
    ))
}

#[cfg(test)]
mod tests;
