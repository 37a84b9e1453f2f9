use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(crate) struct Daemon {
    name: String,
    child: Child,
}

impl Daemon {
    pub(crate) fn start(
        folder: &Path,
        name: &str,
        program: &str,
        arguments: &[&str],
    ) -> io::Result<Self> {
        let out = File::options()
            .create(true)
            .append(true)
            .open(folder.join(format!("{name}.out")))?;
        let child = Command::new(program)
            .args(arguments)
            .arg("-c")
            .arg(folder.join("ceph.conf"))
            .arg("-f")
            .env("CEPH_ARGS", "")
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        Ok(Self {
            name: name.to_owned(),
            child,
        })
    }

    pub(crate) fn check(&mut self) -> io::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(io::Error::other(format!(
                "{} has ended: {status}",
                self.name
            ))),
        }
    }

    pub(crate) fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
