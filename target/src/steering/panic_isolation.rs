//! Confines panics of the control socket to their request or client.

use cairn_control::{Error, Handler, Peer, Request};
use serde_json::Value;

use crate::panics::{Part, confine_future};

pub(super) struct PanicIsolated<H>(pub(super) H);

impl<H: Handler> Handler for PanicIsolated<H> {
    async fn confine(&self, conversation: impl Future<Output = ()> + Send) {
        confine_future(Part::Control, self.0.confine(conversation)).await;
    }

    fn is_small(&self, method: &str) -> bool {
        self.0.is_small(method)
    }

    async fn call(&self, peer: Peer, request: Request) -> Result<Value, Error> {
        let answer = confine_future(Part::Control, self.0.call(peer, request)).await;
        answer.unwrap_or_else(|| {
            Err(Error::new(
                Error::INTERNAL,
                "the target panicked as it carried this out, and goes on: whether anything has \
                 changed, `cairn-target config` and its log show",
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use cairn_control::{Bound, CallError, Client};
    use serde_json::json;
    use tokio::sync::oneshot;

    use super::super::serve;
    use super::*;

    struct Brittle;

    impl Handler for Brittle {
        async fn call(&self, _: Peer, request: Request) -> Result<Value, Error> {
            assert!(request.method != "panic", "planted");
            Ok(json!(request.method))
        }
    }

    #[test]
    fn a_panic_in_a_request_ends_that_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = Bound::bind(&path, None).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = serve(socket, Brittle) => panic!("the socket is no longer served"),
                    _ = stopped => {}
                }
            });
        });
        let patience = Duration::from_secs(60);
        let mut other = Client::connect(&path, patience).unwrap();
        let mut client = Client::connect(&path, patience).unwrap();
        assert_eq!(other.call("before", &json!({})).unwrap(), json!("before"));
        match client.call("panic", &json!({})) {
            Err(CallError::Refused(error)) => assert_eq!(error.code, Error::INTERNAL),
            answer => panic!("{answer:?}"),
        }
        assert_eq!(client.call("after", &json!({})).unwrap(), json!("after"));
        assert_eq!(other.call("after", &json!({})).unwrap(), json!("after"));
        drop(stop);
        serving.join().unwrap();
    }
}
