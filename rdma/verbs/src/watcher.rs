//! Thread that reads asynchronous events of a device for all its endpoints.
//!
//! Each endpoint receives a copy of each event through its mailbox. The thread also binds an
//! `rdma_cm_id` to the device, to learn of the device's removal even without connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use cairn_base::ScopedAddr;
use cairn_rdma::FabricError;

use crate::cm::{Channel, Id};
use crate::explain;
use crate::library::Library;
use crate::objects::{AsyncEvent, Context, Serial};
use crate::sys;
use cairn_base::panics::{Part, confine_part};
use cairn_base::wake::{Wake, wait_readable};

#[derive(Debug, Clone)]
pub(crate) enum DeviceEvent {
    Removed,
    QueuePair(sys::ibv_event_type, u32, Serial),
    QueueBroken(Serial),
    Notice(String),
}

pub(crate) type Mailbox = cairn_base::mailbox::Mailbox<DeviceEvent>;

pub(crate) struct Subscribers {
    device: String,
    removed: AtomicBool,
    mailboxes: Mutex<Vec<Weak<Mailbox>>>,
}

impl Subscribers {
    pub(crate) fn new(device: String) -> Self {
        Self {
            device,
            removed: AtomicBool::new(false),
            mailboxes: Mutex::default(),
        }
    }

    pub(crate) fn subscribe(&self) -> Result<Arc<Mailbox>, FabricError> {
        let mailbox = Arc::new(Mailbox::new().map_err(FabricError::os("eventfd"))?);
        let mut mailboxes = lock(&self.mailboxes);
        mailboxes.retain(|old| old.strong_count() > 0);
        mailboxes.push(Arc::downgrade(&mailbox));
        // The lock of `mailboxes` is held, so a later removal will notify the new mailbox.
        if self.is_removed() {
            mailbox.put(DeviceEvent::Removed);
        }
        Ok(mailbox)
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub(crate) fn device_removed(&self) {
        let mailboxes = lock(&self.mailboxes);
        if !self.removed.swap(true, Ordering::AcqRel) {
            // Logged when the device is removed or fails.
            tracing::warn!(device = self.device, "the RDMA device is being removed");
            notify(&mailboxes, &DeviceEvent::Removed);
        }
    }

    fn notify(&self, events: &DeviceEvent) {
        notify(&lock(&self.mailboxes), events);
    }

    fn async_event(&self, event: AsyncEvent) {
        let device = &self.device;
        match event {
            AsyncEvent::QueuePair(kind, number, serial) => {
                self.notify(&DeviceEvent::QueuePair(kind, number, serial));
            }
            AsyncEvent::Queue(_, owner) => self.notify(&DeviceEvent::QueueBroken(owner)),
            AsyncEvent::Port(sys::IBV_EVENT_PORT_ACTIVE, port) => {
                self.notify(&DeviceEvent::Notice(format!("{device} port {port} is up")));
            }
            AsyncEvent::Port(_, port) => {
                self.notify(&DeviceEvent::Notice(format!(
                    "{device} port {port} is down: check its cable and its network interface; \
                     connections last until their retries are spent"
                )));
            }
            AsyncEvent::Other(sys::IBV_EVENT_DEVICE_FATAL) => self.device_removed(),
            AsyncEvent::Other(kind) => cairn_base::peer_detail!(device, kind, "device event"),
        }
    }
}

fn notify(mailboxes: &[Weak<Mailbox>], events: &DeviceEvent) {
    for mailbox in mailboxes.iter().filter_map(Weak::upgrade) {
        mailbox.put(events.clone());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Watcher {
    stop: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(crate) fn start(
        library: &'static Library,
        context: Arc<Context>,
        subscribers: Arc<Subscribers>,
        address: ScopedAddr,
    ) -> Result<Self, FabricError> {
        let stop = Arc::new(Wake::new().map_err(FabricError::os("eventfd"))?);
        let channel = Channel::new(library)?;
        let mut sentinel = Id::new(&channel, 0)?;
        sentinel.bind(address.at(0))?;
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name(format!("verbs {}", subscribers.device))
            .spawn(move || {
                let watch = || watch(&context, &channel, sentinel, &subscribers, &stopped);
                removed_by_panic(&subscribers, watch);
            })
            .map_err(|error| explain::os("pthread_create", error))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// After a panic, reports the device as removed, because no thread reads its events.
fn removed_by_panic(subscribers: &Subscribers, watch: impl FnOnce()) {
    if confine_part(Part::Device, watch).is_none() {
        confine_part(Part::Device, || subscribers.device_removed());
    }
}

fn watch(
    context: &Context,
    channel: &Arc<Channel>,
    sentinel: Id,
    subscribers: &Subscribers,
    stop: &Wake,
) {
    loop {
        let fds = [stop.fd(), context.async_fd(), channel.fd()];
        let [stopped, _, _] = wait_readable(fds, None);
        if stopped {
            return;
        }
        loop {
            match context.next_event() {
                Ok(Some(pending)) => subscribers.async_event(pending.event),
                Ok(None) => break,
                Err(_) => {
                    subscribers.device_removed();
                    break;
                }
            }
        }
        while let Ok(Some(event)) = channel.next_event() {
            if event.kind == sys::RDMA_CM_EVENT_DEVICE_REMOVAL {
                subscribers.device_removed();
                sentinel.release_removed_device();
            }
        }
        if subscribers.is_removed() {
            drop(sentinel);
            wait_readable([stop.fd()], None);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_that_panics_takes_its_device_away() {
        let subscribers = Subscribers::new("example".to_owned());
        let mailbox = subscribers.subscribe().unwrap();
        removed_by_panic(&subscribers, || {});
        assert!(!subscribers.is_removed() && mailbox.is_empty());
        removed_by_panic(&subscribers, || panic!("on purpose"));
        assert!(subscribers.is_removed());
        assert!(matches!(mailbox.take(), Some(DeviceEvent::Removed)));
        assert!(mailbox.is_empty(), "reported once");
        let later = subscribers.subscribe().unwrap();
        assert!(matches!(later.take(), Some(DeviceEvent::Removed)));
    }
}
