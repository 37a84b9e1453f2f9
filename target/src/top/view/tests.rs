use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::page::Page;
use super::*;

fn rates() -> Rates {
    let mut text = String::from(
        "cairn_build_info{version=\"9.9\"} 1\n\
         cairn_reactor_queue_pairs{reactor=\"0\"} 7\n\
         cairn_reactor_seconds_total{reactor=\"0\",state=\"busy\"} 0.95\n\
         cairn_rdma_device_info{device=\"rxe0\"} 1\n\
         cairn_rdma_hw_counter_total{device=\"rxe0\",counter=\"out_of_sequence\"} 3\n\
         cairn_connects_refused_total{reason=\"host not allowed\"} 2\n\
         cairn_namespace_info{subsystem=\"nqn.s\",nsid=\"1\",backing=\"/dev/vdb\"} 1\n\
         cairn_namespace_ios_total{subsystem=\"nqn.s\",nsid=\"1\",op=\"read\"} 12345\n",
    );
    for (at, reads) in [(1, 100), (2, 900), (3, 500)] {
        let host = format!(
            "subsystem=\"nqn.s\",host_nqn=\"nqn.2014-08.org.nvmexpress:uuid:0f01fb42-9f2d-4bd5-host{at}\",\
             cntlid=\"{at}\""
        );
        text += &format!("cairn_host_queues{{{host}}} 3\n");
        text += &format!("cairn_host_ios_total{{{host},op=\"read\"}} {reads}\n");
        text += &format!("cairn_host_errors_total{{{host}}} {}\n", at / 3);
    }
    Rates::between(&Page::default(), &Page::parse(&text).unwrap(), 1.0)
}

fn view() -> View {
    let mut view = View::new("192.0.2.1:9464".parse().unwrap(), true);
    view.take(Ok(rates()));
    view
}

fn press(view: &mut View, code: KeyCode) -> bool {
    view.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn drawn(view: &mut View, (width, height): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(usize::from(width));
    let line = |cells: &[ratatui::buffer::Cell]| -> String {
        cells.iter().map(|cell| cell.symbol()).collect()
    };
    lines
        .map(|cells| line(cells).trim_end().to_owned())
        .collect()
}

fn order_of_hosts(view: &mut View) -> String {
    let lines = drawn(view, (80, 24));
    let rows = lines.iter().filter_map(|line| line.split_once("host"));
    rows.filter_map(|(_, after)| after.chars().next())
        .filter(char::is_ascii_digit)
        .collect()
}

#[test]
fn a_screen_of_80_by_24_has_what_matters() {
    let lines = drawn(&mut view(), (80, 24));
    let all = lines.join("\n");
    for shown in [
        "cairn-target 9.9 at 192.0.2.1:9464: 3 hosts, 1 namespace",
        "read 12345/s",
        "connections refused, 2.0 a second: host not allowed",
        "1: hosts (3)",
        "HOST",
        "READ/sv",
        "WRITE/s",
        "READ MiB/s",
        "P99 us",
        "q quit",
    ] {
        assert!(all.contains(shown), "no {shown} in:\n{all}");
    }
    assert!(all.contains("…") && all.contains("4bd5-host2 "), "{all}");
    assert!(!all.contains("P_KEY"), "{all}");
    assert!(lines[23].starts_with("q quit"), "{all}");
}

#[test]
fn more_width_shows_more_columns_and_whole_names() {
    let all = drawn(&mut view(), (240, 24)).join("\n");
    for shown in [
        "P_KEY",
        "nqn.2014-08.org.nvmexpress:uuid:0f01fb42-9f2d-4bd5-host1",
    ] {
        assert!(all.contains(shown), "no {shown} in:\n{all}");
    }
}

#[test]
fn no_size_is_too_small_to_draw() {
    let mut view = view();
    for size in [(1, 1), (5, 2), (20, 5), (79, 3), (40, 100), (80, 24)] {
        for key in ['1', '2', '3', '4'] {
            press(&mut view, KeyCode::Char(key));
            drawn(&mut view, size);
        }
    }
}

#[test]
fn keys_choose_the_column_and_the_order() {
    let mut view = view();
    assert_eq!(order_of_hosts(&mut view), "231");
    press(&mut view, KeyCode::Char('r'));
    assert_eq!(order_of_hosts(&mut view), "132");
    for _ in 0..5 {
        press(&mut view, KeyCode::Char('<'));
    }
    assert_eq!(order_of_hosts(&mut view), "123");
    press(&mut view, KeyCode::Char('<'));
    let lines = drawn(&mut view, (80, 24)).join("\n");
    assert!(
        lines.contains("P_KEY^"),
        "it sorts, so it is shown:\n{lines}"
    );
    press(&mut view, KeyCode::Char('>'));
    assert_eq!(order_of_hosts(&mut view), "123");
}

#[test]
fn keys_choose_the_table() {
    let mut view = view();
    for (key, shown) in [
        (KeyCode::Tab, "/dev/vdb"),
        (KeyCode::Tab, "95.0 %"),
        (KeyCode::Tab, "out_of_sequence"),
        (KeyCode::Tab, "host2"),
        (KeyCode::BackTab, "out_of_sequence"),
        (KeyCode::Char('2'), "/dev/vdb"),
    ] {
        assert!(press(&mut view, key));
        let all = drawn(&mut view, (120, 24)).join("\n");
        assert!(all.contains(shown), "no {shown} in:\n{all}");
    }
}

#[test]
fn rows_scroll_as_far_as_there_are_some() {
    let mut view = view();
    let mut top = |key| {
        press(&mut view, key);
        let all = drawn(&mut view, (80, 8)).join("\n");
        all.split_once("4bd5-host")
            .map(|(_, after)| after[..1].to_owned())
    };
    assert_eq!(top(KeyCode::Home).as_deref(), Some("2"));
    assert_eq!(top(KeyCode::Down).as_deref(), Some("3"));
    assert_eq!(top(KeyCode::End).as_deref(), Some("1"));
    assert_eq!(top(KeyCode::Down).as_deref(), Some("1"));
    assert_eq!(top(KeyCode::Up).as_deref(), Some("3"));
    assert_eq!(top(KeyCode::PageUp).as_deref(), Some("2"));
}

#[test]
fn a_target_that_is_gone_leaves_the_last_reading_and_the_reason() {
    let mut view = view();
    view.take(Err("it does not answer".into()));
    let all = drawn(&mut view, (80, 24)).join("\n");
    assert!(
        all.contains("it does not answer") && all.contains("host2"),
        "{all}"
    );
    view.take(Ok(rates()));
    let all = drawn(&mut view, (80, 24)).join("\n");
    assert!(!all.contains("it does not answer"), "{all}");
}

#[test]
fn a_pause_keeps_what_is_shown() {
    let mut view = view();
    press(&mut view, KeyCode::Char(' '));
    view.take(Err("it does not answer".into()));
    let all = drawn(&mut view, (80, 24)).join("\n");
    assert!(
        all.contains("PAUSED") && !all.contains("not answer"),
        "{all}"
    );
    press(&mut view, KeyCode::Char(' '));
    view.take(Err("it does not answer".into()));
    assert!(drawn(&mut view, (80, 24)).join("\n").contains("not answer"));
}

#[test]
fn keys_end_it() {
    let mut view = view();
    assert!(!press(&mut view, KeyCode::Char('q')));
    assert!(!press(&mut view, KeyCode::Esc));
    assert!(!view.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(press(&mut view, KeyCode::Char('c')));
}

#[test]
fn without_colours_a_failure_stands_out_all_the_same() {
    for has_colours in [true, false] {
        let mut view = view();
        view.has_colours = has_colours;
        let mut terminal = Terminal::new(TestBackend::new(120, 24)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content();
        let coloured = cells.iter().any(|cell| cell.fg != Color::Reset);
        assert_eq!(coloured, has_colours);
        let bold = cells
            .iter()
            .any(|cell| cell.modifier.contains(Modifier::BOLD));
        assert!(bold);
    }
}

#[test]
fn names_cannot_write_escape_sequences() {
    let text = "cairn_namespace_info{subsystem=\"nqn.s\x1b[2J\",nsid=\"1\",backing=\"x\"} 1\n";
    let rates = Rates::between(&Page::default(), &Page::parse(text).unwrap(), 1.0);
    assert!(!text::text(&rates, "192.0.2.1:9464").contains('\x1b'));
}
