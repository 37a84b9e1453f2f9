use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::frame::Frames;
use crate::message::Error;
use crate::place::default_path;

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No path is given, and there is no default path.
    #[error("which target? Give its control socket, by --socket PATH")]
    NoPath,
    #[error(
        "cannot reach a target at {path}: {source}: check that a target is running and that this \
         user may open its control socket; --socket selects another socket"
    )]
    Unreachable { path: PathBuf, source: io::Error },
    #[error("the connection to the target broke: {0}: check the log of the target")]
    Broken(io::Error),
    #[error(
        "the target does not answer: it is stopped or hangs, and executes the request if it \
         continues: check its state (ps -o stat) and its log"
    )]
    Silent,
    /// The data is no JSON-RPC response.
    #[error("the response is not from a target: check that this is its control socket")]
    NoResponse,
    #[error("{0}")]
    Refused(Error),
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Broken(error),
        }
    }
}

/// Returns `given`, or else the [default](default_path).
pub fn chosen_path(given: Option<&Path>) -> Result<PathBuf, CallError> {
    let given = given.map(Path::to_path_buf);
    given.or_else(default_path).ok_or(CallError::NoPath)
}

/// Blocking connection to a control socket.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    frames: Frames,
    next_id: u64,
}

impl Client {
    /// Connects to a control socket; `patience` is the timeout of each read and write.
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, CallError> {
        let connected = UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok(stream)
        });
        let stream = connected.map_err(|source| CallError::Unreachable {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            stream,
            frames: Frames::default(),
            next_id: 1,
        })
    }

    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value, CallError> {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.stream.write_all(format!("{request}\n").as_bytes())?;
        let mut response = self.receive()?;
        if let Some(error) = response.get("error") {
            let code = error.get("code").and_then(Value::as_i64);
            let message = error.get("message").and_then(Value::as_str);
            return Err(match (code, message) {
                (Some(code), Some(message)) => CallError::Refused(Error::new(code, message)),
                _ => CallError::NoResponse,
            });
        }
        let result = response.get_mut("result").map(Value::take);
        result.ok_or(CallError::NoResponse)
    }

    fn receive(&mut self) -> Result<Value, CallError> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let frame = self.frames.next_of_any_length();
            if let Some(frame) = frame.map_err(|_| CallError::NoResponse)? {
                return serde_json::from_slice(&frame).map_err(|_| CallError::NoResponse);
            }
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                read => self.frames.push(&bytes[..read]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_target_that_is_stopped_is_named_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let mut client = Client::connect(&path, Duration::from_millis(20)).unwrap();
        let error = client.call("cairn_status", &json!({})).unwrap_err();
        assert!(matches!(error, CallError::Silent), "{error}");
        assert!(error.to_string().contains("ps -o stat"), "{error}");
    }
}
