//! Asynchronous host: commands as futures, for any executor.
//!
//! A thread owns and polls the [`Host`], and sleeps while idle. Tasks send commands to the thread
//! by a channel. A command costs an allocation and two thread switches: programs with strict
//! latency limits should poll a [`Controller`](crate::Controller).

mod answer;
mod thread;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use cairn_base::wake::Wake;
use cairn_rdma::{Device, FabricError, Provider};
use nvme_proto::wire::Sqe;

use crate::buffer::{Buffer, Data};
use crate::error::HostError;
use crate::host::{Host, command_name};
use crate::namespace::{Command, Namespace};
use crate::options::HostOptions;
use crate::queue::{Ended, IoQueue};

use answer::{Answer, Promise, promise};
use thread::{Order, Submission, To, Worker};

/// Future that completes when a command has ended.
///
/// The command of a dropped future continues. Its buffer is dropped when the command ends.
#[derive(Debug)]
#[must_use = "a command continues without its future, but its result and its buffer are dropped"]
pub struct Completion(Answer<Ended>);

impl Future for Completion {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        Pin::new(&mut self.0).poll(context).map(|ended| {
            ended.unwrap_or_else(|error| Ended {
                answer: Err(error),
                buffer: None,
            })
        })
    }
}

/// Host with asynchronous commands, shared in an [`Arc`].
#[derive(Debug)]
pub struct AsyncHost {
    orders: Sender<Order>,
    wake: Arc<Wake>,
    device: Arc<dyn Device>,
    io_queues: u16,
    next_queue: AtomicUsize,
    thread: Option<JoinHandle<()>>,
}

impl AsyncHost {
    /// Connects to a controller on a new thread.
    pub async fn connect(
        provider: Arc<dyn Provider>,
        options: HostOptions,
    ) -> Result<Self, HostError> {
        let device = provider.device_for(options.remote, options.local)?;
        let wake = Arc::new(Wake::new().map_err(FabricError::os("eventfd"))?);
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
            next_queue: AtomicUsize::new(0),
            thread: Some(thread),
        })
    }

    /// Handles of the I/O queues.
    #[must_use]
    pub fn io_queues(&self) -> impl ExactSizeIterator<Item = IoQueue> + use<> {
        IoQueue::all(self.io_queues)
    }

    /// Allocates memory that the controller may read and write.
    pub fn buffer(&self, length: usize) -> Result<Buffer, HostError> {
        Ok(Buffer::new(&*self.device, length)?)
    }

    /// Submits a command on the next I/O queue in rotation. The command waits while the queue is
    /// full, and owns its buffer until it ends, even if the future is dropped:
    ///
    /// ```compile_fail,E0382
    /// # fn main() {}
    /// # use cairn_initiator::{AsyncHost, Buffer, Data, Namespace};
    /// # fn example(host: &AsyncHost, disk: &Namespace, mut buffer: Buffer) {
    /// drop(host.submit(disk.write_command(0, 1), Data::whole(buffer)));
    /// buffer.write(0, b"other data");
    /// # }
    /// ```
    pub fn submit(&self, command: impl Into<Command>, data: Data<'static>) -> Completion {
        self.submit_on(self.next_queue(), command, data)
    }

    /// Like [`submit`](Self::submit), on the given I/O queue.
    pub fn submit_on(
        &self,
        queue: IoQueue,
        command: impl Into<Command>,
        data: Data<'static>,
    ) -> Completion {
        self.submit_to(To::Io(queue, command.into()), data)
    }

    /// Like [`submit`](Self::submit), on the admin queue.
    pub fn submit_admin(&self, sqe: Sqe, data: Data<'static>) -> Completion {
        self.submit_to(To::Admin(sqe), data)
    }

    fn submit_to(&self, to: To, data: Data<'static>) -> Completion {
        let (promise, answer) = promise();
        self.order(Order::Submit(Submission { to, data, promise }));
        Completion(answer)
    }

    /// Runs an I/O command on the next queue in rotation. A status other than success is an error.
    pub async fn run(&self, command: impl Into<Command>, data: Data<'static>) -> Ended {
        let (queue, command) = (self.next_queue(), command.into());
        let ended = self.submit_on(queue, command, data).await;
        let name = || command_name(queue.qid(), &command.sqe);
        let answer = ended
            .answer
            .and_then(|response| response.require_success(name));
        Ended { answer, ..ended }
    }

    fn next_queue(&self) -> IoQueue {
        let turn = self.next_queue.fetch_add(1, Ordering::Relaxed);
        IoQueue::in_rotation(turn, self.io_queues)
    }

    /// Runs blocking work, such as admin commands, on the host's thread, while other commands wait.
    ///
    /// # Panics
    /// If `work` panics. The panic continues in the awaiting task.
    pub async fn with_host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let (promise, answer) = promise();
        self.order(Order::Work(Box::new(move |host| {
            // All tasks need this thread, so a panic of `work` must not end it.
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

    /// Opens namespace `nsid` on the thread of the host.
    pub async fn open_namespace(&self, nsid: u32) -> Result<Namespace, HostError> {
        self.with_host(move |host| host.open_namespace(nsid)).await
    }

    /// Shuts the controller down and ends the thread. Commands in flight end in
    /// [`HostError::Fabric`], without their buffers.
    pub async fn shutdown(mut self) -> Result<(), HostError> {
        let (promise, answer) = promise();
        self.order(Order::Shutdown(promise));
        let result = answer.await;
        self.join();
        result
    }

    fn order(&self, order: Order) {
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
    /// Disconnects. Unlike [`shutdown`](Self::shutdown), does not shut the controller down.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.order(Order::Leave);
            self.join();
        }
    }
}

type Ready = Promise<(u16, Arc<dyn Device>)>;
