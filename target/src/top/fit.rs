use super::tables::Table;

pub(super) const SPACING: u16 = 1;

const NAME_WIDTH: u16 = 24;
const NAME_WIDTH_MIN: u16 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fitted {
    pub(super) column: usize,
    pub(super) width: u16,
}

/// Returns the columns that fit into `width`. Shortens names, drops columns of the highest rank but
/// never column `kept`, then gives the remaining width to names.
pub(super) fn columns(table: &Table, width: u16, kept: usize) -> Vec<Fitted> {
    let full = |column: usize| {
        let cells = table
            .rows
            .iter()
            .map(|row| row[column].text.chars().count());
        let title = table.columns[column].title.chars().count() + 1;
        let widest = cells.max().unwrap_or(0).max(title);
        u16::try_from(widest).unwrap_or(u16::MAX)
    };
    let is_name = |column: usize| table.columns[column].is_name;
    let short = |column: usize, most: u16| match full(column) {
        full if is_name(column) => full.min(most),
        full => full,
    };
    let mut shown: Vec<Fitted> = (0..table.columns.len())
        .map(|column| Fitted {
            column,
            width: short(column, NAME_WIDTH),
        })
        .collect();
    while needed(&shown) > u32::from(width) {
        let rank = |at: &usize| table.columns[shown[*at].column].rank;
        let may_go = |at: &usize| shown[*at].column != kept && rank(at) > 0;
        let Some(gone) = (0..shown.len()).filter(may_go).max_by_key(rank) else {
            break;
        };
        shown.remove(gone);
    }
    for at in 0..shown.len() {
        let others = needed(&shown) - u32::from(shown[at].width);
        let left = u32::from(width).saturating_sub(others);
        let left = u16::try_from(left).unwrap_or(u16::MAX);
        if is_name(shown[at].column) {
            let most = full(shown[at].column);
            shown[at].width = most.min(left.max(NAME_WIDTH_MIN));
        }
    }
    shown
}

fn needed(shown: &[Fitted]) -> u32 {
    let widths: u32 = shown.iter().map(|fitted| u32::from(fitted.width)).sum();
    let gaps = u32::try_from(shown.len().saturating_sub(1)).unwrap_or(u32::MAX);
    widths + gaps * u32::from(SPACING)
}

/// Shortens a name to its end, because host names usually differ there.
pub(super) fn end_of(text: &str, width: u16) -> String {
    let (width, length) = (usize::from(width), text.chars().count());
    if length <= width {
        return text.to_owned();
    }
    let kept = text.chars().skip(length - width.saturating_sub(1));
    std::iter::once('…').chain(kept).take(width).collect()
}
