use std::ops::Range;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::Metric;

const SIZE: (u32, u32) = (800, 480);
const FONT: (&str, u32) = ("sans-serif", 14);
const TITLE: (&str, u32) = ("sans-serif", 18);

pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Point {
    pub(crate) fn at(x: f64, metric: &Metric) -> Self {
        Self {
            x,
            median: metric.median(),
            min: metric.min(),
            max: metric.max(),
        }
    }
}

pub(crate) fn curves(
    path: &Path,
    title: &str,
    (x_label, y_label): (&str, &str),
    curves: &[Curve],
) -> Result<()> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let xs = range(points().map(|point| point.x));
    let top = range(points().map(|point| point.max)).end;
    draw(path, |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, TITLE)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d((xs.start * 0.8..xs.end * 1.25).log_scale(), 0.0..top * 1.08)?;
        chart
            .configure_mesh()
            .x_desc(x_label)
            .y_desc(y_label)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| super::figure::number(*y))
            .label_style(FONT)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (at, curve) in curves.iter().enumerate() {
            let style = Palette99::pick(at).stroke_width(2);
            let line = curve.points.iter().map(|point| (point.x, point.median));
            chart
                .draw_series(LineSeries::new(line, style).point_size(3))?
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            let ranges = curve.points.iter();
            chart.draw_series(ranges.map(|point| {
                PathElement::new([(point.x, point.min), (point.x, point.max)], style)
            }))?;
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(FONT)
            .draw()?;
        Ok(())
    })
}

pub(crate) fn bars(path: &Path, title: &str, unit: &str, rows: &[(String, &Metric)]) -> Result<()> {
    let top = range(rows.iter().map(|(_, metric)| metric.max())).end;
    let height = 90 + 26 * rows.len() as u32;
    draw_sized(path, (SIZE.0, height), |root| {
        let mut chart = ChartBuilder::on(root)
            .caption(title, TITLE)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(230)
            .build_cartesian_2d(0.0..top * 1.05, (0..rows.len()).into_segmented())?;
        let name = |row: &SegmentValue<usize>| match row {
            SegmentValue::CenterOf(at) => rows.get(rows.len().wrapping_sub(at + 1)),
            SegmentValue::Exact(_) | SegmentValue::Last => None,
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_desc(unit)
            .y_labels(rows.len())
            .x_label_formatter(&|x| super::figure::number(*x))
            .y_label_formatter(&|row| name(row).map_or(String::new(), |(name, _)| name.clone()))
            .label_style(FONT)
            .draw()?;
        for (at, (_, metric)) in rows.iter().rev().enumerate() {
            let (low, high) = (SegmentValue::Exact(at), SegmentValue::Exact(at + 1));
            let mut bar = Rectangle::new(
                [(0.0, low), (metric.median(), high)],
                BLUE.mix(0.5).filled(),
            );
            bar.set_margin(4, 4, 0, 0);
            chart.draw_series([bar])?;
            let middle = || SegmentValue::CenterOf(at);
            let whisker = [(metric.min(), middle()), (metric.max(), middle())];
            chart.draw_series([PathElement::new(whisker, BLACK)])?;
        }
        Ok(())
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawing = Result<(), Box<dyn std::error::Error>>;

fn draw(path: &Path, picture: impl FnOnce(&Area<'_>) -> Drawing) -> Result<()> {
    draw_sized(path, SIZE, picture)
}

fn draw_sized(
    path: &Path,
    size: (u32, u32),
    picture: impl FnOnce(&Area<'_>) -> Drawing,
) -> Result<()> {
    let root = SVGBackend::new(path, size).into_drawing_area();
    let drawn = root
        .fill(&WHITE)
        .map_err(Into::into)
        .and_then(|()| picture(&root))
        .and_then(|()| root.present().map_err(Into::into));
    drawn.map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
}

fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    values.fold(f64::INFINITY..f64::MIN_POSITIVE, |range, value| {
        range.start.min(value)..range.end.max(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Better;

    #[test]
    fn pictures_hold_what_they_show() {
        let folder = tempfile::tempdir().unwrap();
        let mut metric = Metric::once("IOPS", "1/s", Better::Higher, 70_000.0);
        metric.samples.extend([60_000.0, 80_000.0]);
        let path = folder.path().join("curves.svg");
        let curve = Curve {
            name: "randread 4k".into(),
            points: [1.0, 32.0].map(|x| Point::at(x, &metric)).to_vec(),
        };
        curves(&path, "soft mem", ("depth", "IOPS"), &[curve]).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for part in ["<svg", "soft mem", "randread 4k", "80,000", "</svg>"] {
            assert!(svg.contains(part), "{part} is not in\n{svg}");
        }
        let path = folder.path().join("bars.svg");
        let rows = [
            ("first".to_owned(), &metric),
            ("second".to_owned(), &metric),
        ];
        bars(&path, "all", "IOPS", &rows).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for part in ["<svg", "first", "second", "</svg>"] {
            assert!(svg.contains(part), "{part} is not in\n{svg}");
        }
    }

    #[test]
    fn a_picture_that_cannot_be_written_is_an_error() {
        let metric = Metric::once("IOPS", "1/s", Better::Higher, 1.0);
        let path = Path::new("/nowhere/at/all.svg");
        let error = bars(path, "all", "IOPS", &[("row".to_owned(), &metric)]).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all.svg"), "{error}");
    }
}
