//! Permit: right to complete a command. Dropping it panics, because a lost command would hang the
//! host.

#[derive(Debug)]
#[must_use = "a command must be answered"]
pub(crate) struct Permit {
    cid: u16,
}

impl Permit {
    pub(crate) fn new(cid: u16) -> Self {
        Self { cid }
    }

    pub(crate) fn answered(self) {
        std::mem::forget(self);
    }

    pub(crate) fn parked(self) {
        std::mem::forget(self);
    }

    pub(crate) fn deferred(self) {
        std::mem::forget(self);
    }

    pub(crate) fn abandoned(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("command {:#06x} was dropped unanswered", self.cid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_enough() {
        Permit::new(1).answered();
        Permit::new(2).parked();
        Permit::new(3).abandoned();
        Permit::new(4).deferred();
    }

    #[test]
    #[should_panic(expected = "command 0x0007 was dropped unanswered")]
    fn a_command_cannot_vanish() {
        drop(Permit::new(7));
    }
}
