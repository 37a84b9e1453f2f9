//! ext4 on a loop device, which a test can freeze (fsfreeze) or hang.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cairn_tests::harness::Scratch;

/// Script that thaws and unmounts the file system when its input ends, or after 150 s. Otherwise,
/// a killed test would never exit, because its writes wait for the thaw.
const CARETAKER: &str = "read -r -t 150; fsfreeze -u \"$0\"; umount -l \"$0\"; rmdir \"$0\"";

#[derive(Debug)]
pub(super) struct Freezer {
    image: Option<Scratch>,
    folder: PathBuf,
    caretaker: Child,
    pub(super) disk: String,
}

impl Freezer {
    pub(super) fn mount(name: &str) -> Option<Self> {
        let image = Scratch::new(&format!("freezer-{name}"), 32 << 20);
        let mut mounted = Self::mount_on(image.path())?;
        mounted.image = Some(image);
        Some(mounted)
    }

    pub(super) fn mount_on(image: &Path) -> Option<Self> {
        let folder = image.with_extension("mounted");
        std::fs::create_dir(&folder).unwrap();
        let made = run("mkfs.ext4", &["-q", "-F"], &[image])
            && run("mount", &["-o", "loop,commit=3"], &[image, &folder]);
        if !made {
            println!("not tested, for no file system can be made and mounted here");
            std::fs::remove_dir(&folder).unwrap();
            return None;
        }
        let caretaker = Command::new("bash")
            .args(["-c", CARETAKER])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let file = folder.join("disk");
        std::fs::write(&file, vec![0; 1 << 20]).unwrap();
        Some(Self {
            image: None,
            disk: format!("{} block_size = 4096", file.display()),
            folder,
            caretaker,
        })
    }

    pub(super) fn sync(&self) {
        assert!(run("sync", &["-f"], &[&self.folder]));
    }

    pub(super) fn freeze(&self) {
        assert!(run("fsfreeze", &["-f"], &[&self.folder]));
    }

    pub(super) fn thaw(&self) {
        assert!(run("fsfreeze", &["-u"], &[&self.folder]));
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let input = self.caretaker.stdin.take();
        let _ = input.expect("its input is a pipe").write_all(b"\n");
        let _ = self.caretaker.wait();
    }
}

fn run(program: &str, options: &[&str], paths: &[&Path]) -> bool {
    let output = Command::new(program).args(options).args(paths).output();
    output.is_ok_and(|output| output.status.success())
}
