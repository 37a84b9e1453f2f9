use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::Value;

use crate::metrics::{Documented, documented};
use crate::promql::Query;

static DASHBOARD: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../../docs/grafana/cairn-target.json");
    serde_json::from_str(text).expect("the dashboard is JSON")
});

const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];
const COLUMNS: u64 = 24;

fn list<'a>(value: &'a Value, what: &str) -> &'a [Value] {
    value[what]
        .as_array()
        .unwrap_or_else(|| panic!("no {what} in {value}"))
}

fn text<'a>(value: &'a Value, what: &str) -> &'a str {
    value[what]
        .as_str()
        .unwrap_or_else(|| panic!("no {what} in {value}"))
}

fn panels() -> &'static [Value] {
    list(&DASHBOARD, "panels")
}

fn variables() -> &'static [Value] {
    list(&DASHBOARD["templating"], "list")
}

fn queries() -> Vec<&'static Value> {
    let of_panels = panels().iter().filter(|panel| text(panel, "type") != "row");
    of_panels.flat_map(|panel| list(panel, "targets")).collect()
}

fn as_prometheus_sees_it(expression: &str) -> String {
    expression.replace("$__rate_interval", "5m")
}

#[test]
fn it_has_what_grafanas_model_demands() {
    assert_eq!(text(&DASHBOARD, "title"), "Cairn target");
    assert!((8..=40).contains(&text(&DASHBOARD, "uid").len()));
    assert!(DASHBOARD["schemaVersion"].as_u64() >= Some(33));
    assert!(DASHBOARD["id"].is_null(), "Grafana numbers what it imports");
    for part in ["tags", "links"] {
        list(&DASHBOARD, part);
    }
    list(&DASHBOARD["annotations"], "list");
    for end in ["from", "to"] {
        assert!(text(&DASHBOARD["time"], end).starts_with("now"));
    }
    let mut ids = BTreeSet::new();
    for panel in panels() {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        assert!(!text(panel, "title").is_empty(), "{panel}");
        match text(panel, "type") {
            "row" => assert!(list(panel, "panels").is_empty()),
            "stat" | "timeseries" | "table" => {
                has_source(panel);
                assert!(panel["fieldConfig"]["defaults"].is_object(), "{panel}");
                list(&panel["fieldConfig"], "overrides");
                assert!(panel["options"].is_object(), "{panel}");
                let targets = list(panel, "targets").iter();
                let names: BTreeSet<_> = targets.map(|query| text(query, "refId")).collect();
                assert_eq!(names.len(), list(panel, "targets").len(), "{panel}");
            }
            other => panic!("a panel of type {other}"),
        }
    }
}

fn has_source(asking: &Value) {
    let source = &asking["datasource"];
    assert_eq!(text(source, "type"), "prometheus", "{asking}");
    assert_eq!(text(source, "uid"), "${datasource}", "{asking}");
}

#[test]
fn panels_fit_the_grid_and_do_not_lie_on_each_other() {
    let place = |panel: &Value, side: &str| {
        let number = panel["gridPos"][side].as_u64();
        number.unwrap_or_else(|| panic!("no {side} in {panel}"))
    };
    for (index, one) in panels().iter().enumerate() {
        assert!(place(one, "x") + place(one, "w") <= COLUMNS, "{one}");
        assert!(place(one, "w") > 0 && place(one, "h") > 0, "{one}");
        for other in &panels()[..index] {
            let apart = |at, size| {
                place(one, at) >= place(other, at) + place(other, size)
                    || place(other, at) >= place(one, at) + place(one, size)
            };
            let (one, other) = (&one["title"], &other["title"]);
            assert!(apart("x", "w") || apart("y", "h"), "{one} on {other}");
        }
    }
}

#[test]
fn variables_are_there_and_are_used() {
    let mut known = BTreeSet::from(["__rate_interval"]);
    for variable in variables() {
        assert!(known.insert(text(variable, "name")), "{variable} twice");
        match text(variable, "type") {
            "datasource" => assert_eq!(text(variable, "query"), "prometheus"),
            "query" => has_source(variable),
            other => panic!("a variable of type {other}"),
        }
    }
    let all = DASHBOARD.to_string();
    let mut used = BTreeSet::new();
    for part in all.split('$').skip(1) {
        let name = part.trim_start_matches('{');
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        used.insert(&name[..end.expect("JSON goes on")]);
    }
    used.remove("__all");
    assert_eq!(used, known);
}

fn labels_of(series: &str, metrics: &BTreeMap<String, Documented>) -> Option<BTreeSet<String>> {
    let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|part| {
        let metric = metrics.get(series.strip_suffix(part)?)?;
        metric.is_histogram.then_some((metric, *part))
    });
    let (metric, part) = match histogram {
        Some(found) => found,
        None => (metrics.get(series)?, ""),
    };
    let mut labels = metric.labels.clone();
    labels.extend(OF_PROMETHEUS.map(str::to_owned));
    labels.extend((part == "_bucket").then(|| "le".to_owned()));
    Some(labels)
}

#[test]
fn it_queries_metrics_and_labels_that_a_target_has() {
    let metrics = documented();
    assert!(queries().len() > 20);
    for query in queries() {
        has_source(query);
        let expression = text(query, "expr");
        let asked = Query::parse(&as_prometheus_sees_it(expression));
        let asked = asked.unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert!(!asked.selected.is_empty(), "{expression} reads no metric");
        let mut result = BTreeSet::new();
        for (series, chosen_by) in &asked.selected {
            let labels = labels_of(series, &metrics);
            let labels = labels.unwrap_or_else(|| panic!("there is no {series}: {expression}"));
            for label in chosen_by {
                assert!(
                    labels.contains(label),
                    "{series} has no {label}: {expression}"
                );
            }
            result.extend(labels);
        }
        for label in &asked.grouped {
            assert!(result.contains(label), "no {label} in {expression}");
        }
        if !asked.grouped.is_empty() {
            result = asked.grouped;
        }
        for part in query["legendFormat"]
            .as_str()
            .unwrap_or("")
            .split("{{")
            .skip(1)
        {
            let (label, _) = part.split_once("}}").expect("an end");
            assert!(result.contains(label), "no {label} of {expression} to show");
        }
    }
    for variable in variables() {
        let Some(query) = variable["query"]["query"].as_str() else {
            continue;
        };
        let inner = query.strip_prefix("label_values(").expect("label_values()");
        let (name, label) = inner.trim_end_matches(')').split_once(", ").expect("both");
        let labels = labels_of(name, &metrics).unwrap_or_else(|| panic!("{query}"));
        assert!(labels.contains(label), "{query}");
    }
}
