use cairn_control::Error;
use serde_json::json;

use super::super::methods::Methods;
use super::super::notices::KINDS;
use super::super::parameters::{Nothing, read};
use super::parameters::NoticesOf;
use super::{Answer, Params};

impl Methods {
    pub(super) async fn notify(&self, method: &str, params: Params) -> Answer {
        match method {
            "notify_get_types" => {
                read::<Nothing>(params)?;
                Ok(json!(KINDS))
            }
            "notify_get_notifications" => {
                let NoticesOf { id, max } = read(params)?;
                let snapshot = self.snapshot().await?;
                Ok(self
                    .published
                    .notices(&snapshot)
                    .from(id, max.unwrap_or(u64::MAX)))
            }
            _ => Err(Error::no_method()),
        }
    }
}
