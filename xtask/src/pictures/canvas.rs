//! SVG builder with colours for light and dark pages.

use std::fmt::Write;

const STYLE: &str = "\
text{font:14px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#1f2328}
.bold{font-weight:600}.small{font-size:12px}.dim{fill:#59636e}.on{fill:#fff}
.end{text-anchor:end}.middle{text-anchor:middle}
.page{fill:#fff}.box{fill:#f6f8fa;stroke:#d1d9e0}.frame{fill:none;stroke:#59636e}
.ours{fill:#ddf4ff;stroke:#54aeff}.low{fill:#fff8c5;stroke:#d4a72c}
.bar{fill:#0969da}.behind{fill:#bc4c00}
.line{stroke:#59636e;fill:none;stroke-width:1.5}.faint{stroke:#d1d9e0;fill:none}
.mark{stroke:#1f2328;fill:none;stroke-width:1.5;stroke-dasharray:4 3}
.whisker{stroke:#1f2328;stroke-opacity:.55;stroke-width:1.5}
.head{fill:#59636e}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.dim{fill:#9198a1}
.page{fill:#0d1117}.box{fill:#161b22;stroke:#3d444d}.frame{stroke:#9198a1}
.ours{fill:#0c2d4d;stroke:#388bfd}.low{fill:#3a2d0a;stroke:#9e6a03}
.bar{fill:#4493f8}.behind{fill:#db6d28}
.line{stroke:#9198a1}.faint{stroke:#30363d}.mark{stroke:#e6edf3}.whisker{stroke:#e6edf3}.head{fill:#9198a1}
}
";

pub(super) struct Canvas {
    svg: String,
}

impl Canvas {
    pub(super) fn new(width: u32, height: u32, title: &str, description: &str) -> Self {
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
             <title>{}</title>\n<desc>{}</desc>\n<style>\n{STYLE}</style>\n\
             <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" \
             markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" orient=\"auto-start-reverse\">\
             <path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n\
             <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n",
            escape(title),
            escape(description),
        );
        Self { svg }
    }

    pub(super) fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let _ = writeln!(
            self.svg,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
             rx=\"6\"/>"
        );
    }

    pub(super) fn bar(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let _ = writeln!(
            self.svg,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\" rx=\"2\"/>"
        );
    }

    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        let _ = writeln!(
            self.svg,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
        );
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.svg,
            "<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>"
        );
    }

    pub(super) fn arrow(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.svg,
            "<path class=\"line\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" \
             marker-end=\"url(#tip)\"/>"
        );
    }

    pub(super) fn arrows(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.svg,
            "<path class=\"line\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" \
             marker-start=\"url(#tip)\" marker-end=\"url(#tip)\"/>"
        );
    }

    pub(super) fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
