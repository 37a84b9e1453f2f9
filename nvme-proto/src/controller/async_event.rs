//! Asynchronous events (Base, 5.2).
//!
//! A host keeps up to [`ASYNC_EVENT_REQUESTS`] Asynchronous Event Requests in flight; each event
//! completes one. A delivered event masks later events of its log page. Reading the page discards
//! the masked events, because the page reports their changes.
//!
//! Events of other log pages are not masked: Linux without multipath never reads the ANA log, but
//! needs other notices.

use alloc::vec::Vec;

use crate::limits::ASYNC_EVENT_REQUESTS;
use crate::wire::Status;
use crate::wire::aen::AsyncEvent;

use super::{Completion, Refusal};

/// Reportable events, in order of delivery.
const KINDS: [AsyncEvent; 10] = [
    AsyncEvent::ERROR_PERSISTENT_INTERNAL,
    AsyncEvent::ERROR_TRANSIENT_INTERNAL,
    AsyncEvent::SMART_RELIABILITY,
    AsyncEvent::SMART_TEMPERATURE,
    AsyncEvent::SMART_SPARE,
    AsyncEvent::NOTICE_NAMESPACE_CHANGED,
    AsyncEvent::NOTICE_ANA_CHANGED,
    AsyncEvent::NOTICE_DISCOVERY_CHANGED,
    AsyncEvent::NOTICE_CROSS_CONTROLLER_RESET,
    AsyncEvent::RESERVATION_LOG_AVAILABLE,
];

/// Requests and events of a controller.
#[derive(Debug, Default)]
pub struct AsyncEvents {
    /// CIDs of requests in flight, oldest first.
    parked: Vec<u16>,
    /// Bit mask of the pending events; bit n is `KINDS[n]`.
    pending: u16,
    /// Events masked until the host reads their log page; same bits as `pending`.
    masked: u16,
}

impl AsyncEvents {
    /// Adds the CID of a request.
    ///
    /// # Errors
    /// [`ASYNC_EVENT_REQUESTS`] requests (AERL) are already in flight.
    pub fn park(&mut self, cid: u16) -> Result<(), Refusal> {
        if self.parked.len() >= ASYNC_EVENT_REQUESTS {
            return Err(Refusal::new(Status::ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED));
        }
        self.parked.push(cid);
        Ok(())
    }

    /// Removes an aborted request; false if the CID is unknown.
    pub fn unpark(&mut self, cid: u16) -> bool {
        let found = self.parked.iter().position(|&parked| parked == cid);
        found.map(|index| self.parked.remove(index)).is_some()
    }

    /// Marks an event as pending.
    pub fn raise(&mut self, event: AsyncEvent) {
        self.pending |= bit_of(event);
    }

    /// Clears and unmasks the events of log page `lid`, read with RAE = 0.
    pub fn clear(&mut self, lid: u8) {
        self.pending &= !bits_of_page(lid);
        self.masked &= !bits_of_page(lid);
    }

    /// Completes the oldest request with the first deliverable event, if both exist.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let deliverable = self.pending & !self.masked;
        let event = KINDS
            .into_iter()
            .find(|&event| deliverable & bit_of(event) != 0)?;
        if self.parked.is_empty() {
            return None;
        }
        self.pending &= !bit_of(event);
        self.masked |= bits_of_page(event.lid());
        let cid = self.parked.remove(0);
        Some(Completion {
            cid,
            status: Status::SUCCESS,
            result: u64::from(event.0),
        })
    }

    /// Discards requests and events at a controller reset (Base, 3.7.2).
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

fn bit_of(event: AsyncEvent) -> u16 {
    let index = KINDS.iter().position(|&kind| kind == event);
    1 << index.expect("an event this controller reports")
}

fn bits_of_page(lid: u8) -> u16 {
    let of_page = KINDS.into_iter().filter(|event| event.lid() == lid);
    of_page.fold(0, |bits, event| bits | bit_of(event))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(events: &mut AsyncEvents) -> Option<(u16, AsyncEvent)> {
        events
            .next_completion()
            .map(|done| (done.cid, AsyncEvent(done.result as u32)))
    }

    #[test]
    fn an_event_and_a_request_meet_in_either_order() {
        let mut events = AsyncEvents::default();
        events.raise(AsyncEvent::NOTICE_NAMESPACE_CHANGED);
        assert_eq!(completed(&mut events), None);
        events.park(31).unwrap();
        assert_eq!(
            completed(&mut events),
            Some((31, AsyncEvent::NOTICE_NAMESPACE_CHANGED))
        );
        events.park(32).unwrap();
        events.raise(AsyncEvent::SMART_SPARE);
        assert_eq!(completed(&mut events), Some((32, AsyncEvent::SMART_SPARE)));
    }

    #[test]
    fn an_unread_notice_masks_no_other_notice() {
        let notices = [
            AsyncEvent::NOTICE_ANA_CHANGED,
            AsyncEvent::NOTICE_NAMESPACE_CHANGED,
            AsyncEvent::NOTICE_DISCOVERY_CHANGED,
        ];
        let mut events = AsyncEvents::default();
        for (cid, notice) in (0..).zip(notices) {
            events.park(cid).unwrap();
            events.raise(notice);
            assert_eq!(completed(&mut events), Some((cid, notice)));
        }
        events.park(3).unwrap();
        for notice in notices {
            events.raise(notice);
            assert_eq!(completed(&mut events), None, "masked by itself");
        }
        events.clear(0x04);
        events.raise(AsyncEvent::NOTICE_NAMESPACE_CHANGED);
        assert_eq!(
            completed(&mut events),
            Some((3, AsyncEvent::NOTICE_NAMESPACE_CHANGED))
        );
    }

    #[test]
    fn a_reported_event_masks_its_log_page_until_it_is_read() {
        let mut events = AsyncEvents::default();
        for cid in 0..4 {
            events.park(cid).unwrap();
        }
        events.raise(AsyncEvent::SMART_RELIABILITY);
        assert_eq!(
            completed(&mut events),
            Some((0, AsyncEvent::SMART_RELIABILITY))
        );
        events.raise(AsyncEvent::SMART_TEMPERATURE);
        assert_eq!(completed(&mut events), None, "same page");
        events.raise(AsyncEvent::NOTICE_NAMESPACE_CHANGED);
        assert_eq!(
            completed(&mut events),
            Some((1, AsyncEvent::NOTICE_NAMESPACE_CHANGED))
        );
        events.clear(0x02);
        assert_eq!(completed(&mut events), None, "the page read reported it");
        events.raise(AsyncEvent::SMART_TEMPERATURE);
        assert_eq!(
            completed(&mut events),
            Some((2, AsyncEvent::SMART_TEMPERATURE))
        );
    }

    #[test]
    fn the_fifth_request_is_one_too_many() {
        let mut events = AsyncEvents::default();
        for cid in 0..4 {
            events.park(cid).unwrap();
        }
        let refusal = events.park(4).unwrap_err();
        assert_eq!(
            refusal.status.code(),
            Status::ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED
        );
        assert!(events.unpark(2));
        assert!(!events.unpark(2));
        events.park(4).unwrap();
    }

    #[test]
    fn reset_forgets_requests_and_events() {
        let mut events = AsyncEvents::default();
        events.park(1).unwrap();
        events.reset();
        events.raise(AsyncEvent::NOTICE_NAMESPACE_CHANGED);
        assert_eq!(completed(&mut events), None);
    }
}
