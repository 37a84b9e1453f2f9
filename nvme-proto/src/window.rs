/// Bytes of a page from offset `start`; bytes not written are 0.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    out: &'a mut [u8],
    start: u64,
}

impl<'a> Window<'a> {
    pub(crate) fn new(out: &'a mut [u8], start: u64) -> Self {
        out.fill(0);
        Self { out, start }
    }

    pub(crate) fn shows(&self, at: u64, length: u64) -> bool {
        at < self.start.saturating_add(self.out.len() as u64)
            && at.saturating_add(length) > self.start
    }

    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) {
        if !self.shows(at, bytes.len() as u64) {
            return;
        }
        let skip = self.start.saturating_sub(at) as usize;
        let offset = at.saturating_sub(self.start) as usize;
        let (from, to) = (&bytes[skip..], &mut self.out[offset..]);
        let length = from.len().min(to.len());
        to[..length].copy_from_slice(&from[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn any_window_shows_what_the_whole_page_has_there() {
        let page: Vec<u8> = (1..=40).collect();
        for start in 0..50usize {
            for length in 0..50 {
                let mut out = vec![0xee; length];
                let mut window = Window::new(&mut out, start as u64);
                for (index, piece) in page.chunks(7).enumerate() {
                    window.put(index as u64 * 7, piece);
                }
                let byte = |at| page.get(at).copied().unwrap_or(0);
                let expected: Vec<u8> = (start..start + length).map(byte).collect();
                assert_eq!(out, expected);
            }
        }
    }

    #[test]
    fn a_window_at_the_end_of_the_number_line_is_empty() {
        let mut out = [1; 4];
        let mut window = Window::new(&mut out, u64::MAX - 3);
        window.put(0, &[9; 100]);
        assert_eq!(out, [0; 4]);
    }
}
