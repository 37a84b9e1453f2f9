/// Maximum bytes of a request or batch.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Reason why a stream is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The next value is neither an object nor an array.
    #[error("a request is a JSON object, or an array of them")]
    NotAValue,
    #[error("a request has at most {REQUEST_BYTES_MAX} bytes")]
    TooLong,
}

/// Splits a byte stream into JSON objects and arrays by counting brackets outside strings. The
/// parser checks all other syntax.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Frames {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// True if part of the next value has arrived.
    #[must_use]
    pub fn is_within(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Returns the next complete value, if any.
    ///
    /// # Errors
    /// See [`FrameError`]. The stream is then unusable.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        self.next_within(REQUEST_BYTES_MAX)
    }

    pub(crate) fn next_of_any_length(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        self.next_within(usize::MAX)
    }

    fn next_within(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, FrameError> {
        if self.depth == 0 {
            self.skip_space();
        }
        while let Some(&byte) = self.bytes.get(self.seen) {
            self.seen += 1;
            self.look_at(byte)?;
            if self.depth == 0 {
                let rest = self.bytes.split_off(self.seen);
                self.seen = 0;
                return Ok(Some(std::mem::replace(&mut self.bytes, rest)));
            }
            if self.seen >= bytes_max {
                return Err(FrameError::TooLong);
            }
        }
        Ok(None)
    }

    fn skip_space(&mut self) {
        let space = self.bytes.iter().take_while(|b| b.is_ascii_whitespace());
        let space = space.count();
        self.bytes.drain(..space);
    }

    fn look_at(&mut self, byte: u8) -> Result<(), FrameError> {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return Ok(());
        }
        match byte {
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' if self.depth > 0 => self.depth -= 1,
            _ if self.depth == 0 => return Err(FrameError::NotAValue),
            b'"' => self.in_string = true,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(frames: &mut Frames) -> Result<Vec<String>, FrameError> {
        let mut values = Vec::new();
        while let Some(value) = frames.take()? {
            values.push(String::from_utf8_lossy(&value).into_owned());
        }
        Ok(values)
    }

    #[test]
    fn values_follow_each_other_with_and_without_space() {
        let mut frames = Frames::default();
        frames.push(b"{\"a\":\"}{\\\"\"}\n[{}, {}]{}  {");
        assert_eq!(
            all(&mut frames).unwrap(),
            ["{\"a\":\"}{\\\"\"}", "[{}, {}]", "{}"]
        );
        assert!(frames.is_within());
        frames.push(b"}\n");
        assert_eq!(all(&mut frames).unwrap(), ["{}"]);
        assert!(!frames.is_within());
    }

    #[test]
    fn words_and_endless_values_are_refused() {
        let mut frames = Frames::default();
        frames.push(b"GET / HTTP/1.1");
        assert_eq!(frames.take(), Err(FrameError::NotAValue));
        let mut frames = Frames::default();
        frames.push(&vec![b'['; REQUEST_BYTES_MAX]);
        assert_eq!(frames.take(), Err(FrameError::TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_are_read(
            bytes in proptest::collection::vec(
                prop_oneof![any::<u8>(), proptest::sample::select(&b"{}[]\"\\ \n,"[..])], 0..200),
            piece in 1usize..20,
        ) {
            let mut whole = Frames::default();
            whole.push(&bytes);
            let whole = all(&mut whole);
            let mut pieces = Frames::default();
            let mut found = Ok(Vec::new());
            for piece in bytes.chunks(piece) {
                pieces.push(piece);
                match all(&mut pieces) {
                    Ok(more) => found.as_mut().unwrap().extend(more),
                    Err(error) => { found = Err(error); break; }
                }
            }
            prop_assert_eq!(whole.is_ok(), found.is_ok());
            if let (Ok(whole), Ok(found)) = (whole, found) {
                prop_assert_eq!(whole, found);
            }
        }
    }
}
