use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::message::Error;

pub fn read<T: DeserializeOwned>(params: Map<String, Value>) -> Result<T, Error> {
    serde_json::from_value(Value::Object(params))
        .map_err(|error| Error::invalid(format!("Invalid parameters: {error}")))
}

/// Converts integral floats, such as 65536.0 and 2.0e4, to integers at any depth.
pub fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            // Larger floats stay floats, because they do not represent every integer.
            const MOST: f64 = (1u64 << 53) as f64;
            let float = number.as_f64().filter(|_| number.is_f64());
            if let Some(float) = float.filter(|float| float.fract() == 0.0 && float.abs() <= MOST) {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Parameters of a method that takes none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}
