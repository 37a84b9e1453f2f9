//! Prometheus alerts: each rule must use existing metrics, and fire only for its problem.

use std::fs;
use std::path::Path;
use std::process::Command;

use regex::Regex;

const RULES: &str = include_str!("../../packaging/prometheus/rules.yml");
const TESTS: &str = include_str!("../../packaging/prometheus/rules.test.yml");
const SCRAPE: &str = include_str!("../../packaging/prometheus/scrape.yml");
const FAMILIES: &str = include_str!("../../target/src/exposition/families.rs");
const PAGE: &str = include_str!("../../docs/metrics.md");
const PROMTOOL: &str = "CAIRN_PROMTOOL";

fn rules() -> Vec<(&'static str, &'static str)> {
    let rules = RULES.split("- alert: ").skip(1);
    rules.map(|rule| rule.split_once('\n').unwrap()).collect()
}

#[test]
fn each_alert_has_a_severity_texts_and_tests() {
    let severity = Regex::new(r"labels: \{severity: (critical|warning)\}\n").unwrap();
    let rules = rules();
    assert!(rules.len() > 15, "{} rules", rules.len());
    for (name, rule) in rules {
        assert!(severity.is_match(rule), "{name} has no severity");
        let is_listed = PAGE.contains(&format!("`{name}`"));
        assert!(is_listed, "docs/metrics.md does not list {name}");
        for text in ["summary: '", "action: '"] {
            assert!(rule.contains(text), "{name} has no {text}");
        }
        for test in ["fires", "is silent"] {
            let test = format!("- name: {name} {test}\n");
            assert!(TESTS.contains(&test), "no {test}");
        }
    }
}

#[test]
fn alerts_use_metrics_of_the_target() {
    let name = Regex::new(r"\b(cairn|process)_[a-z_]+").unwrap();
    for (alert, rule) in rules() {
        let expression = rule.split_once("expr: ").unwrap().1;
        let expression = expression.split_once("labels: {").unwrap().0;
        let used: Vec<&str> = name
            .find_iter(expression)
            .map(|found| found.as_str())
            .collect();
        assert!(
            !used.is_empty() || expression.starts_with("up{"),
            "{alert} reads no metric"
        );
        for metric in used {
            let family = metric.trim_end_matches("_bucket");
            let exists = FAMILIES.contains(&format!("\"{family}\""));
            assert!(exists, "{alert}: there is no metric {metric}");
        }
    }
}

#[test]
fn alerts_fire_and_are_silent_as_promtool_finds() {
    let promtool = || Command::new(std::env::var(PROMTOOL).unwrap_or("promtool".to_owned()));
    if let Err(missing) = cairn_skips::version(&mut promtool(), "prometheus") {
        return cairn_skips::skip(missing);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/prometheus");
    let run = |command: &mut Command| cairn_skips::probe(command).unwrap();
    let test = ["test", "rules", "rules.test.yml"];
    run(promtool().args(test).current_dir(&folder));
    let temporary = tempfile::tempdir().unwrap();
    let config = temporary.path().join("prometheus.yml");
    let rules = folder.join("rules.yml").display().to_string();
    let scrape = SCRAPE.replace("/usr/share/doc/cairn/prometheus/rules.yml", &rules);
    assert_ne!(scrape, SCRAPE);
    fs::write(&config, scrape).unwrap();
    run(promtool().args(["check", "config"]).arg(config));
}
