//! Target with the real reactors and control plane, but without threads or sleep. The caller
//! provides the clock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use cairn_base::Clock;
use cairn_config::Config;
use cairn_rdma::Provider;
use tokio::sync::mpsc::unbounded_channel;

use super::control::{ControlPlane, Start};
use super::error::StartError;
use super::reactors::Reactors;
use cairn_data_path::audit::Audit;
use cairn_data_path::durable;
use cairn_data_path::reactor::Rest;
use cairn_data_path::usage::Usage;

/// Target for simulations, run only by calls such as [`Self::step`].
pub struct SteppedTarget {
    control: ControlPlane,
    clock: Clock,
    /// Indices of paused reactors.
    paused: Vec<usize>,
}

impl std::fmt::Debug for SteppedTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SteppedTarget({:?})", self.usage())
    }
}

impl SteppedTarget {
    /// Starts like [`Target::start`](super::Target::start).
    pub fn start(
        config: Config,
        providers: Vec<Arc<dyn Provider>>,
        clock: Clock,
    ) -> Result<Self, StartError> {
        let (_, orders) = unbounded_channel();
        let reactors = Reactors::Stepped(Vec::new());
        let audit = Audit::default();
        let control = ControlPlane::start(Start {
            config,
            providers,
            orders,
            reactors,
            clock: clock.clone(),
            is_patient: false,
            audit,
        })?;
        Ok(Self {
            control,
            clock,
            paused: Vec::new(),
        })
    }

    /// Returns the addresses of the listeners.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.control.service.listeners.addresses()
    }

    /// Does all pending work, and returns the time of the next call. A polling reactor needs that
    /// call as soon as the clock has advanced.
    pub fn step(&mut self) -> Option<Instant> {
        loop {
            let worked = self.control.step();
            let now = self.clock.now();
            let rest = self.control.reactors.step(now, &self.paused);
            match rest {
                // Polling would never end, because the clock stands still in this call.
                Rest::Spin | Rest::Yield if !worked && self.clock.now() == now => return Some(now),
                Rest::Until(deadline) if !worked => {
                    let own = self.control.next_step();
                    return [deadline, own].into_iter().flatten().min();
                }
                _ => {}
            }
        }
    }

    /// Pauses or resumes a reactor, as if its thread got no processor.
    pub fn pause_reactor(&mut self, index: usize, is_paused: bool) {
        self.paused.retain(|paused| *paused != index);
        if is_paused {
            self.paused.push(index);
        }
    }

    /// Simulates a kill during a change of a file in the state directory: this thread panics with
    /// [`Self::INTERRUPTED`] after `steps` system calls, until `None` is set.
    pub fn interrupt_files(steps: Option<u32>) {
        durable::interrupt_after(steps);
    }

    /// Message of the panic of [`Self::interrupt_files`].
    pub const INTERRUPTED: &str = durable::INTERRUPTED;

    /// Runs the loop of each reactor once, without the control plane, to measure its cost.
    pub fn round(&mut self) {
        self.control.reactors.round(self.clock.now());
    }

    /// Replaces the disks' worker threads by [`Self::step_workers`]. Must precede the first write.
    pub fn replace_workers(&mut self) {
        self.control.reactors.replace_workers();
    }

    /// Calls [`cairn_disk::Ring::step_workers`] for each reactor. Returns true if a worker took a
    /// step.
    pub fn step_workers(&mut self, loses: bool) -> bool {
        self.control.reactors.step_workers(loses)
    }

    /// Runs only the pending work of the control plane.
    pub fn attend(&mut self) {
        self.control.step();
    }

    /// Closes listeners, accepts no more commands, and closes each queue after its last response.
    pub fn drain(&mut self) {
        self.control.drain();
    }

    /// Ends the target like SIGKILL.
    pub fn kill(mut self) {
        self.control.reactors.kill();
        // Waiting changes hold the subsystem, which would keep its disks.
        for (_, namespace) in self.control.service.exports.namespaces() {
            namespace.reserving().abandon();
        }
    }

    /// Returns the resources in use by the reactors.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        for reactor in self.control.reactors.stepped() {
            reactor.add_to(&mut sum);
        }
        sum
    }
}
