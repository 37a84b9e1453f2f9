//! A target without threads, without sleep and with a clock of the caller's: the
//! same reactors and the same control plane, moved along by hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use cairn_config::Config;
use cairn_rdma::{Clock, Provider};
use tokio::sync::mpsc::unbounded_channel;

use super::StartError;
use super::control::Control;
use super::reactors::Reactors;
use crate::audit::Audit;
use crate::reactor::Rest;
use crate::usage::Usage;

/// A target for simulations. Nothing happens in it but during [`Self::step`].
pub struct SteppedTarget {
    control: Control,
    clock: Clock,
}

impl std::fmt::Debug for SteppedTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SteppedTarget({:?})", self.usage())
    }
}

impl SteppedTarget {
    /// As [`Target::start`](super::Target::start).
    ///
    /// # Errors
    /// What the configuration names and is not available.
    pub fn start(
        config: Config,
        providers: Vec<Arc<dyn Provider>>,
        clock: Clock,
    ) -> Result<Self, StartError> {
        // No signal and no socket gives orders.
        let (_, orders) = unbounded_channel();
        let reactors = Reactors::Stepped(Vec::new());
        let audit = Audit::default();
        let kept = clock.clone();
        let control = Control::start(config, providers, orders, reactors, kept, false, audit)?;
        Ok(Self { control, clock })
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.control.addresses()
    }

    /// Does all there is to do now, and says when to come again if nothing
    /// happens before: now, if a reactor polls on until the clock is moved.
    pub fn step(&mut self) -> Option<Instant> {
        loop {
            let worked = self.control.step();
            let now = self.clock.now();
            let rest = self.control.reactors.step(now);
            match rest {
                // Polling on for a while has no end if time stands still.
                Rest::Spin | Rest::Yield if !worked && self.clock.now() == now => return Some(now),
                Rest::Until(deadline) if !worked => {
                    let own = self.control.next_step();
                    return [deadline, own].into_iter().flatten().min();
                }
                _ => {}
            }
        }
    }

    /// One round of each reactor, as the thread of a busy one does them: it looks at
    /// no control plane and does not go to sleep. For counting what a round costs.
    pub fn round(&mut self) {
        self.control.reactors.round(self.clock.now());
    }

    /// What the control plane has to do now, and nothing of the reactors: the counterpart of
    /// [`Self::round`].
    pub fn attend(&mut self) {
        self.control.step();
    }

    /// Stops listening, takes no more commands, and closes each queue when its
    /// last command is answered.
    pub fn drain(&mut self) {
        self.control.drain();
    }

    /// Ends it as SIGKILL does: whatever is in progress.
    pub fn kill(mut self) {
        self.control.reactors.kill();
    }

    /// What its reactors hold now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        for reactor in self.control.reactors.stepped() {
            reactor.add_to(&mut sum);
        }
        sum
    }
}
