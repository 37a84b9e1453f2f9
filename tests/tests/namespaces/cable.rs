//! Network namespaces connected by a veth pair.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use cairn_base::{Traddr, Trid};
use cairn_roce::FaultOptions;
use cairn_roce::Network;
use cairn_roce::{Soft, SoftOptions};

use crate::sniffer::{Sniffer, check_frames};

#[derive(Clone, Copy)]
pub(crate) struct Cable {
    /// MTU of the target's and the host's interface.
    pub(crate) mtus: [u32; 2],
    pub(crate) addresses: [&'static str; 2],
    pub(crate) fault: Option<FaultOptions>,
    pub(crate) roce: Roce,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Roce {
    V1,
    /// RoCE v1, with VLAN tags written by the endpoint.
    V1Tagged,
    /// RoCE v1 over a VLAN interface, which writes the tags.
    V1Vlan,
    V2,
    V2Vlan,
}

impl Roce {
    pub(crate) fn is_v1(self) -> bool {
        matches!(self, Self::V1 | Self::V1Tagged | Self::V1Vlan)
    }

    pub(crate) fn is_tagged(self) -> bool {
        matches!(self, Self::V1Tagged | Self::V1Vlan | Self::V2Vlan)
    }

    fn has_vlan_interface(self) -> bool {
        matches!(self, Self::V1Vlan | Self::V2Vlan)
    }
}

pub(crate) const V4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
pub(crate) const V6: [&str; 2] = ["fd77::1", "fd77::2"];
pub(crate) const LINK_LOCAL: [&str; 2] = ["fe80::77:1", "fe80::77:2"];

pub(crate) const VID: u16 = 5;
pub(crate) const TOS: u8 = 26 << 2;
pub(crate) const PCP: u8 = TOS >> 5;
const AS_IT_IS: &str = "egress-qos-map 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7";

pub(crate) const BAD: FaultOptions = FaultOptions {
    loss_per_mille: 20,
    duplication_per_mille: 10,
    corruption_per_mille: 40,
    reordering_per_mille: 10,
    seed: 7,
    blackhole: None,
};

impl Cable {
    pub(crate) fn address(&self, end: usize) -> IpAddr {
        self.addresses[end].parse().unwrap()
    }

    fn is_link_local(&self) -> bool {
        self.addresses[0].starts_with("fe80")
    }

    /// Returns the address of `end` for the host at `near`; a link-local address includes the
    /// interface at `near`.
    pub(crate) fn traddr(&self, end: usize, near: usize) -> Traddr {
        let address = self.addresses[end];
        let text = match self.is_link_local() {
            true => format!("{address}%cable{near}"),
            false => address.to_owned(),
        };
        text.parse().unwrap()
    }

    pub(crate) fn listener(&self, near: usize, port: u16) -> SocketAddr {
        Trid::new(self.traddr(0, near), port).resolve().unwrap()
    }

    /// Longest SEND in one packet, in bytes.
    pub(crate) fn packet_bytes(&self) -> u32 {
        match self.mtus.into_iter().min() {
            Some(1500) => 1024,
            Some(4200) => 4200 - 80,
            Some(9000) => 64 + 4096,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn provider(&self) -> Soft {
        let network = match self.roce {
            Roce::V1 | Roce::V1Vlan => Network::Ethernet { vlan: None },
            Roce::V1Tagged => Network::Ethernet { vlan: Some(VID) },
            Roce::V2 | Roce::V2Vlan => Network::System,
        };
        Soft::new(SoftOptions {
            network: match self.fault {
                Some(faults) => Network::Bad(Box::new(network), faults),
                None => network,
            },
            ..SoftOptions::default()
        })
    }

    pub(crate) fn join(
        self,
        target: impl FnOnce() + Send + 'static,
        host: impl FnOnce() + Send + 'static,
    ) {
        let watched = move |_: FarEnd| {
            let sniffer = Sniffer::on("cable0");
            move || {
                target();
                check_frames(&sniffer.frames(), &self);
            }
        };
        self.join_unwatched(watched, host);
    }

    /// Runs target and host without a capture. `target` runs before the host starts, and returns a
    /// function that runs at the same time as `host`.
    pub(crate) fn join_unwatched<Run: FnOnce()>(
        self,
        target: impl FnOnce(FarEnd) -> Run + Send + 'static,
        host: impl FnOnce() + Send + 'static,
    ) {
        if !can_make_namespaces() || self.roce.has_vlan_interface() && !has_vlans() {
            return;
        }
        let (tid_out, tid_in) = channel();
        let (linked_out, linked_in) = channel();
        let (checked_out, checked_in) = channel::<()>();
        let other = thread::spawn(move || {
            leave_the_network().unwrap();
            tid_out.send(thread_id()).unwrap();
            if linked_in.recv().is_ok() {
                host();
                let _ = checked_in.recv();
            }
        });
        let this = thread::spawn(move || {
            let tid = tid_in.recv().unwrap();
            leave_the_network().unwrap();
            let far_end = FarEnd(tid);
            far_end.lay(&self);
            let run = target(far_end);
            linked_out.send(()).unwrap();
            run();
            drop(checked_out);
        });
        for result in [this.join(), other.join()] {
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        }
    }

    fn plug_in(&self, end: usize, ip: impl Fn(&str)) {
        let (address, mtu) = (self.addresses[end], self.mtus[end]);
        ip("link set lo up");
        let bits = if address.contains(':') {
            "64 nodad"
        } else {
            "24"
        };
        if self.is_link_local() {
            ip(&format!("link set cable{end} addrgenmode none"));
        }
        ip(&format!("link set cable{end} mtu {mtu} up"));
        let mut device = format!("cable{end}");
        if self.roce.has_vlan_interface() {
            let port = std::mem::replace(&mut device, format!("cable{end}.{VID}"));
            ip(&format!(
                "link add link {port} name {device} type vlan id {VID} {AS_IT_IS}"
            ));
            ip(&format!("link set {device} up"));
        }
        ip(&format!("address replace {address}/{bits} dev {device}"));
    }
}

#[derive(Clone, Copy)]
pub(crate) struct FarEnd(i32);

impl FarEnd {
    pub(crate) fn lay(self, cable: &Cable) {
        let Self(tid) = self;
        ip(&format!(
            "link add cable0 type veth peer name cable1 netns {tid}"
        ));
        self.plug_in_again(cable);
    }

    pub(crate) fn plug_in_again(self, cable: &Cable) {
        cable.plug_in(0, ip);
        cable.plug_in(1, |arguments| self.ip(arguments));
    }

    pub(crate) fn ip(self, arguments: &str) {
        let Self(tid) = self;
        let process = std::process::id();
        let mut nsenter = Command::new("nsenter");
        nsenter.arg(format!("--net=/proc/{process}/task/{tid}/ns/net"));
        nsenter.arg("ip").args(arguments.split(' '));
        let done = nsenter.output().expect("nsenter is there (util-linux)");
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "there: ip {arguments}: {stderr}");
    }
}

fn leave_the_network() -> io::Result<()> {
    // SAFETY: affects only the calling thread, and takes no pointers.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[track_caller]
fn can_make_namespaces() -> bool {
    match thread::spawn(leave_the_network).join().unwrap() {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            cairn_skips::skip(format_args!("a new network namespace: {error}"));
            false
        }
        Err(error) => panic!("a new network namespace: {error}"),
    }
}

fn thread_id() -> i32 {
    // SAFETY: has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

fn try_ip(arguments: &str) -> Result<(), String> {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.expect("the program `ip` is there (package iproute2)");
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    done.status.success().then_some(()).ok_or(stderr)
}

pub(crate) fn ip(arguments: &str) {
    try_ip(arguments).unwrap_or_else(|stderr| panic!("ip {arguments}: {stderr}"));
}

#[track_caller]
fn has_vlans() -> bool {
    let probe = || {
        leave_the_network().unwrap();
        ip("link add probe0 type veth peer name probe1");
        try_ip("link add link probe0 name probe0.9 type vlan id 9")
    };
    match thread::spawn(probe).join().unwrap() {
        Ok(()) => true,
        Err(stderr) => {
            let error = stderr.trim();
            cairn_skips::skip(format_args!(
                "this kernel has no VLAN interfaces (8021q): {error}"
            ));
            false
        }
    }
}
