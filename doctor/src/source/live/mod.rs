mod dcb;
mod ethtool;
mod netlink;
mod nldev;
mod peer;
mod processes;
mod sys;
mod verbs;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::{Defaults, Node, Question, Source, Unknown};

const RDMA_CM: &str = "sys/kernel/config/rdma_cm";

/// Source that reads this machine, or a directory tree in place of its files.
#[derive(Debug)]
pub struct Live {
    root: PathBuf,
}

impl Live {
    #[must_use]
    pub fn machine() -> Self {
        Self::tree(Path::new("/"))
    }

    /// Creates a source for the files below `root`.
    ///
    /// Unless `root` is `/`, questions to the kernel fail: answers would be about this machine.
    #[must_use]
    pub fn tree(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }
}

impl Source for Live {
    fn read(&self, path: &str) -> Result<String, Unknown> {
        let bytes = fs::read(self.place(path)).map_err(|error| Unknown::io(path, &error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn list(&self, path: &str) -> Result<Vec<String>, Unknown> {
        let names = || -> io::Result<Vec<String>> {
            fs::read_dir(self.place(path))?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect()
        };
        let mut names = names().map_err(|error| Unknown::io(path, &error))?;
        names.sort();
        Ok(names)
    }

    fn link(&self, path: &str) -> Result<String, Unknown> {
        let target = fs::read_link(self.place(path)).map_err(|error| Unknown::io(path, &error))?;
        Ok(target.to_string_lossy().into_owned())
    }

    fn node(&self, path: &str) -> Result<Node, Unknown> {
        let data = fs::metadata(self.place(path)).map_err(|error| Unknown::io(path, &error))?;
        Ok(Node {
            mode: data.mode() & 0o7777,
            uid: data.uid(),
            gid: data.gid(),
        })
    }

    fn ask(&self, question: &Question) -> Result<Value, Unknown> {
        let name = question.to_string();
        if !self.is_machine() {
            let reason = format!("not asked: the facts are those of {}", self.root.display());
            return Err(Unknown::other(&name, reason));
        }
        let answer = match question {
            Question::Pause(netdev) => value(ethtool::pause(netdev)),
            Question::Rings(netdev) => value(ethtool::rings(netdev)),
            Question::Driver(netdev) => value(ethtool::driver(netdev)),
            Question::Statistics(netdev) => value(ethtool::statistics(netdev)),
            Question::Dcb(netdev) => value(dcb::ask(netdev)),
            Question::Addresses => value(netlink::addresses()),
            Question::Attributes(device) => value(verbs::attributes(device)),
            Question::PortMtu(device, port) => value(verbs::port_mtu(device, *port)),
            Question::QueuePairs(device) => value(nldev::queue_pairs(device)),
            Question::Defaults(device, port) => value(self.peek_defaults(device, *port)),
            Question::Route(peer) => value(netlink::route(*peer)),
            Question::Neighbour(netdev, peer) => value(netlink::neighbour(netdev, *peer)),
            Question::Echo(peer, bytes) => value(peer::echo(*peer, *bytes)),
            Question::SocketHolder(inode) => value(processes::holder_of(*inode)),
            Question::Udp(peer, port) => value(peer::udp(*peer, *port)),
        };
        answer.map_err(|error| Unknown::io(&name, &error))
    }

    fn wait(&self, time: Duration) {
        thread::sleep(time);
    }
}

impl Live {
    /// Reads a port's defaults if configfs has no directory of the device. Creates the directory,
    /// then removes it unless another program created it. The kernel keeps the defaults.
    fn peek_defaults(&self, device: &str, port: u32) -> io::Result<Defaults> {
        let directory = self.root.join(RDMA_CM).join(device);
        let made = fs::create_dir(&directory);
        let is_ours = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            made => made.map(|()| true)?,
        };
        let port = directory.join(format!("ports/{port}"));
        let read = || -> io::Result<Defaults> {
            let tos = fs::read_to_string(port.join("default_roce_tos"))?;
            Ok(Defaults {
                mode: fs::read_to_string(port.join("default_roce_mode"))?
                    .trim()
                    .to_owned(),
                tos: tos
                    .trim()
                    .parse()
                    .map_err(|_| io::Error::other("not a ToS"))?,
            })
        };
        let defaults = read();
        if is_ours {
            // In configfs, rmdir(2) also removes the files in the directory.
            let _ = fs::remove_dir(&directory);
        }
        defaults
    }
}

fn value<T: Serialize>(answer: io::Result<T>) -> io::Result<Value> {
    Ok(serde_json::to_value(answer?)?)
}
