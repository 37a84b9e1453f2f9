//! A host for programs of many tasks: commands as futures, for any executor.
//!
//! One thread owns and polls the [`Host`]; it sleeps while there is
//! nothing to do. Tasks hand it commands by a channel and await small cells that
//! it fills. That costs an allocation and two thread switches a command: a program
//! that needs every microsecond polls a [`Controller`](crate::Controller) instead.

mod answer;
mod thread;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use cairn_rdma::wake::Wake;
use cairn_rdma::{Device, FabricError, Provider};

use crate::buffer::Buffer;
use crate::error::HostError;
use crate::host::{Host, command_name};
use crate::namespace::{Command, Namespace};
use crate::options::HostOptions;
use crate::queue::Response;

use answer::{Promise, promise};
use thread::{Order, Submission, Worker};

pub use answer::Answer;

/// The data of a command, held by it.
#[derive(Debug, Clone)]
pub struct Part {
    buffer: Buffer,
    offset: usize,
    length: u32,
}

impl Part {
    /// The first `length` bytes of `buffer`.
    ///
    /// # Panics
    /// As [`of`](Self::of).
    #[must_use]
    pub fn start_of(buffer: &Buffer, length: u32) -> Self {
        Self::of(buffer, 0, length)
    }

    /// `length` bytes of `buffer`, from `offset` on.
    ///
    /// # Panics
    /// If they lie outside the buffer, or no controller may reach it: here, in the task that
    /// errs, and not on the host's thread, which all tasks share.
    #[must_use]
    pub fn of(buffer: &Buffer, offset: usize, length: u32) -> Self {
        let end = offset.checked_add(length as usize);
        assert!(
            end.is_some_and(|end| end <= buffer.len()),
            "{length} bytes at {offset} lie outside a buffer of {} bytes",
            buffer.len()
        );
        assert!(
            buffer.region().rkey().is_some(),
            "the buffer is not registered for controllers to reach"
        );
        Self {
            buffer: buffer.clone(),
            offset,
            length,
        }
    }
}

/// A connected host whose commands are futures. Share it by [`Arc`].
#[derive(Debug)]
pub struct AsyncHost {
    orders: Sender<Order>,
    wake: Arc<Wake>,
    device: Arc<dyn Device>,
    io_queues: u16,
    next_queue: AtomicU16,
    thread: Option<JoinHandle<()>>,
}

impl AsyncHost {
    /// As [`Host::connect`], on a thread of its own.
    ///
    /// # Errors
    /// As for [`Host::connect`], or there can be no thread.
    pub async fn connect(
        provider: Arc<dyn Provider>,
        options: HostOptions,
    ) -> Result<Self, HostError> {
        let device = provider.device_for(options.remote, options.local)?;
        let wake = Arc::new(Wake::new()?);
        let (orders, inbox) = std::sync::mpsc::channel();
        let (ready, connected) = promise();
        let worker = Worker::new(inbox, Arc::clone(&wake));
        let spawned = std::thread::Builder::new()
            .name("cairn-host".to_owned())
            .spawn(move || worker.run(&device, options, ready));
        let thread = spawned.map_err(|source| FabricError::Os {
            call: "starting the host's thread",
            source,
        })?;
        let (io_queues, device) = connected.await?;
        Ok(Self {
            orders,
            wake,
            device,
            io_queues,
            next_queue: AtomicU16::new(0),
            thread: Some(thread),
        })
    }

    /// I/O queues of the association; their QIDs are 1 up to this.
    #[must_use]
    pub fn io_queues(&self) -> u16 {
        self.io_queues
    }

    /// Memory that the controller may read and write.
    ///
    /// # Errors
    /// The system has no such memory, or cannot lock it.
    pub fn buffer(&self, length: usize) -> Result<Buffer, HostError> {
        Ok(Buffer::new(&*self.device, length)?)
    }

    /// Sends a command on queue `qid`; if that is full, as soon as it is not. The
    /// command is sent whether the answer is awaited or not.
    pub fn submit(
        &self,
        qid: u16,
        command: impl Into<Command>,
        data: Option<Part>,
    ) -> Answer<Response> {
        let (promise, answer) = promise();
        self.order(Order::Submit(Submission {
            qid,
            command: command.into(),
            data,
            promise,
        }));
        answer
    }

    /// Sends an I/O command, on one queue after the other, and makes an error of any
    /// status but success.
    ///
    /// # Errors
    /// The queue is lost, or the status.
    pub async fn run(
        &self,
        command: impl Into<Command>,
        data: Option<Part>,
    ) -> Result<Response, HostError> {
        let command = command.into();
        let turn = self.next_queue.fetch_add(1, Ordering::Relaxed);
        let qid = 1 + turn % self.io_queues.max(1);
        let response = self.submit(qid, command, data).await?;
        let status = response.cqe.status();
        if status.is_success() {
            return Ok(response);
        }
        Err(HostError::Status {
            command: command_name(qid, &command.sqe),
            status,
            result: response.cqe.result(),
        })
    }

    /// Has the host's thread do something that blocks, as its admin commands do. The
    /// answers of other tasks wait meanwhile.
    ///
    /// # Errors
    /// Those of `work`.
    ///
    /// # Panics
    /// If `work` does: in the task that awaits it.
    pub async fn with_host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let (promise, answer) = promise();
        self.order(Order::Work(Box::new(move |host| {
            // Other tasks share this thread: a panic ends the task that ordered the work.
            let work = AssertUnwindSafe(|| work(host));
            match catch_unwind(work) {
                Ok(result) => promise.keep(Ok(Ok(result))),
                Err(panic) => promise.keep(Ok(Err(panic))),
            }
        })));
        match answer.await? {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// The namespace `nsid`, ready to use.
    ///
    /// # Errors
    /// As for [`Host::open_namespace`].
    pub async fn open_namespace(&self, nsid: u32) -> Result<Namespace, HostError> {
        self.with_host(move |host| host.open_namespace(nsid)).await
    }

    /// Shuts the controller down in order, and ends the thread. Commands that are
    /// outstanding are lost.
    ///
    /// # Errors
    /// As for [`Host::shutdown`].
    pub async fn shutdown(mut self) -> Result<(), HostError> {
        let (promise, answer) = promise();
        self.order(Order::Shutdown(promise));
        let result = answer.await;
        self.join();
        result
    }

    fn order(&self, order: Order) {
        // If the thread is gone, the order breaks its promise by being dropped.
        let _ = self.orders.send(order);
        self.wake.wake();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let panicked = thread.join().is_err();
            assert!(
                !panicked || std::thread::panicking(),
                "the host's thread panicked"
            );
        }
    }
}

impl Drop for AsyncHost {
    /// Ends the connections without a shutdown, if there was none.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.order(Order::Leave);
            self.join();
        }
    }
}

/// The promise of the thread to report the result of connecting.
type Ready = Promise<(u16, Arc<dyn Device>)>;
