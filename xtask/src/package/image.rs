//! OCI image archive of the programs, with libraries, manuals, completions, examples and licences.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::processor::Processor;
use super::stage::{PROGRAMS, Staged};
use super::{About, do_it, said, tar};

pub(super) fn write(staged: &Staged, about: &About, out: &Path) -> Result<PathBuf> {
    let (root, layout) = (out.join("tree/image"), out.join("oci"));
    fill(about.processor, &staged.main, &root)?;
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layer = out.join("layer.tar");
    do_it(tar(&root, &layer, about).arg("."))?;
    let layer = add(
        &blobs,
        &fs::read(&layer).inspect(|_| drop(fs::remove_file(&layer)))?,
    )?;
    let config = json!({
        "architecture": about.processor.debian(),
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/cairn-target"],
            "Cmd": ["serve", "--config", "/etc/cairn/target.toml"],
            "User": "65532:65532",
            "Env": ["PATH=/usr/bin", "XDG_RUNTIME_DIR=/run"],
            "StopSignal": "SIGTERM",
        },
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = add(&blobs, &serde_json::to_vec(&config)?)?;
    let of = |kind: &str, blob: &Value| {
        let kind = format!("application/vnd.oci.image.{kind}");
        json!({"mediaType": kind, "digest": blob["digest"], "size": blob["size"]})
    };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": of("config.v1+json", &config),
        "layers": [of("layer.v1.tar", &layer)],
    });
    let manifest = add(&blobs, &serde_json::to_vec(&manifest)?)?;
    let mut entry = of("manifest.v1+json", &manifest);
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": about.version});
    let index = json!({"schemaVersion": 2, "manifests": [entry]});
    fs::write(layout.join("index.json"), serde_json::to_vec(&index)?)?;
    fs::write(
        layout.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    let name = format!(
        "cairn-{}-{}.oci.tar",
        about.version,
        about.processor.debian()
    );
    let file = out.join(name);
    do_it(tar(&layout, &file, about).args(["blobs", "index.json", "oci-layout"]))?;
    fs::remove_dir_all(layout)?;
    Ok(file)
}

fn add(blobs: &Path, bytes: &[u8]) -> Result<Value> {
    let new = blobs.join("new");
    fs::write(&new, bytes)?;
    let sum = said(Command::new("sha256sum").arg("--binary").arg(&new))?;
    let sum = sum.split_whitespace().next().unwrap_or_default();
    fs::rename(&new, blobs.join(sum))?;
    Ok(json!({"digest": format!("sha256:{sum}"), "size": bytes.len()}))
}

fn fill(processor: Processor, tree: &Path, root: &Path) -> Result<()> {
    for name in PROGRAMS {
        let program = tree.join("usr/bin").join(name);
        place(&program, &root.join("usr/bin").join(name))?;
        for (from, to) in processor.libraries(&program)? {
            place(&from, &root.join(to))?;
        }
    }
    do_it(
        Command::new("cp")
            .arg("--archive")
            .arg(tree.join("usr/share"))
            .arg(root.join("usr")),
    )?;
    for folder in ["etc/cairn", "run/cairn", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    // The target does not run as root, but must write to these folders.
    for folder in ["run/cairn", "tmp"] {
        fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o1777))?;
    }
    Ok(())
}

fn place(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
