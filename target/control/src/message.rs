use std::io;

use cairn_config::EditError;
use rustix::io::Errno;
use serde_json::{Map, Value, json};

const BATCH_MAX: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// JSON-RPC code, or negated errno.
    pub code: i64,
    pub message: String,
}

impl Error {
    pub const PARSE: i64 = -32700;
    /// Valid JSON, but no request.
    pub const INVALID_REQUEST: i64 = -32600;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL: i64 = -32603;

    pub fn new(code: i64, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Self::INVALID_PARAMS, message)
    }

    pub fn errno(errno: Errno, message: impl Into<String>) -> Self {
        Self::new(-i64::from(errno.raw_os_error()), message)
    }

    /// Returns a system error with the errno of `error`, or EIO.
    pub fn io(error: &io::Error, message: impl Into<String>) -> Self {
        let number = error.raw_os_error();
        Self::errno(number.map_or(Errno::IO, Errno::from_raw_os_error), message)
    }

    /// Returns a [`METHOD_NOT_FOUND`](Self::METHOD_NOT_FOUND) error with the text that SPDK's
    /// clients expect.
    #[must_use]
    pub fn no_method() -> Self {
        Self::new(Self::METHOD_NOT_FOUND, "Method not found")
    }
}

impl From<EditError> for Error {
    fn from(error: EditError) -> Self {
        let message = error.to_string();
        match error {
            EditError::Missing(_) => Self::errno(Errno::NOENT, message),
            EditError::Exists(_) => Self::errno(Errno::EXIST, message),
            EditError::InUse(_) => Self::errno(Errno::BUSY, message),
            EditError::Full(_) => Self::errno(Errno::NOSPC, message),
            EditError::Unreadable(_) => Self::invalid(message),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub method: String,
    pub params: Map<String, Value>,
}

#[derive(Debug)]
pub(crate) struct Call {
    /// `None` for a notification, which gets no response.
    pub(crate) id: Option<Value>,
    pub(crate) request: Result<Request, Error>,
}

#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) is_batch: bool,
    pub(crate) calls: Vec<Call>,
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Calls, Error> {
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| Error::new(Error::PARSE, format!("Parse error: {error}")))?;
    match value {
        Value::Array(values) if values.is_empty() => Err(Error::new(
            Error::INVALID_REQUEST,
            "an empty batch: send at least one request",
        )),
        Value::Array(values) if values.len() > BATCH_MAX => Err(Error::new(
            Error::INVALID_REQUEST,
            format!("a batch has at most {BATCH_MAX} requests: send several"),
        )),
        Value::Array(values) => Ok(Calls {
            is_batch: true,
            calls: values.into_iter().map(call).collect(),
        }),
        value => Ok(Calls {
            is_batch: false,
            calls: vec![call(value)],
        }),
    }
}

#[cfg(feature = "fuzzing")]
#[must_use]
pub fn parses(bytes: &[u8]) -> bool {
    parse(bytes).is_ok()
}

fn call(value: Value) -> Call {
    let invalid = |why: &str| Err(Error::new(Error::INVALID_REQUEST, why));
    let Value::Object(mut object) = value else {
        return Call {
            id: Some(Value::Null),
            request: invalid("a request is an object"),
        };
    };
    let id = object.remove("id");
    let is_id = |id: &Value| id.is_null() || id.is_string() || id.is_number();
    if !id.as_ref().is_none_or(is_id) {
        return Call {
            id: Some(Value::Null),
            request: invalid("an id is a string or a number"),
        };
    }
    if object
        .get("jsonrpc")
        .is_some_and(|version| version != "2.0")
    {
        let request = invalid("this is JSON-RPC 2.0: write \"jsonrpc\": \"2.0\"");
        return Call { id, request };
    }
    let Some(Value::String(method)) = object.remove("method") else {
        let request = invalid("a request has a \"method\", a string");
        return Call { id, request };
    };
    let request = match object.remove("params") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(params)) => Ok(params),
        Some(Value::Array(params)) if params.is_empty() => Ok(Map::new()),
        Some(_) => Err(Error::invalid("parameters go by name: send an object")),
    };
    let request = request.map(|params| Request { method, params });
    Call { id, request }
}

pub(crate) fn response(id: &Value, result: Result<Value, Error>) -> Value {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(Error { code, message }) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_request_says_why() {
        for (text, code) in [("{", Error::PARSE), ("[]", Error::INVALID_REQUEST)] {
            assert_eq!(parse(text.as_bytes()).unwrap_err().code, code, "{text}");
        }
        for (text, code) in [
            ("{}", Error::INVALID_REQUEST),
            ("[1]", Error::INVALID_REQUEST),
            (r#"{"id":1,"method":3}"#, Error::INVALID_REQUEST),
            (r#"{"id":[],"method":"a"}"#, Error::INVALID_REQUEST),
            (r#"{"jsonrpc":"1.0","method":"a"}"#, Error::INVALID_REQUEST),
            (
                r#"{"id":1,"method":"a","params":[1]}"#,
                Error::INVALID_PARAMS,
            ),
        ] {
            let calls = parse(text.as_bytes()).unwrap();
            let error = calls.calls[0].request.as_ref().unwrap_err();
            assert_eq!(error.code, code, "{text}");
        }
    }

    #[test]
    fn notifications_have_no_id() {
        let calls = parse(br#"{"method":"a"}"#).unwrap();
        assert!(calls.calls[0].id.is_none());
        let calls = parse(br#"[{"method":"a","id":"x","params":{"p":1}}]"#).unwrap();
        assert!(calls.is_batch);
        assert_eq!(calls.calls[0].id, Some(json!("x")));
        assert_eq!(calls.calls[0].request.as_ref().unwrap().params["p"], 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
        }
    }
}
