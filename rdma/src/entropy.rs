//! Numbers that no peer can foresee: the operating system's.
//!
//! Why `unsafe` here: getrandom(2) fills memory that it is given by address.

/// Draws 64 bits.
///
/// # Panics
/// If the system has no random numbers: nothing that is drawn instead would keep a
/// stranger out.
#[must_use]
pub fn draw() -> u64 {
    let mut bytes = [0; 8];
    loop {
        // SAFETY: there is room for as many bytes as are asked for.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if got == bytes.len() as isize {
            return u64::from_ne_bytes(bytes);
        }
        // So few bytes come whole, or a signal came while the system was starting.
        let error = std::io::Error::last_os_error();
        assert!(
            error.kind() == std::io::ErrorKind::Interrupted,
            "the system has no random numbers: {error}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_varies() {
        let drawn: Vec<u64> = (0..128).map(|_| draw()).collect();
        let ever = drawn.iter().fold(0, |bits, number| bits | number);
        let always = drawn.iter().fold(u64::MAX, |bits, number| bits & number);
        assert_eq!((ever, always), (u64::MAX, 0));
    }
}
