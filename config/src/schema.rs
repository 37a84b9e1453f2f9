//! JSON schema of the configuration file, and the check of keys and types against it.

use std::collections::HashSet;

use schemars::transform::{Transform, transform_subschemas};
use schemars::{Schema, generate::SchemaSettings};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::document::Document;
use crate::file::File;
use crate::key_path::{KeyPath, Step};
use crate::problem::Problem;
use crate::suggest;

/// Returns the JSON schema of the configuration file, identical to docs/config.schema.json.
#[must_use]
pub fn schema() -> String {
    let mut text =
        serde_json::to_string_pretty(&file_schema()).expect("a schema has string keys only");
    text.push('\n');
    text
}

fn file_schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with_transform(Plain);
    settings
        .into_generator()
        .into_root_schema_for::<File>()
        .to_value()
}

#[derive(Clone)]
struct Plain;

impl Transform for Plain {
    fn transform(&mut self, schema: &mut Schema) {
        schema.remove("format");
        if let Some(Value::Array(types)) = schema.get_mut("type") {
            types.retain(|name| name != "null");
            if let [only] = &types[..] {
                let only = only.clone();
                schema.insert("type".to_owned(), only);
            }
        }
        if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
            choices.retain(|choice| choice.get("type") != Some(&Value::from("null")));
            if let [Value::Object(only)] = &choices[..] {
                let only = only.clone();
                schema.remove("anyOf");
                schema.ensure_object().extend(only);
            }
        }
        if schema.get("default") == Some(&Value::Null) {
            schema.remove("default");
        }
        transform_subschemas(self, schema);
    }
}

pub(crate) struct Shaped<'t> {
    pub(crate) root: Spanned<DeTable<'t>>,
    pub(crate) dropped: HashSet<KeyPath>,
    pub(crate) problems: Vec<Problem>,
}

pub(crate) fn shape<'t>(document: &Document<'t>) -> Shaped<'t> {
    let schema = file_schema();
    let mut walk = Walk {
        document,
        schema: &schema,
        dropped: HashSet::new(),
        problems: Vec::new(),
    };
    let mut root = document.root.clone();
    walk.table(root.get_mut(), &schema, &KeyPath::root());
    Shaped {
        root,
        dropped: walk.dropped,
        problems: walk.problems,
    }
}

struct Walk<'a, 't> {
    document: &'a Document<'t>,
    schema: &'a Value,
    dropped: HashSet<KeyPath>,
    problems: Vec<Problem>,
}

impl<'a> Walk<'a, '_> {
    fn table(&mut self, table: &mut DeTable<'_>, schema: &'a Value, place: &KeyPath) {
        let keys: Vec<String> = table.keys().map(|key| key.get_ref().to_string()).collect();
        for key in keys {
            let below = place.key(&key);
            let known = schema["properties"].get(&key);
            let of_all = schema
                .get("additionalProperties")
                .filter(|it| it.is_object());
            let fits = match known.or(of_all) {
                Some(schema) => self.value(table[key.as_str()].get_mut(), schema, &below),
                None => self.unknown(&key, schema, place),
            };
            if !fits {
                table.remove(key.as_str());
                self.dropped.insert(below);
            }
        }
    }

    /// Checks `value` against `schema`. For a wrong type, adds a problem and returns false. Wrong
    /// members are removed from a table, which stays valid.
    fn value(&mut self, value: &mut DeValue<'_>, schema: &'a Value, place: &KeyPath) -> bool {
        let schema = self.resolve(schema);
        if !kinds(schema).contains(&kind(value)) {
            let problem = misfit(value, schema, place);
            self.problems
                .push(problem.located(self.document.locate(place)));
            return false;
        }
        match value {
            DeValue::Table(table) => self.table(table, schema, place),
            DeValue::Array(array) => {
                return array.iter_mut().enumerate().all(|(index, item)| {
                    self.value(item.get_mut(), &schema["items"], &place.index(index))
                });
            }
            _ => {}
        }
        true
    }

    fn unknown(&mut self, key: &str, schema: &Value, place: &KeyPath) -> bool {
        let known = || {
            let properties = schema["properties"].as_object();
            properties
                .into_iter()
                .flat_map(|map| map.keys().map(String::as_str))
        };
        let mut problem = Problem::new(format!("unknown key \"{key}\" in {}", place.table_name()));
        problem.help(match suggest::nearest(key, known()) {
            Some(near) => {
                // The user probably meant this key, so it must not be reported as missing.
                self.dropped.insert(place.key(near));
                format!("did you mean \"{near}\"?")
            }
            None => format!("the keys here are {}", suggest::choices(known())),
        });
        let excerpt = self.document.locate_key(&place.key(key));
        self.problems.push(problem.located(excerpt));
        false
    }

    fn resolve(&self, schema: &'a Value) -> &'a Value {
        match schema.get("$ref").and_then(Value::as_str) {
            Some(reference) => self
                .schema
                .pointer(reference.trim_start_matches('#'))
                .expect("the schema refers to its own definitions"),
            None => schema,
        }
    }
}

fn kinds(schema: &Value) -> Vec<&str> {
    match (&schema["type"], &schema["anyOf"]) {
        (Value::String(kind), _) => vec![kind],
        (_, Value::Array(choices)) => choices.iter().flat_map(kinds).collect(),
        _ => Vec::new(),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "string",
        DeValue::Integer(_) => "integer",
        DeValue::Boolean(_) => "boolean",
        DeValue::Array(_) => "array",
        DeValue::Table(_) => "object",
        DeValue::Float(_) => "fraction",
        DeValue::Datetime(_) => "date",
    }
}

fn misfit(value: &DeValue<'_>, schema: &Value, place: &KeyPath) -> Problem {
    let wanted = kinds(schema);
    let in_words = |kind: &str| match kind {
        "string" => "text in quotes",
        "integer" => "a whole number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "a table",
        "fraction" => "a number with a fraction",
        _ => "a date",
    };
    let wanted_words: Vec<&str> = wanted.iter().map(|kind| in_words(kind)).collect();
    let mut problem = Problem::new(format!(
        "expected {}, found {}",
        wanted_words.join(" or "),
        in_words(kind(value))
    ));
    let name = place.table_name();
    let bare = name.trim_matches(['[', ']']);
    match (&wanted[..], value) {
        (["integer"], DeValue::String(text)) if text.parse::<i64>().is_ok() => {
            problem.help(format!("write it without quotes: {text}"));
        }
        (["boolean"], DeValue::String(text)) => match &**text {
            "true" | "yes" | "on" => problem.help("write true, without quotes"),
            "false" | "no" | "off" => problem.help("write false, without quotes"),
            _ => {}
        },
        (["string"], DeValue::Integer(number)) => {
            problem.help(match place.steps().last() {
                Some(Step::Key(key)) if ["listen", "address"].contains(&&**key) => {
                    "write an address in quotes, such as \"127.0.0.1\" or \"[::1]:9464\"".to_owned()
                }
                _ => format!("write it in quotes: \"{number}\""),
            });
        }
        (["array"], DeValue::String(text)) => problem.help(format!("write [\"{text}\"]")),
        (["array"], DeValue::Table(_)) => problem.help(format!("write [[{bare}]]")),
        (["object"], DeValue::Array(_)) => problem.help(format!("write [{bare}]")),
        _ => {}
    }
    problem
}
