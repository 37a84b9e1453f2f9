//! What may be set: the connection manager's defaults, by configfs.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::{Failure, output};
use crate::facts::{INFINIBAND, RDMA_CM, RoceVersion};
use crate::tos::Tos;

/// A value for a file of each port.
pub(super) struct Setting<'a> {
    program: &'a str,
    device: &'a str,
    file: &'static str,
    value: String,
    /// How it is said on the command line.
    words: String,
    /// What it means.
    meaning: String,
}

impl<'a> Setting<'a> {
    pub(super) fn mode(program: &'a str, device: &'a str, version: RoceVersion) -> Self {
        Self {
            program,
            device,
            file: "default_roce_mode",
            value: version.configfs().to_owned(),
            words: format!("set-mode {device} {version}"),
            meaning: format!("RoCE {version}"),
        }
    }

    pub(super) fn tos(program: &'a str, device: &'a str, tos: u8) -> Self {
        Self {
            program,
            device,
            file: "default_roce_tos",
            value: tos.to_string(),
            words: format!("set-tos {device} {tos}"),
            meaning: Tos(tos).to_string(),
        }
    }

    /// Writes it, and says what was there before.
    pub(super) fn apply(
        &self,
        root: Option<&Path>,
        port: Option<u32>,
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
            let line = format!(
                "{} port {port}: {} is {:?} ({}), was {:?}\n",
                self.device,
                self.file,
                self.value,
                self.meaning,
                before.trim(),
            );
            output::text(&line, out)?;
        }
        output::text(&self.unit(port), out)
    }

    /// The port that was named, or all that the device has.
    fn ports(&self, root: &Path, port: Option<u32>) -> Result<Vec<u32>, Failure> {
        let device = root
            .join(INFINIBAND.trim_start_matches('/'))
            .join(self.device);
        let is_name = !self.device.is_empty() && !self.device.contains(['/', '.']);
        let names = is_name.then(|| fs::read_dir(device.join("ports")));
        let Some(Ok(names)) = names else {
            return Err(format!(
                "there is no RDMA device {:?}: `{} fabric` lists them",
                self.device, self.program
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

    /// A unit that does it at every start.
    fn unit(&self, port: Option<u32>) -> String {
        let port = port.map_or_else(String::new, |port| format!(" --port {port}"));
        let file = self.file.replace('_', "-");
        format!(
            "\nIt lasts until the driver is loaded again. To make it last, write it to\n\
             /etc/systemd/system/{file}-{device}.service and enable that:\n\n\
             [Unit]\n\
             Description=RoCE on {device}: {meaning}\n\
             Wants=modprobe@rdma_cm.service\n\
             After=modprobe@rdma_cm.service sys-kernel-config.mount\n\
             Before=cairn-target.service\n\n\
             [Service]\n\
             Type=oneshot\n\
             ExecStart=/usr/bin/env {program} fabric {words}{port}\n\n\
             [Install]\n\
             WantedBy=multi-user.target\n",
            device = self.device,
            meaning = self.meaning,
            program = self.program,
            words = self.words,
        )
    }
}

/// An error, and what to do about it.
fn remedy(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => format!("{error}; be root"),
        ErrorKind::InvalidInput => {
            format!("{error}: the port cannot do that; `fabric` shows what its GIDs can")
        }
        _ => error.to_string(),
    }
}

/// A device's directory in configfs. One that was not there is taken away again:
/// the values stay in the kernel, and nobody finds what they did not make.
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
