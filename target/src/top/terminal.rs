use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::Readings;
use super::rates::Rates;
use super::view::View;

const LOOK: Duration = Duration::from_millis(100);

/// Shows readings until a key ends the view, or `count` times. Always restores the terminal.
pub(super) fn run(mut readings: Readings, count: Option<u64>) -> Result<(), String> {
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut view = View::new(readings.from.to_string(), has_colours);
    let (sender, receiver) = sync_channel(1);
    // Another thread takes the readings, because keys must work while the target hangs.
    std::thread::spawn(move || while sender.send(readings.next()).is_ok() {});
    let no_terminal = |error: io::Error| {
        format!("cannot draw on this terminal ({error}): use `--output json` or a pipe instead")
    };
    let mut terminal = ratatui::try_init().map_err(no_terminal)?;
    let result = follow(&mut terminal, &mut view, &receiver, count);
    ratatui::restore();
    result.map_err(no_terminal)
}

fn follow(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    readings: &Receiver<Result<Rates, String>>,
    count: Option<u64>,
) -> io::Result<()> {
    let mut seen = 0;
    let mut is_stale = true;
    while count.is_none_or(|count| seen < count) {
        match readings.try_recv() {
            Ok(reading) => {
                view.take(reading);
                seen += 1;
                is_stale = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        if is_stale {
            terminal.draw(|frame| view.draw(frame))?;
            is_stale = false;
        }
        if !event::poll(LOOK)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if !view.key(key) => return Ok(()),
            Event::Key(_) | Event::Resize(..) => is_stale = true,
            _ => {}
        }
    }
    Ok(())
}
