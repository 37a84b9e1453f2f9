use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    output
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// True if all programs are installed. Otherwise, records a skip that names the missing program and
/// its Debian package.
#[track_caller]
pub(crate) fn has(programs: &[(&str, &str)]) -> bool {
    let mut versions = programs
        .iter()
        .map(|(program, package)| cairn_skips::version(&mut Command::new(program), package));
    let missing = versions.find_map(Result::err);
    if let Some(missing) = &missing {
        cairn_skips::skip(format_args!("packages: {missing}"));
    }
    missing.is_none()
}

pub(crate) fn may_chroot() -> Result<(), String> {
    cairn_skips::probe(Command::new("chroot").args(["/", "true"])).map(drop)
}

pub(crate) fn named(out: &Path, start: &str, end: &str) -> PathBuf {
    let mut all = fs::read_dir(out)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let found = all.find(|path| {
        let path = path.to_string_lossy();
        path.contains(start) && path.ends_with(end)
    });
    found.unwrap_or_else(|| panic!("no {start}*{end}"))
}

pub(crate) fn files(root: &Path) -> BTreeSet<String> {
    let find = "find . -path ./proc -prune -o -path ./sys -prune -o -path ./dev -prune -o \
                -path ./var/lib/dpkg -prune -o -path ./var/lib/apt -prune -o -path ./var/log -prune -o -path './etc/*-' -prune \
                -o -name '.pwd.lock' -prune -o -path ./var/cache -prune -o -print";
    let found = run(Command::new("sh").args(["-c", find]).current_dir(root));
    text(&found).lines().map(str::to_owned).collect()
}

/// Returns the root folder of the layer, and the program and user (`UID:GID`) of the image.
pub(crate) fn unpack_image(image: &Path, folder: &Path) -> (PathBuf, String, String) {
    let layout = folder.join("layout");
    fs::create_dir_all(&layout).unwrap();
    run(Command::new("tar")
        .arg("-xf")
        .arg(image)
        .arg("-C")
        .arg(&layout));
    let json = |path: &Path| -> serde_json::Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    assert_eq!(
        json(&layout.join("oci-layout"))["imageLayoutVersion"],
        "1.0.0"
    );
    let blob = |value: &serde_json::Value| {
        let digest = value["digest"].as_str().unwrap().replace("sha256:", "");
        let path = layout.join("blobs/sha256").join(&digest);
        let sum = text(&run(Command::new("sha256sum").arg(&path)));
        assert!(sum.starts_with(&digest), "{sum} is not {digest}");
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            value["size"].as_u64().unwrap()
        );
        path
    };
    let manifest = json(&blob(&json(&layout.join("index.json"))["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    let layer = blob(&manifest["layers"][0]);
    assert_eq!(
        config["rootfs"]["diff_ids"][0],
        manifest["layers"][0]["digest"]
    );
    let program = config["config"]["Entrypoint"][0]
        .as_str()
        .unwrap()
        .to_owned();
    let user = config["config"]["User"].as_str();
    let user = user.unwrap_or("0:0").to_owned();
    let root = folder.join("layer");
    fs::create_dir(&root).unwrap();
    run(Command::new("tar")
        .arg("-xf")
        .arg(layer)
        .arg("-C")
        .arg(&root));
    (root, program, user)
}
