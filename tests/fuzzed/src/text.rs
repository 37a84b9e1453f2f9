use cairn_config::{Config, Draft, Flags, parse_size};
use cairn_control::{Frames, parses};
use cairn_rdma::marking::Rules;

pub(crate) fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let _ = parse_size(text);
    let _ = Rules::parse(text.lines());
    match Config::parse("fuzzed.toml", text, &Flags::default()) {
        Ok(_) => {
            let draft = Draft::new(text).expect("it is TOML");
            let again = Config::parse("fuzzed.toml", &draft.text(), &Flags::default());
            assert!(again.is_ok(), "{again:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(crate) fn control(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = frames(&[bytes]);
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(*size).max(1)).collect();
    let pieces = frames(&pieces);
    assert_eq!(whole, pieces);
    for frame in whole.0 {
        let _ = parses(&frame);
    }
}

fn frames(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let mut frames = Frames::default();
    let mut found = Vec::new();
    for piece in pieces {
        frames.push(piece);
        loop {
            match frames.take() {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(_) => return (found, false),
            }
        }
    }
    (found, true)
}
