//! Number of hard-to-read sentence shapes in comments and pages, per 10,000 words. Well-written
//! Rust projects have 6 to 11.
//!
//! `cargo nextest run -p xtask --test prose --no-capture` prints the counts and the worst files.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

/// Maximum matches of [`SHAPES`] per 10,000 words of the tree.
const TREE_MAX: f64 = 4.0;
/// Maximum matches per 10,000 words of a file; a short file may have one match.
const FILE_MAX: f64 = 30.0;
const FILES_MAX: usize = 6;
const WORDS_MAX: usize = 150_000;

struct Block {
    line: usize,
    text: String,
}

struct Shape {
    name: &'static str,
    pattern: Regex,
    exceptions: &'static [Exception],
}

enum Exception {
    After(&'static str),
    Begins(&'static str),
    Before(&'static str),
    Question,
}

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let shape = |name, pattern: &str, exceptions| Shape {
        name,
        pattern: Regex::new(&format!("(?i){pattern}")).unwrap(),
        exceptions,
    };
    vec![
        shape(
            "opens with a relative clause",
            r"^(what|that of|those of|those|by which|of which|to which|for which|in which|from which|with which|such as|whoever|whose|who|which)\b",
            &[Exception::Question],
        ),
        shape(
            "free relative clause",
            r"\bwhat (?:(?:\w+ ){0,4}?)(is|are|was|were|has|have|had|does|do|did|takes|gives|needs|makes|holds|serves|costs|goes|comes|waits|remains|stands|lasts|counts)\b",
            &[
                Exception::After("no matter "),
                Exception::After("see "),
                Exception::Begins("what if "),
            ],
        ),
        shape(
            "a program that speaks, sees or wishes",
            r"\b(target|host|reactor|controller|kernel|program|disk|device|queue|client|ring|endpoint|initiator|namespace|it|that|which)\b (says?|said|knows?|knew|sees|saw|hears?|tells?|wants?|thinks|believes|minds|forgets|remembers|speaks)\b",
            &[],
        ),
        shape(
            "existence of nothing",
            r"\b(that there (is|are|was|were)( not| none| no)?|there (is|are) none|is none|are none|is no (more|longer) there|of one that|of those that|one that is|none of (it|them) (is|are))\b",
            &[],
        ),
        shape(
            "stock phrase",
            r"\b(beside (one|another|the|it|them|its|a|an|our|ours)|by turns|in turns|at its end|at the (very )?moment|as (it|they) (is|are|was|were)\b|for good\b|lets? go of|let go of|holds? up\b|at hand|by itself alone|\w+ alone\b[.,;)]|\w+ alone$|no more than (that|it)|as long as it likes|the one and|each with its own|more of (it|them) than|comes? to (it|them|an end)|is (its|their) own|of its own)",
            &[Exception::Before(" not")],
        ),
    ]
});

static PRONOUN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(it|its|they|their|theirs|them|that|this|one|ones|those|these|same|other|both|none|all)\b").unwrap()
});
static QUESTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^ (is|are|does|do|happens)\b.*\?").unwrap());
static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`[^`]*`").unwrap());
static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap());
static LIST_ITEM: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*([-*+]|\d+\.)\s|^\s*\|").unwrap());
static COMMENTED_CODE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(TODO|cargo|fn |let |use |assert|#\[)").unwrap());

fn shape_of(sentence: &str, is_rust: bool) -> Option<&'static str> {
    let has_shape = |shape: &Shape| {
        shape.pattern.find_iter(sentence).any(|found| {
            let (before, after) = (&sentence[..found.start()], &sentence[found.end()..]);
            let matched = found.as_str().to_lowercase();
            !shape.exceptions.iter().any(|exception| match exception {
                Exception::After(text) => before.to_lowercase().ends_with(text),
                Exception::Begins(text) => matched.starts_with(text),
                Exception::Before(text) => matched.starts_with("as ") && after.starts_with(text),
                Exception::Question => QUESTION.is_match(after),
            })
        })
    };
    let is_orphan = is_rust
        && sentence.split_whitespace().count() <= 5
        && sentence.ends_with('.')
        && PRONOUN.is_match(sentence)
        && !sentence.starts_with("SAFETY");
    let shape = SHAPES.iter().find(|shape| has_shape(shape));
    shape
        .map(|shape| shape.name)
        .or(is_orphan.then_some("fragment without its noun"))
}

fn sentences(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut begin = 0;
    for (at, mark) in text.char_indices() {
        let rest = &text[at + mark.len_utf8()..];
        let next = rest.trim_start();
        let begins = next.starts_with(|c: char| c.is_ascii_uppercase() || "`[*".contains(c));
        if ".!?:".contains(mark) && next.len() < rest.len() && begins {
            all.push(text[begin..=at].trim());
            begin = text.len() - next.len();
        }
    }
    all.push(text[begin..].trim());
    all.retain(|sentence| !sentence.is_empty());
    all
}

fn comments(source: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut last_kind = None;
    for (index, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let kind = ["//!", "///", "//"]
            .into_iter()
            .find(|kind| line.starts_with(kind));
        let text = kind.map_or("", |kind| line[kind.len()..].trim());
        if text.is_empty() {
            last_kind = None;
        } else if kind == last_kind {
            let block = blocks.last_mut().expect("a kind was seen");
            block.text += " ";
            block.text += text;
        } else {
            blocks.push(Block {
                line: index + 1,
                text: text.to_owned(),
            });
            last_kind = kind;
        }
    }
    blocks
}

fn paragraphs(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut fenced, mut is_open) = (false, false);
    for (index, line) in page.lines().enumerate() {
        let trimmed = line.trim_start();
        let is_fence = trimmed.starts_with("```");
        fenced ^= is_fence;
        if fenced || is_fence || trimmed.is_empty() || trimmed.starts_with(['#', '>']) {
            is_open = false;
            continue;
        }
        if LIST_ITEM.is_match(line) || !is_open {
            blocks.push(Block {
                line: index + 1,
                text: String::new(),
            });
            is_open = true;
        }
        let block = blocks.last_mut().expect("one was just made");
        block.text += " ";
        block.text += LIST_ITEM.replace(line, " ").replace('|', " ").trim();
    }
    blocks
}

struct Findings {
    words: usize,
    found: Vec<(usize, &'static str, String)>,
}

fn findings(blocks: &[Block], is_rust: bool) -> Findings {
    let mut all = Findings {
        words: 0,
        found: Vec::new(),
    };
    for block in blocks {
        if COMMENTED_CODE.is_match(block.text.trim_start()) {
            continue;
        }
        let plain = CODE.replace_all(&block.text, "X");
        let plain = LINK.replace_all(&plain, "$1");
        all.words += plain.split_whitespace().count();
        for sentence in sentences(&plain) {
            if let Some(shape) = shape_of(sentence, is_rust) {
                all.found.push((block.line, shape, sentence.to_owned()));
            }
        }
    }
    all
}

#[test]
fn the_tree_reads_no_worse_than_before() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = common::rust_files(&root);
    files.retain(|file| !file.ends_with("bindings.rs"));
    files.extend(common::files_below(&root, ".md"));
    assert!(files.len() > 1000, "only {} files are found", files.len());
    let mut shapes: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut words, mut past, mut worst) = (0, 0, Vec::new());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let is_rust = file.extension().is_some_and(|ending| ending == "rs");
        let blocks = if is_rust {
            comments(&text)
        } else {
            paragraphs(&text)
        };
        let of_file = findings(&blocks, is_rust);
        words += of_file.words;
        for (_, shape, _) in &of_file.found {
            *shapes.entry(shape).or_default() += 1;
        }
        let count = of_file.found.len();
        let is_past = count > 1 && count as f64 * 10_000.0 / of_file.words as f64 > FILE_MAX;
        past += usize::from(is_past);
        worst.push((count, file));
    }
    assert!(words > 100_000, "only {words} words are found");
    let count: usize = shapes.values().sum();
    let density = count as f64 * 10_000.0 / words as f64;
    println!(
        "{words} words, {density:.1} shapes per 10,000: {shapes:?}; {past} files past {FILE_MAX}"
    );
    worst.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    for (count, file) in &worst[..20] {
        println!("{count:4} {}", file.strip_prefix(&root).unwrap().display());
    }
    assert!(
        density <= TREE_MAX,
        "{density:.1} shapes in 10,000 words; the bound is {TREE_MAX}"
    );
    assert!(
        past <= FILES_MAX,
        "{past} files have more than {FILE_MAX} shapes in 10,000 words; the bound is {FILES_MAX}"
    );
    assert!(
        words <= WORDS_MAX,
        "{words} words; the bound is {WORDS_MAX}"
    );
}

#[test]
fn each_shape_is_found_and_plain_sentences_have_none() {
    let bad = [
        "What a fabric is, for everyone.",
        "Those of a disk.",
        "Returns what the host has taken.",
        "The target says so in its log file.",
        "A state that there is not.",
        "The reader runs beside the writer.",
        "Its line.",
    ];
    for sentence in bad {
        assert!(shape_of(sentence, true).is_some(), "{sentence}");
    }
    let good = [
        "Path MTU agreed with the peer, in bytes.",
        "Closes the queue pair, no matter what the peer does.",
        "The result is as it was not before.",
        "Returns bytes taken by the host.",
    ];
    for sentence in good {
        assert_eq!(shape_of(sentence, true), None, "{sentence}");
    }
    assert_eq!(shape_of("Its line.", false), None, "a page has no orphans");
}

#[test]
fn comments_and_pages_are_divided_into_sentences() {
    let source = "/// One. Two\n/// three.\n///\n/// Four.\nfn f() {} // not read\n// Five `Its line.` six.\n";
    let texts: Vec<String> = comments(source)
        .into_iter()
        .map(|block| block.text)
        .collect();
    assert_eq!(texts, ["One. Two three.", "Four.", "Five `Its line.` six."]);
    assert_eq!(sentences(&texts[0]), ["One.", "Two three."]);
    assert_eq!(findings(&comments(source), true).words, 7);
    let page = "# Title\n\nOne\ntwo.\n- Three\n  four.\n| five | six |\n```\nseven\n```\n";
    let texts: Vec<String> = paragraphs(page)
        .into_iter()
        .map(|block| block.text)
        .collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
}
