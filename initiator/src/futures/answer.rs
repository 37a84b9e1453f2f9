//! One-shot channel from the host's thread to a task.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use cairn_rdma::FabricError;

use crate::error::HostError;

/// Receiving half. If dropped, the result is discarded, but the work continues.
#[derive(Debug)]
pub(super) struct Answer<T>(Arc<Cell<T>>);

/// Sending half. If dropped without a result, the task receives an error.
#[derive(Debug)]
pub(super) struct Promise<T>(Option<Arc<Cell<T>>>);

#[derive(Debug)]
struct Cell<T>(Mutex<AnswerState<T>>);

#[derive(Debug)]
struct AnswerState<T> {
    result: Option<Result<T, HostError>>,
    waker: Option<Waker>,
}

pub(super) fn promise<T>() -> (Promise<T>, Answer<T>) {
    let cell = Arc::new(Cell(Mutex::new(AnswerState {
        result: None,
        waker: None,
    })));
    (Promise(Some(Arc::clone(&cell))), Answer(cell))
}

impl<T> Cell<T> {
    fn lock(&self) -> MutexGuard<'_, AnswerState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, result: Result<T, HostError>) {
        let mut state = self.lock();
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Promise<T> {
    pub(super) fn keep(mut self, result: Result<T, HostError>) {
        if let Some(cell) = self.0.take() {
            cell.fill(result);
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(cell) = self.0.take() {
            cell.fill(Err(FabricError::Gone("host's thread").into()));
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, HostError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        if let Some(result) = state.result.take() {
            return Poll::Ready(result);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll<T>(answer: &mut Answer<T>) -> Poll<Result<T, HostError>> {
        Pin::new(answer).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_promise_is_kept_or_broken() {
        let (kept, mut answer) = promise();
        assert!(poll(&mut answer).is_pending());
        kept.keep(Ok(7));
        assert!(matches!(poll(&mut answer), Poll::Ready(Ok(7))));

        let (broken, mut answer) = promise::<u32>();
        drop(broken);
        let Poll::Ready(Err(error)) = poll(&mut answer) else {
            panic!("a broken promise is an answer, too");
        };
        assert_eq!(error.to_string(), "the host's thread no longer exists");
    }
}
