//! The commands `fabric set-mode` and `set-tos`: defaults of the connection manager in configfs.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use cairn_base::permission;
use cairn_trouble::Caller;
use serde::Serialize;

use super::{Failure, Format, output};
use crate::facts::{INFINIBAND, RDMA_CM, RoceVersion};
use crate::tos::Tos;

const MODE: &str = "default_roce_mode";

#[derive(Serialize)]
struct Change<'a> {
    device: &'a str,
    port: u32,
    setting: &'static str,
    is: &'a str,
    was: String,
    undo: Option<String>,
}

#[derive(Serialize)]
struct Done<'a> {
    changes: Vec<Change<'a>>,
    unit: String,
}

pub(super) struct Setting<'a> {
    caller: Caller,
    device: &'a str,
    file: &'static str,
    value: String,
    words: String,
    meaning: String,
}

impl<'a> Setting<'a> {
    pub(super) fn mode(caller: Caller, device: &'a str, version: RoceVersion) -> Self {
        Self {
            caller,
            device,
            file: MODE,
            value: version.configfs().to_owned(),
            words: format!("set-mode {device} {version}"),
            meaning: format!("RoCE {version}"),
        }
    }

    pub(super) fn tos(caller: Caller, device: &'a str, tos: u8) -> Self {
        Self {
            caller,
            device,
            file: "default_roce_tos",
            value: tos.to_string(),
            words: format!("set-tos {device} {tos}"),
            meaning: Tos(tos).to_string(),
        }
    }

    pub(super) fn apply(
        &self,
        root: Option<&Path>,
        port: Option<u32>,
        format: Format,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let root = root.unwrap_or(Path::new("/"));
        if !root.is_dir() {
            return Err(format!(
                "{} is a recording: nothing can be set in it",
                root.display()
            ));
        }
        let ports = self.ports(root, port)?;
        let directory = Directory::open(root, self.device)?;
        let mut changes = Vec::new();
        for port in ports {
            let file = directory.path.join(format!("ports/{port}/{}", self.file));
            let error = |what: &str, error: std::io::Error| {
                format!("cannot {what} {}: {}", file.display(), remedy(&error))
            };
            let before = fs::read_to_string(&file).map_err(|e| error("read", e))?;
            fs::write(&file, &self.value).map_err(|e| error("write", e))?;
            let after = fs::read_to_string(&file).map_err(|e| error("read", e))?;
            if after.trim() != self.value {
                return Err(format!(
                    "{} was written, and says {:?} all the same",
                    file.display(),
                    after.trim()
                ));
            }
            changes.push(Change {
                device: self.device,
                port,
                setting: self.file,
                is: &self.value,
                was: before.trim().to_owned(),
                undo: self.undo(before.trim(), port),
            });
        }
        let unit = self.unit(port);
        if format == Format::Json {
            return output::json(&Done { changes, unit }, out);
        }
        for change in &changes {
            output::text(&self.line(change), out)?;
        }
        let lasting = format!(
            "\nIt lasts until the driver is loaded again. To make it last, write it to\n\
             /etc/systemd/system/{name} and `systemctl enable {name}`:\n\n{unit}",
            name = self.unit_name(port),
        );
        output::text(&lasting, out)
    }

    fn line(&self, change: &Change<'_>) -> String {
        let Change { port, is, was, .. } = change;
        let (device, file) = (self.device, self.file);
        let mut line = format!(
            "{device} port {port}: {file} is {is:?} ({}), ",
            self.meaning
        );
        if was == is {
            line.push_str("as it was before\n");
            return line;
        }
        line.push_str(&format!("was {was:?}"));
        if let Some(undo) = &change.undo {
            line.push_str(&format!("; `{undo}` undoes it"));
        }
        line.push('\n');
        line
    }

    fn undo(&self, before: &str, port: u32) -> Option<String> {
        let (program, device) = (self.caller.program(), self.device);
        let words = if self.file == MODE {
            let version = RoceVersion::parse(before)?;
            format!("set-mode {device} {version}")
        } else {
            format!("set-tos {device} {}", before.parse::<u8>().ok()?)
        };
        (before != self.value).then(|| format!("{program} fabric {words} --port {port}"))
    }

    fn ports(&self, root: &Path, port: Option<u32>) -> Result<Vec<u32>, Failure> {
        let device = root
            .join(INFINIBAND.trim_start_matches('/'))
            .join(self.device);
        let is_name = !self.device.is_empty() && !self.device.contains(['/', '.']);
        let names = is_name.then(|| fs::read_dir(device.join("ports")));
        let Some(Ok(names)) = names else {
            return Err(format!(
                "there is no RDMA device {:?}: `{} fabric` lists them",
                self.device,
                self.caller.program()
            ));
        };
        let mut ports: Vec<u32> = names
            .flatten()
            .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
            .collect();
        ports.sort_unstable();
        match port {
            Some(port) if ports.contains(&port) => Ok(vec![port]),
            Some(port) => Err(format!("{} has no port {port}, but {ports:?}", self.device)),
            None => Ok(ports),
        }
    }

    fn unit_name(&self, port: Option<u32>) -> String {
        let port = port.map_or_else(String::new, |port| format!("-port{port}"));
        let file = self.file.replace('_', "-");
        format!("{file}-{}{port}.service", self.device)
    }

    fn unit(&self, port: Option<u32>) -> String {
        let port = port.map_or_else(String::new, |port| format!(" --port {port}"));
        format!(
            "[Unit]\n\
             Description=RoCE on {device}: {meaning}\n\
             Wants=modprobe@rdma_cm.service\n\
             After=modprobe@rdma_cm.service sys-kernel-config.mount\n\
             Before={target}.service\n\n\
             [Service]\n\
             Type=oneshot\n\
             ExecStart=/usr/bin/env {program} fabric {words}{port}\n\n\
             [Install]\n\
             WantedBy=multi-user.target\n",
            device = self.device,
            meaning = self.meaning,
            program = self.caller.program(),
            target = self.caller.target,
            words = self.words,
        )
    }
}

fn remedy(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            let advice = permission(
                "by sudo",
                "this is a container whose /sys is read-only, or a security module refuses it",
            );
            format!("{error}: {advice}")
        }
        ErrorKind::InvalidInput => {
            format!("{error}: the port cannot do that; `fabric` shows what its GIDs can")
        }
        _ => error.to_string(),
    }
}

/// Directory of a device in configfs, removed on drop if this program created it. The kernel keeps
/// the settings.
struct Directory {
    path: PathBuf,
    is_ours: bool,
}

impl Directory {
    fn open(root: &Path, device: &str) -> Result<Self, Failure> {
        let path = root.join(RDMA_CM.trim_start_matches('/')).join(device);
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self {
                path,
                is_ours: true,
            }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self {
                path,
                is_ours: false,
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(format!(
                "{RDMA_CM} is not there: modprobe rdma_cm, and mount -t configfs none \
                 /sys/kernel/config"
            )),
            Err(error) => Err(format!(
                "cannot make {}: {}",
                path.display(),
                remedy(&error)
            )),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = fs::remove_dir(&self.path);
        }
    }
}
