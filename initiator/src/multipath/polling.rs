use std::time::{Duration, Instant};

use nvme_proto::host::multipath::{Choice, Link, Verdict, judge, judge_loss};
use nvme_proto::host::{AssociationState, Notice};
use nvme_proto::wire::cross_reset::Instance;

use super::path::Answer;
use super::{Identity, Multipath, Namespace, PathEvent};
use crate::error::HostError;
use crate::event::Event;

use crate::queue::Response;

impl Multipath {
    /// Does pending work without waiting. Returns true if there was work.
    pub fn poll(&mut self, now: Instant) -> bool {
        self.now = now;
        let mut progress = false;
        for path in 0..self.paths.len() {
            progress |= self.paths[path].controller.poll(now);
            self.take_events(path);
            let time = self.time();
            while let Some(answer) = self.paths[path].inquire(time) {
                self.take_answer(path, answer);
                progress = true;
            }
            progress |= self.reap_path(path);
        }
        while let Some(path) = self.set.tick(self.time()) {
            // The state ANA Change has lasted longer than twice ANATT. Linux resets the controller
            // too (Base, 8.1.3.5).
            self.paths[path].controller.reset();
        }
        self.doubts.expire(self.time());
        progress |= self.advance_resets();
        progress | self.dispatch()
    }

    /// Time of the next necessary poll, if any.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let doubts = self.doubts.deadline().filter(|_| self.ios.waiting() > 0);
        let pause = self.ios.next_pause(self.time());
        let retries = self.paths.iter().filter_map(|path| path.asks_at());
        let look = self.next_look();
        let own = [self.set.deadline(), doubts, pause, look];
        let own = own.into_iter().flatten();
        let own = own.chain(retries).min();
        let own = own.map(|at| self.origin + at);
        let paths = self.paths.iter().filter_map(super::Path::next_deadline);
        paths.chain(own).min()
    }

    fn take_events(&mut self, index: usize) {
        while let Some(event) = self.paths[index].controller.take_event() {
            let path = &mut self.paths[index];
            path.note(&event);
            match &event {
                Event::Live { .. } => {
                    self.set.set_link(index, Link::Reconnecting);
                    self.transfer_max = self.transfer_max.min(path.controller.transfer_max());
                    self.eras += 1;
                    (path.era, path.is_reset) = (self.eras, false);
                    path.instance = Instance::of(path.controller.identity());
                }
                Event::Lost(_) | Event::Gone(Some(_)) => self.path_lost(index),
                Event::Notice(Notice::CrossControllerReset) => self.reset_noticed(index),
                Event::FailFast => self.set.set_fails_fast(index),
                Event::Notice(Notice::NamespacesChanged) => self.set.doubt_ana(index),
                _ => {}
            }
            self.report(index, PathEvent::Controller(event));
        }
        let path = &self.paths[index];
        let link = match path.controller.state() {
            _ if path.refused.is_some() => Link::Lost,
            AssociationState::Live => Link::Live,
            AssociationState::Connecting
            | AssociationState::Resetting
            | AssociationState::Reconnecting { .. } => Link::Reconnecting,
            AssociationState::ShuttingDown | AssociationState::Gone => Link::Lost,
        };
        if link != self.set.link(index) {
            self.set.set_link(index, link);
        }
    }

    fn take_answer(&mut self, index: usize, answer: Answer) {
        match answer {
            Answer::Namespace(namespace) => match self.admit(index, namespace) {
                Ok(()) => {
                    let path = &mut self.paths[index];
                    (path.proven, path.in_question) = (true, false);
                    if path.refused.take().is_some() {
                        self.set.set_link(index, Link::Live);
                    }
                }
                Err(why) => self.refuse(index, why),
            },
            Answer::Ana(Some(_)) if self.paths[index].in_question => {}
            Answer::Ana(Some(state)) if self.paths[index].proven => {
                let (anatt, now) = (self.paths[index].anatt(), self.time());
                if self.set.ana(index) != Some(state) {
                    self.report(index, PathEvent::Ana(Some(state)));
                }
                self.set.set_ana(index, state, anatt, now);
            }
            Answer::Ana(_) => {
                self.set.doubt_ana(index);
                self.report(index, PathEvent::Ana(None));
            }
            Answer::Refused(why) => self.refuse(index, why),
        }
    }

    fn admit(&mut self, index: usize, found: Namespace) -> Result<(), String> {
        if found.identity == Identity::default() {
            return Err("the namespace has no UUID, NGUID or EUI-64 to identify it".into());
        }
        if self
            .options
            .uuid
            .is_some_and(|uuid| uuid != found.identity.uuid)
        {
            return Err("the namespace has another UUID than was asked for".into());
        }
        if self.paths[index].controller.io_queues().len() == 0 {
            return Err("the controller grants no I/O queue".into());
        }
        let known = *self.namespace.get_or_insert(found);
        if found.identity != known.identity {
            return Err("the path leads to another namespace: the identifiers differ".into());
        }
        // After a resize, some paths report the new size later, so an accepted path may report a
        // larger size.
        let grew = self.paths[index].proven && found.blocks > known.blocks;
        if found.block_bytes != known.block_bytes || (found.blocks != known.blocks && !grew) {
            return Err(format!(
                "the namespace has {} blocks of {} bytes here, and {} of {} by other paths",
                found.blocks, found.block_bytes, known.blocks, known.block_bytes
            ));
        }
        Ok(())
    }

    fn refuse(&mut self, index: usize, why: String) {
        self.paths[index].refused = Some(why.clone());
        self.paths[index].proven = false;
        self.set.set_link(index, Link::Lost);
        self.report(index, PathEvent::Refused(why));
    }

    fn reap_path(&mut self, index: usize) -> bool {
        let mut progress = false;
        for queue in self.paths[index].queues() {
            while let Some((slot, answer)) = self.paths[index].reap(queue) {
                self.set.end(index);
                self.settle(index, slot, answer);
                progress = true;
            }
        }
        progress
    }

    fn settle(&mut self, index: usize, slot: u16, answer: Result<Response, HostError>) {
        let io = self.ios.get(slot);
        let verdict = match &answer {
            Ok(response) => judge(response.cqe.status(), &io.sqe, io.failovers),
            Err(_) => judge_loss(&io.sqe),
        };
        let path = &self.paths[index];
        if answer.is_err() && !path.is_reset {
            let hold = self.options.write_hold;
            let hold = hold.unwrap_or_else(|| path.time_in_doubt());
            let until = self.time() + hold;
            self.doubts.add_from(path.era, &io.sqe, until);
        }
        match verdict {
            Verdict::Caller => self.ios.answer(slot, answer),
            Verdict::Again => {
                let pause = answer.as_ref().map_or(Duration::ZERO, |response| {
                    self.paths[index].pause(response.cqe.status())
                });
                self.ios.pause_until(slot, self.time() + pause);
                self.ios.wait_again(slot, true, answer);
            }
            Verdict::Elsewhere { doubt_ana } => {
                if doubt_ana {
                    self.set.doubt_ana(index);
                    self.paths[index].request_ana_log();
                }
                let failed_over = answer.is_ok() && !doubt_ana;
                self.ios.wait_again(slot, failed_over, answer);
            }
        }
    }

    pub(super) fn no_path(&self) -> HostError {
        let fates: Vec<_> = self.paths.iter().map(super::Path::fate).collect();
        HostError::NoPath {
            paths: fates.len(),
            why: fates.join("; "),
        }
    }

    pub(super) fn dispatch(&mut self) -> bool {
        let mut progress = false;
        while let Some(slot) = self.ios.next(self.time(), |sqe| !self.doubts.hold(sqe)) {
            let paths = &self.paths;
            match self
                .set
                .choose(|path| paths[path].queue_for(slot).is_some())
            {
                Choice::Path(path) if self.send(path, slot) => progress = true,
                Choice::Path(_) | Choice::Wait => break,
                Choice::Fail => {
                    let error = self.no_path();
                    self.ios.fail(slot, error);
                    progress = true;
                }
            }
        }
        progress
    }

    fn send(&mut self, index: usize, slot: u16) -> bool {
        let path = &mut self.paths[index];
        let queue = path
            .queue_for(slot)
            .expect("a path that was chosen has room");
        let io = self.ios.get(slot);
        let Ok(ticket) = path
            .controller
            .submit_unchecked(queue.qid(), io.sqe, io.data_on(index))
        else {
            return false;
        };
        path.note_owner(ticket, slot);
        self.set.begin(index);
        self.ios.sent(slot, index, ticket);
        true
    }
}
