//! Identity of a disk: a unique UUID, which all targets derive alike. `docs/decisions/` has the
//! inputs and reasons.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags, XattrFlags};
use rustix::io::Errno;
use uuid::Uuid;

const DISKS: Uuid = Uuid::from_u128(0x1d3c_40b8_6b1f_4c0e_9f55_7a2c_0f4e_d2b6);

/// Extended attribute of a file, with the UUID and the inode for which it was created.
const ATTRIBUTE: &str = "user.cairn.uuid";

/// Machines on which a disk's name is unique. Globally unique names need no scope.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// Identifier of this machine, such as its machine ID.
    pub machine: &'a str,
    /// Whether other machines see the same disk under the same name.
    pub shared: bool,
    /// Whether a file without a stored identity gets one.
    pub stores: bool,
}

impl Scope<'_> {
    fn name(self, name: &str) -> String {
        match self.shared {
            true => name.to_owned(),
            false => format!("{} {name}", self.machine),
        }
    }
}

pub(super) fn random() -> io::Result<Uuid> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    // RFC 4122, 4.4: version 4, variant 10b.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(Uuid::from_bytes(bytes))
}

pub(super) fn of(file: &File, path: &Path, scope: Scope<'_>) -> io::Result<Uuid> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        let number = metadata.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))?;
        return Ok(of_device(&device, path, scope));
    }
    let birth = Birth::of(file)?;
    match kept_with(file, path, &birth, scope.stores) {
        Ok(uuid) => Ok(uuid),
        Err(error) => {
            if birth.is_weak {
                // Logged when a disk is opened.
                tracing::warn!(
                    path = %path.display(), %error,
                    "cannot store an identity with this file, and its file system has no creation \
                     times: hosts may mistake another file of this name for the same disk; set \
                     uuid"
                );
            }
            Ok(derived(&birth.in_scope(scope)))
        }
    }
}

/// Returns the identity that a file was copied with, unless the copy was exported before. Blocks on
/// the file system.
#[must_use]
pub fn copied_identity(path: &Path) -> Option<Uuid> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    let (kept, birth) = (read(&file).ok()??, Birth::of(&file).ok()?);
    let (uuid, of) = parse(&kept)?;
    (of != birth.text).then_some(uuid)
}

pub(super) fn derived(name: &str) -> Uuid {
    Uuid::new_v5(&DISKS, name.as_bytes())
}

#[derive(Debug, PartialEq, Eq)]
enum Name {
    Global(String),
    Local(String),
    /// Name from the device's path and size. A replacement device at the same path may get the same
    /// name.
    Place(String),
}

impl Name {
    fn map(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Global(name) => Self::Global(change(name)),
            Self::Local(name) => Self::Local(change(name)),
            Self::Place(name) => Self::Place(change(name)),
        }
    }
}

fn of_device(device: &Path, path: &Path, scope: Scope<'_>) -> Uuid {
    match name_of(device, scope) {
        Name::Global(name) => derived(&name),
        Name::Local(name) => derived(&scope.name(&name)),
        Name::Place(name) => {
            // Logged when a disk is opened.
            tracing::warn!(
                path = %path.display(),
                "this device has no unique name: hosts mistake any device at this path for the \
                 same disk; set uuid, and change it when you replace the device"
            );
            derived(&scope.name(&name))
        }
    }
}

fn name_of(device: &Path, scope: Scope<'_>) -> Name {
    let text = |attribute: &str| {
        let text = fs::read_to_string(device.join(attribute)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    if text("partition").is_some() {
        // A copy of a disk has the same partition UUIDs, so a partition is named by its disk and
        // its first sector.
        let start = text("start").unwrap_or_default();
        let disk = device
            .parent()
            .map_or(Name::Place(String::new()), |parent| name_of(parent, scope));
        return disk.map(|disk| format!("{disk} from sector {start}"));
    }
    if let Some(backing) = text("loop/backing_file") {
        let offset = text("loop/offset").unwrap_or_default();
        return of_loop(Path::new(&backing), scope)
            .map(|file| format!("loop {file} from byte {offset}"));
    }
    let global = [
        ("dm/uuid", "dm"),
        ("md/uuid", "md"),
        ("wwid", "wwid"),
        ("device/wwid", "wwid"),
    ];
    for (attribute, kind) in global {
        if let Some(name) = text(attribute) {
            return Name::Global(format!("{kind} {name}"));
        }
    }
    // These names are unique on this machine only, because users of virtual machines and of the
    // device mapper choose them.
    for (attribute, kind) in [("serial", "serial"), ("dm/name", "dm name")] {
        if let Some(name) = text(attribute) {
            return Name::Local(format!("{kind} {name}"));
        }
    }
    let place = format!(
        "{} of {}",
        device.display(),
        text("size").unwrap_or_default()
    );
    match device.file_name().and_then(|name| name.to_str()) {
        Some(name) if name.starts_with("ram") || name.starts_with("zram") => {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
            Name::Place(format!("{place} since {}", boot.unwrap_or_default().trim()))
        }
        _ => Name::Place(place),
    }
}

fn of_loop(backing: &Path, scope: Scope<'_>) -> Name {
    let local = Scope {
        shared: false,
        ..scope
    };
    let open = || {
        let file = File::open(backing)?;
        let birth = Birth::of(&file)?;
        kept_with(&file, backing, &birth, scope.stores)
            .or_else(|_| Ok(derived(&birth.in_scope(local))))
    };
    let named: io::Result<Uuid> = open();
    match named {
        Ok(uuid) => Name::Global(uuid.to_string()),
        Err(_) => Name::Place(backing.display().to_string()),
    }
}

#[derive(Debug)]
struct Birth {
    text: String,
    /// True if the birth time is unknown. A reused inode number is then not detected.
    is_weak: bool,
    fsid: u64,
}

impl Birth {
    fn of(file: &File) -> io::Result<Self> {
        /// `f_type` of Btrfs. A snapshot has another file system ID, but the same inode numbers.
        const BTRFS_MAGIC: u32 = 0x9123_683e;
        let fields = StatxFlags::INO | StatxFlags::BTIME;
        let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, fields)?;
        let fsid = rustix::fs::fstatvfs(file)?.f_fsid;
        let is_weak = statx.stx_mask & StatxFlags::BTIME.bits() == 0;
        let mut text = format!("inode {}", statx.stx_ino);
        if !is_weak {
            let born = statx.stx_btime;
            text += &format!(" of {}.{:09}", born.tv_sec, born.tv_nsec);
        }
        if rustix::fs::fstatfs(file)?.f_type as u32 == BTRFS_MAGIC {
            text += &format!(" in {fsid:016x}");
        }
        Ok(Self {
            text,
            is_weak,
            fsid,
        })
    }

    fn in_scope(&self, scope: Scope<'_>) -> String {
        scope.name(&format!("file {} {:016x}", self.text, self.fsid))
    }
}

fn kept_with(file: &File, path: &Path, birth: &Birth, stores: bool) -> io::Result<Uuid> {
    let (uuid, how) = match read(file)? {
        None if !stores => return Err(io::Error::other("no identity is stored")),
        None => (random()?, XattrFlags::CREATE),
        Some(kept) => match parse(&kept) {
            Some((uuid, of)) if of == birth.text => return Ok(uuid),
            _ => {
                // Derived and not random, because all targets that open this copy must get the same
                // UUID.
                let uuid = derived(&format!("copy {kept} {}", birth.text));
                // Logged when a disk is opened.
                tracing::warn!(
                    path = %path.display(), was = kept, %uuid,
                    "the file is a copy of another disk, or was moved from another file system: \
                     it gets a new identity; to keep the previous identity, set it as uuid"
                );
                (uuid, XattrFlags::REPLACE)
            }
        },
    };
    if !stores {
        return Ok(uuid);
    }
    let value = format!("{uuid} {}", birth.text);
    match rustix::fs::fsetxattr(file, ATTRIBUTE, value.as_bytes(), how) {
        Err(Errno::EXIST) => {
            let kept = read(file)?.unwrap_or_default();
            let parsed = parse(&kept).filter(|(_, of)| of == &birth.text);
            let (uuid, _) = parsed.ok_or_else(|| io::Error::other("its identity changes"))?;
            Ok(uuid)
        }
        Err(_) if how == XattrFlags::REPLACE => Ok(uuid),
        Err(error) => Err(error.into()),
        Ok(()) => {
            // An identity seen by a host must survive a power failure.
            file.sync_all()?;
            Ok(uuid)
        }
    }
}

fn read(file: &File) -> io::Result<Option<String>> {
    let mut value = [0; 256];
    match rustix::fs::fgetxattr(file, ATTRIBUTE, &mut value[..]) {
        Ok(length) => Ok(Some(String::from_utf8_lossy(&value[..length]).into_owned())),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn parse(value: &str) -> Option<(Uuid, &str)> {
    let (uuid, birth) = value.split_once(' ')?;
    Some((Uuid::try_parse(uuid).ok()?, birth))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::super::conformance::devices;
    use super::*;

    const HERE: Scope<'_> = Scope {
        machine: "a machine",
        shared: false,
        stores: true,
    };

    const FOLDERS: [&str; 2] = [env!("CARGO_MANIFEST_DIR"), "/dev/shm"];

    fn image(path: &Path) -> PathBuf {
        File::create(path).unwrap().set_len(1 << 20).unwrap();
        path.to_owned()
    }

    fn identity(path: &Path) -> Uuid {
        of(&File::open(path).unwrap(), path, HERE).unwrap()
    }

    fn run(program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {output:?}"
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn a_file_is_known_wherever_it_is_moved_and_a_copy_is_another() {
        for folder in FOLDERS {
            let folder = tempfile::tempdir_in(folder).unwrap();
            let first = image(&folder.path().join("first"));
            let other = image(&folder.path().join("other"));
            let known = identity(&first);
            assert_eq!(identity(&first), known);
            assert_ne!(identity(&other), known);

            let moved = folder.path().join("moved");
            fs::rename(&first, &moved).unwrap();
            assert_eq!(identity(&moved), known);

            let copy = folder.path().join("copy");
            let [from, to] = [&moved, &copy].map(|path| path.to_str().unwrap());
            run("cp", &["--preserve=all", from, to]);
            assert_eq!(
                read(&File::open(&copy).unwrap()).unwrap(),
                read(&File::open(&moved).unwrap()).unwrap()
            );
            assert_eq!(copied_identity(&moved), None);
            assert_eq!(copied_identity(&copy), Some(known));
            let of_copy = identity(&copy);
            assert_eq!(copied_identity(&copy), None, "the copy has its own");
            assert_ne!(of_copy, known);
            assert_eq!(identity(&copy), of_copy);
            assert_eq!(identity(&moved), known, "the first stays who it was");

            fs::rename(&copy, &moved).unwrap();
            assert_eq!(identity(&moved), of_copy);
            fs::rename(&other, &moved).unwrap();
            assert!(![known, of_copy].contains(&identity(&moved)));
        }
    }

    #[test]
    fn starters_of_one_disk_agree_on_what_it_is() {
        for folder in FOLDERS {
            let folder = tempfile::tempdir_in(folder).unwrap();
            for round in 0..20 {
                let path = &image(&folder.path().join(format!("{round}")));
                if round % 2 == 1 {
                    let copied = format!("{} inode 1 of 2.3", random().unwrap());
                    let file = File::open(path).unwrap();
                    let flags = XattrFlags::CREATE;
                    rustix::fs::fsetxattr(&file, ATTRIBUTE, copied.as_bytes(), flags).unwrap();
                }
                let identities = std::thread::scope(|scope| {
                    let starters = [(); 8].map(|()| scope.spawn(|| identity(path)));
                    starters.map(|starter| starter.join().unwrap())
                });
                assert_eq!(identities, [identities[0]; 8]);
            }
        }
    }

    #[test]
    fn what_another_program_wrote_there_is_no_identity() {
        let folder = tempfile::tempdir_in(FOLDERS[0]).unwrap();
        let mut identities = Vec::new();
        for (number, value) in ["", "nonsense", "nonsense inode 1", "\u{7f}\0"]
            .iter()
            .enumerate()
        {
            let path = image(&folder.path().join(format!("{number}")));
            let file = File::open(&path).unwrap();
            rustix::fs::fsetxattr(&file, ATTRIBUTE, value.as_bytes(), XattrFlags::CREATE).unwrap();
            let uuid = identity(&path);
            assert_eq!(identity(&path), uuid);
            assert!(!identities.contains(&uuid));
            identities.push(uuid);
        }
    }

    #[test]
    fn without_attributes_a_file_is_known_by_its_birth() {
        let folder = tempfile::tempdir_in(FOLDERS[0]).unwrap();
        let [first, other] = ["first", "other"].map(|name| {
            let path = image(&folder.path().join(name));
            Birth::of(&File::open(path).unwrap()).unwrap()
        });
        assert!(!first.is_weak, "{first:?}");
        assert_ne!(first.text, other.text);
        let [here, anywhere] = [false, true].map(|shared| {
            let scope = Scope { shared, ..HERE };
            derived(&first.in_scope(scope))
        });
        assert_ne!(here, anywhere);
    }

    fn name(attributes: &[(&str, &str)]) -> Name {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("pci/block/sdx");
        for (attribute, value) in attributes {
            let path = device.join(attribute);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        let part = device.join("sdx1");
        name_of(if part.exists() { &part } else { &device }, HERE)
    }

    #[test]
    fn a_device_is_known_by_the_name_that_it_has() {
        let global = |name: &str| Name::Global(name.to_owned());
        let local = |name: &str| Name::Local(name.to_owned());
        assert_eq!(name(&[("wwid", "eui.0011\n")]), global("wwid eui.0011"));
        assert_eq!(
            name(&[("device/wwid", "naa.5000 \n"), ("size", "8\n")]),
            global("wwid naa.5000")
        );
        assert_eq!(name(&[("dm/uuid", "LVM-abc\n")]), global("dm LVM-abc"));
        assert_eq!(
            name(&[("dm/uuid", "\n"), ("dm/name", "cut\n")]),
            local("dm name cut")
        );
        assert_eq!(name(&[("md/uuid", "01-02\n")]), global("md 01-02"));
        assert_eq!(name(&[("serial", "disk0\n")]), local("serial disk0"));
        assert_eq!(
            name(&[
                ("wwid", "eui.0011\n"),
                ("sdx1/partition", "1\n"),
                ("sdx1/start", "2048\n")
            ]),
            global("wwid eui.0011 from sector 2048")
        );
        let nameless = name(&[("serial", "\n"), ("size", "8\n")]);
        assert!(
            matches!(&nameless, Name::Place(place) if place.ends_with("block/sdx of 8")),
            "{nameless:?}"
        );
    }

    #[test]
    fn a_loop_device_is_the_file_behind_it() {
        let folder = tempfile::tempdir_in(FOLDERS[0]).unwrap();
        let attach = |file: &Path, more: &[&str]| devices::attach(file, more).map(PathBuf::from);
        let [one, two] = ["one", "two"].map(|name| image(&folder.path().join(name)));
        let Some(device) = attach(&one, &[]) else {
            return;
        };
        let later = attach(&one, &["--offset", "65536"]).unwrap();
        let known = [&device, &later].map(|device| identity(device));
        let detach = |device: &Path| run("losetup", &["--detach", device.to_str().unwrap()]);
        detach(&device);
        let other = attach(&two, &[]).unwrap();
        let elsewhere = attach(&one, &[]).unwrap();
        let then = [&other, &elsewhere].map(|device| identity(device));
        for device in [&later, &other, &elsewhere] {
            detach(device);
        }
        assert_ne!(known[0], known[1], "another part of the file");
        assert_ne!(then[0], known[0], "another file");
        assert_eq!(then[1], known[0], "the same file");
    }
}
