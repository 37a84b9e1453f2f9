use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// Maximum bytes of a text field; the rest is cut, because names and reasons come from
/// unauthenticated peers.
const TEXT_MAX: usize = 1024;

pub(super) const START: &str = "{\"time\":\"";

#[derive(Debug)]
pub struct Event {
    pub(super) at: SystemTime,
    name: &'static str,
    pub(super) peer: Option<SocketAddr>,
    pub(super) is_cheap: bool,
    pub(super) fields: String,
}

impl Event {
    pub fn new(name: &'static str) -> Self {
        Self {
            at: SystemTime::now(),
            name,
            peer: None,
            is_cheap: false,
            fields: String::new(),
        }
    }

    pub fn of_peer(mut self, peer: SocketAddr) -> Self {
        self.peer = Some(peer);
        self
    }

    pub fn cheap(mut self, is_cheap: bool) -> Self {
        self.is_cheap = is_cheap;
        self
    }

    pub fn text(self, key: &'static str, text: &str) -> Self {
        let end = (0..=text.len().min(TEXT_MAX)).rev();
        let end = end.into_iter().find(|end| text.is_char_boundary(*end));
        self.value(key, &text[..end.unwrap_or(0)])
    }

    pub fn value(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        push(&mut self.fields, key, &value.into());
        self
    }

    pub(super) fn line(&self) -> String {
        line(self.at, self.name, self.peer, &self.fields, None)
    }

    pub(super) fn line_of_more(&self, at: SystemTime, count: u64) -> String {
        line(at, self.name, self.peer, &self.fields, Some(count))
    }
}

pub(super) fn line_of_lost(count: u64) -> String {
    line(SystemTime::now(), "lost", None, "", Some(count))
}

fn line(
    at: SystemTime,
    name: &str,
    peer: Option<SocketAddr>,
    fields: &str,
    count: Option<u64>,
) -> String {
    let mut text = format!("{START}{}\",\"event\":\"{name}\"", Utc(at));
    if let Some(peer) = peer {
        push(&mut text, "address", &peer.ip().to_string().into());
        if count.is_none() {
            push(&mut text, "port", &peer.port().into());
        }
    }
    text.push_str(fields);
    if let Some(count) = count {
        push(&mut text, "count", &count.into());
    }
    text.push('}');
    text
}

fn push(text: &mut String, key: &str, value: &Value) {
    let _ = write!(text, ",\"{key}\":");
    for character in value.to_string().chars() {
        // Non-ASCII characters are escaped, because terminals and log readers may misinterpret
        // them.
        if character.is_ascii() && character != '\x7f' {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(text, "\\u{unit:04x}");
        }
    }
}

struct Utc(SystemTime);

impl std::fmt::Display for Utc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs();
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let micros = since.subsec_micros();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"
        )
    }
}

/// Returns (year, month, day) of a day counted from 1970-01-01. Internally, years begin in March,
/// so that the leap day is their last day.
fn date(day: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    /// Days from 0000-03-01 to 1970-01-01.
    const EPOCH: u64 = 719_468;
    let day = day + EPOCH;
    let (era, day) = (day / DAYS_OF_400_YEARS, day % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(Utc(at).to_string(), text);
        }
    }

    #[test]
    fn names_of_strangers_stay_in_their_line_and_their_field() {
        let name = "a\"}\n\u{1b}[2J\u{7f}\u{202e}\u{1f600}{";
        let event = Event::new("refuse").text("host", name).text("reason", "no");
        let line = event.line();
        assert!(line.chars().all(|c| (' '..='~').contains(&c)), "{line}");
        let parsed: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed["host"], name);
        assert_eq!(parsed["reason"], "no");
        let long = "\u{20ac}".repeat(TEXT_MAX);
        let parsed: Value =
            serde_json::from_str(&Event::new("change").text("params", &long).line()).unwrap();
        assert!(parsed["params"].as_str().unwrap().len() <= TEXT_MAX);
    }
}
