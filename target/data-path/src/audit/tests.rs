use std::fs;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;

const LONG: Duration = Duration::from_secs(60);

struct Case {
    audit: Audit,
    folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        Self {
            audit: Audit::default(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn to_file(&self, path: &Path) {
        let config = cairn_config::Audit {
            file: Some(path.to_owned()),
            ..cairn_config::Audit::default()
        };
        self.apply(&config);
    }

    fn apply(&self, config: &cairn_config::Audit) {
        let changed: Changed = Arc::new(|| ());
        self.audit.apply(config, &changed).unwrap();
    }

    fn record(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.audit
                .record(|| Event::new("change").value("number", number));
        }
    }

    fn counts(&self) -> (u64, u64) {
        let counts = self.audit.counts();
        (counts[0].lines, counts[0].lost)
    }

    fn trouble(&self) -> Option<String> {
        self.audit.troubles().pop().map(|(_, trouble)| trouble)
    }
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "it did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn read(text: &str) -> (Vec<u64>, u64) {
    let (mut numbers, mut lost) = (Vec::new(), 0);
    for line in text.lines() {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        match line["event"].as_str().unwrap() {
            "lost" => lost += line["count"].as_u64().unwrap(),
            _ => numbers.push(line["number"].as_u64().unwrap()),
        }
    }
    (numbers, lost)
}

#[test]
fn lines_are_whole_in_order_and_for_their_owner_alone() {
    let case = Case::new();
    let path = case.path("audit.json");
    case.to_file(&path);
    case.record(0..1000);
    case.audit.end(LONG);
    assert_eq!(
        read(&fs::read_to_string(&path).unwrap()),
        ((0..1000).collect(), 0)
    );
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_full_disk_loses_what_does_not_fit_into_the_queue_and_says_so() {
    let case = Case::new();
    case.to_file(Path::new("/dev/full"));
    let most = 2 * QUEUE_MAX as u64;
    let begun = Instant::now();
    case.record(0..most);
    assert!(begun.elapsed() < LONG / 2);
    wait_until(|| case.trouble().is_some());
    let trouble = case.trouble().unwrap();
    assert!(trouble.contains("/dev/full: No space left"), "{trouble}");
    let (lines, lost) = case.counts();
    assert_eq!(lines, 0);
    assert!(lost >= most - QUEUE_MAX as u64 - 2 * 64, "{lost}");
    case.audit.end(LONG);
}

#[test]
fn a_disk_that_has_room_again_gets_what_waited_and_one_line_of_what_was_lost() {
    let case = Case::new();
    let path = case.path("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let mut options = fs::File::options();
    let reader = options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut reader = reader.open(&path).unwrap();
    case.to_file(&path);
    let most = 3 * QUEUE_MAX as u64;
    case.record(0..most);
    wait_until(|| case.trouble().is_some());
    case.record(most..most + QUEUE_MAX as u64);
    let (_, lost) = case.counts();
    assert!(lost > 0);
    let sent = most + QUEUE_MAX as u64;
    let mut text = Vec::new();
    let mut numbers = Vec::new();
    wait_until(|| {
        let _ = reader.read_to_end(&mut text);
        let whole = text.iter().rposition(|&byte| byte == b'\n');
        let whole = whole.map_or(0, |at| at + 1);
        let told;
        (numbers, told) = read(std::str::from_utf8(&text[..whole]).unwrap());
        let (_, lost) = case.counts();
        told == lost && numbers.len() as u64 == sent - lost
    });
    assert!(numbers.is_sorted_by(|a, b| a < b));
    wait_until(|| case.trouble().is_none());
}

#[test]
fn a_moved_file_gets_a_successor_without_a_reload() {
    let case = Case::new();
    let (path, old) = (case.path("audit.json"), case.path("audit.json.1"));
    case.to_file(&path);
    case.record(0..10);
    wait_until(|| case.counts().0 == 10);
    fs::rename(&path, &old).unwrap();
    case.record(10..20);
    wait_until(|| case.counts().0 == 20);
    let created = case.path("created");
    fs::write(&created, "").unwrap();
    fs::rename(&created, &path).unwrap();
    case.record(20..30);
    wait_until(|| case.counts().0 == 30);
    case.to_file(&path);
    case.record(30..40);
    case.audit.end(LONG);
    let written = |path| read(&fs::read_to_string(path).unwrap()).0;
    assert_eq!(written(&old), Vec::from_iter(0..10));
    assert_eq!(written(&path), Vec::from_iter(20..40));
}

#[test]
fn a_file_that_cannot_be_opened_anew_leaves_the_old_one_and_is_a_trouble() {
    let case = Case::new();
    let path = case.path("audit.json");
    let old = case.path("old");
    case.to_file(&path);
    case.record(0..1);
    wait_until(|| case.counts().0 == 1);
    fs::rename(&path, &old).unwrap();
    symlink(case.path("elsewhere"), &path).unwrap();
    case.to_file(&path);
    wait_until(|| {
        case.trouble()
            .is_some_and(|trouble| trouble.contains("old file"))
    });
    case.record(1..2);
    wait_until(|| case.counts().0 == 2);
    assert!(!case.path("elsewhere").exists());
    fs::remove_file(&path).unwrap();
    wait_until(|| case.trouble().is_none());
    case.record(2..3);
    case.audit.end(LONG);
    assert_eq!(read(&fs::read_to_string(&old).unwrap()).0, [0, 1]);
    assert_eq!(read(&fs::read_to_string(&path).unwrap()).0, [2]);
}

#[test]
fn half_a_line_of_a_killed_process_stays_a_line_of_its_own() {
    let case = Case::new();
    let path = case.path("audit.json");
    fs::write(&path, "{\"time\":\"2026").unwrap();
    case.to_file(&path);
    case.record(0..2);
    case.audit.end(LONG);
    let text = fs::read_to_string(&path).unwrap();
    let (half, rest) = text.split_once('\n').unwrap();
    assert_eq!(half, "{\"time\":\"2026");
    assert_eq!(read(rest), (vec![0, 1], 0));
}

#[test]
fn a_file_of_another_program_stays_as_it_is() {
    let case = Case::new();
    let path = case.path("disk");
    for content in ["\0\0\0\0\n", "{ \"subsystems\": [] }\n", "x", "\n"] {
        fs::write(&path, content).unwrap();
        let case = Case::new();
        case.to_file(&path);
        case.record(0..3);
        wait_until(|| case.trouble().is_some());
        let trouble = case.trouble().unwrap();
        assert!(trouble.contains("is not an audit log"), "{trouble}");
        assert!(trouble.contains(&path.display().to_string()), "{trouble}");
        case.audit.end(LONG);
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    case.to_file(&path);
    case.record(0..1);
    wait_until(|| case.trouble().is_some());
    fs::remove_file(&path).unwrap();
    wait_until(|| case.trouble().is_none());
    case.audit.end(LONG);
    assert_eq!(read(&fs::read_to_string(&path).unwrap()).0, [0]);
}

#[test]
fn another_configuration_writes_elsewhere() {
    let case = Case::new();
    let path = case.path("audit.json");
    let at = case.path("socket");
    case.to_file(&path);
    case.record(0..5);
    let config = cairn_config::Audit {
        datagram: Some(at.clone()),
        ..cairn_config::Audit::default()
    };
    case.apply(&config);
    case.record(5..7);
    wait_until(|| case.trouble().is_some());
    let socket = UnixDatagram::bind(&at).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut bytes = [0; 1024];
    for number in [5, 6] {
        let length = socket.recv(&mut bytes).unwrap();
        let line = std::str::from_utf8(&bytes[..length]).unwrap();
        assert_eq!(read(line), (vec![number], 0));
    }
    wait_until(|| fs::read_to_string(&path).is_ok_and(|text| read(&text).0 == [0, 1, 2, 3, 4]));
    case.apply(&cairn_config::Audit::default());
    assert!(case.audit.counts().is_empty());
}
