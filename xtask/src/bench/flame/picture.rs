//! Flame graph as SVG.
//!
//! Each function is a box above its caller, as wide as its share of the samples.

use std::fmt::Write;

use super::stacks::{Frame, Tree};

const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
const MARGIN: f64 = 10.0;
const HEAD: f64 = 34.0;
const LETTER: f64 = 6.6;
const NARROWEST: f64 = 0.6;

pub(super) struct Picture<'a> {
    boxes: Vec<Square<'a>>,
    depth: usize,
    total: u64,
}

struct Square<'a> {
    frame: &'a Frame,
    x: f64,
    width: f64,
    level: usize,
}

impl<'a> Picture<'a> {
    pub(super) fn of(tree: &'a Tree) -> Self {
        let mut picture = Self {
            boxes: Vec::new(),
            depth: 0,
            total: tree.samples().max(1),
        };
        picture.place(&tree.root, MARGIN, 0);
        picture
    }

    fn place(&mut self, frame: &'a Frame, x: f64, level: usize) {
        let width = (WIDTH - 2.0 * MARGIN) * frame.samples as f64 / self.total as f64;
        if width < NARROWEST {
            return;
        }
        self.depth = self.depth.max(level);
        self.boxes.push(Square {
            frame,
            x,
            width,
            level,
        });
        let mut called: Vec<&Frame> = frame.called.iter().collect();
        called.sort_by(|a, b| a.name.cmp(&b.name));
        let mut x = x;
        for frame in called {
            self.place(frame, x, level + 1);
            x += (WIDTH - 2.0 * MARGIN) * frame.samples as f64 / self.total as f64;
        }
    }

    pub(super) fn svg(&self, title: &str) -> String {
        let height = HEAD + (self.depth + 1) as f64 * ROW + MARGIN;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"monospace\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"{MARGIN}\" y=\"21\" font-size=\"15\">{}</text>\n",
            escaped(title)
        );
        for square in &self.boxes {
            self.draw(square, height, &mut svg);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw(&self, square: &Square<'_>, height: f64, svg: &mut String) {
        let Square {
            frame,
            x,
            width,
            level,
        } = square;
        let y = height - MARGIN - (*level + 1) as f64 * ROW;
        let percent = 100.0 * frame.samples as f64 / self.total as f64;
        let name = escaped(&frame.name);
        let kernel = if frame.is_kernel { ", kernel" } else { "" };
        let box_height = ROW - 1.0;
        let _ = writeln!(
            svg,
            "<g><title>{name}{kernel}: {percent:.1} %, {} samples</title>\
             <rect x=\"{x:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{box_height:.0}\" \
             fill=\"{}\" rx=\"1\"/>{}</g>",
            frame.samples,
            colour(frame),
            label(frame, *x, y, *width),
        );
    }
}

fn label(frame: &Frame, x: f64, y: f64, width: f64) -> String {
    let room = ((width - 6.0) / LETTER).max(0.0) as usize;
    if room < 4 {
        return String::new();
    }
    let letters: Vec<char> = frame.name.chars().collect();
    let text: String = if letters.len() <= room {
        letters.iter().collect()
    } else {
        let tail = letters[letters.len() + 2 - room..].iter();
        "..".chars().chain(tail.copied()).collect()
    };
    format!(
        "<text x=\"{:.1}\" y=\"{:.0}\">{}</text>",
        x + 3.0,
        y + 12.0,
        escaped(&text)
    )
}

fn colour(frame: &Frame) -> String {
    let hash = frame.name.bytes().fold(7_u32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(byte.into())
    });
    let shade = hash % 40;
    if frame.is_kernel {
        format!("rgb({},{},235)", 150 + shade, 190 + shade / 2)
    } else {
        format!("rgb(250,{},{})", 165 + shade, 85 + shade)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::stacks::tests::SCRIPT;
    use super::*;

    #[test]
    fn every_frame_is_a_box() {
        let tree = Tree::of_script(SCRIPT, "reactor");
        let svg = Picture::of(&tree).svg("a & b");
        for part in [
            "<svg ",
            "a &amp; b",
            "a::poll&lt;T&gt;: 66.7 %, 2 samples",
            "copy_to_user, kernel: 33.3 %, 1 samples",
            "</svg>",
        ] {
            assert!(svg.contains(part), "{part} is not in\n{svg}");
        }
        assert_eq!(svg.matches("<g>").count(), 5, "{svg}");
    }

    #[test]
    fn long_names_lose_their_beginning() {
        let frame = Frame {
            name: "one::two::three::four".into(),
            ..Frame::default()
        };
        assert!(label(&frame, 0.0, 0.0, 60.0).contains(">..::four<"));
        assert_eq!(label(&frame, 0.0, 0.0, 20.0), "");
        assert!(label(&frame, 0.0, 0.0, 900.0).contains(">one::two::three::four<"));
    }
}
