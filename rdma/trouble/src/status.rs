//! Explanations of statuses of NVMe commands (NVMe Base 2.0, figures 94 to 99), by SCT and SC.

use super::{Next, Trouble};

const LOG_OF_TARGET: Next = Next::Own {
    host: "read the target's log: journalctl -u TARGET -p warning",
    target: "journalctl -u TARGET -p warning",
};
const PROBLEMS: Next = Next::Own {
    host: "at the target: TARGET status",
    target: "TARGET status",
};
const HOSTS: Next = Next::Own {
    host: "at the target: TARGET host add NQN HOSTNQN, or connect as another --hostnqn",
    target: "TARGET host add NQN HOSTNQN, or allowed_hosts; TARGET status has the whole command",
};
const PATHS: Next = Next::Own {
    host: "nvme list-subsys: another path should be live",
    target: "TARGET listener list: column ANA, and DRAINED",
};
const DISKS: Next = Next::Own {
    host: "at the target: TARGET namespace list: column STATE",
    target: "TARGET namespace list: column STATE, and dmesg",
};
pub(super) const NAMES: Next = Next::Own {
    host: "PROGRAM discover -a ADDR: the names of the subsystems there",
    target: "TARGET subsystem list",
};

pub(super) const KATO: Next = Next::Own {
    host: "connect with --keep-alive-tmo=5",
    target: "at the host: --keep-alive-tmo=5",
};

const fn status(
    sct: u16,
    sc: u16,
    name: &'static str,
    what: &'static str,
    causes: &'static [&'static str],
    next: Next,
) -> Trouble {
    Trouble::new(sct << 8 | sc, name, what, causes, next)
}

pub(super) const DO_NOT_RETRY: Trouble = Trouble {
    code: 0x4000,
    name: "DNR",
    what: "Do Not Retry: the target expects that the same command fails again",
    causes: &["the cause is a setting or an argument, not a moment"],
    next: LOG_OF_TARGET,
};

pub(super) const OTHERS: [Trouble; 8] = [
    status(
        0,
        0xff,
        "generic status",
        "a generic status that has no explanation here",
        OTHER,
        LOG_OF_TARGET,
    ),
    status(
        1,
        0xff,
        "command specific status",
        "a status of this kind of command alone",
        OTHER,
        LOG_OF_TARGET,
    ),
    status(
        2,
        0xff,
        "media error",
        "a media or data integrity error that has no explanation here",
        &["the disk behind the namespace"],
        DISKS,
    ),
    status(
        3,
        0xff,
        "path related status",
        "an error of this path: the command may work on another one",
        &["the target or the host gave up this path"],
        PATHS,
    ),
    status(
        4,
        0xff,
        "reserved status",
        "a status of a reserved type",
        OTHER,
        LOG_OF_TARGET,
    ),
    status(
        5,
        0xff,
        "reserved status type 5",
        "a status of reserved type 5",
        OTHER,
        LOG_OF_TARGET,
    ),
    status(
        6,
        0xff,
        "reserved status type 6",
        "a status of reserved type 6",
        OTHER,
        LOG_OF_TARGET,
    ),
    status(
        7,
        0xff,
        "vendor specific status",
        "a status that only the maker of the target can explain",
        &["the target is not Cairn, which has none"],
        Next::OtherLog,
    ),
];
const OTHER: &[&str] = &["the specification's name of the number says more"];

/// Explanations of the statuses that hosts receive over fabrics.
pub const STATUSES: [Trouble; 38] = [
    status(
        0,
        0x01,
        "Invalid Command Opcode",
        "the target does not have this command",
        &[
            "an optional command that Identify does not offer, which Linux tries once and then omits",
        ],
        Next::Own {
            host: "PROGRAM id-ctrl -a ADDR -n NQN -H: the optional commands",
            target: "nothing, if the host works",
        },
    ),
    status(
        0,
        0x02,
        "Invalid Field in Command",
        "a field of the command has a value that the target does not accept",
        &[
            "an argument out of range",
            "an optional feature, which Linux tries once and then omits",
        ],
        LOG_OF_TARGET,
    ),
    status(
        0,
        0x04,
        "Data Transfer Error",
        "RDMA did not move the data of the command",
        &[
            "a wrong memory key or range from the host",
            "the connection broke",
        ],
        Next::Path,
    ),
    status(
        0,
        0x06,
        "Internal Error",
        "the target failed",
        &[
            "a defect, which is an error in the target's log",
            "the disk gave an error without a better status",
        ],
        LOG_OF_TARGET,
    ),
    status(
        0,
        0x07,
        "Command Abort Requested",
        "the host aborted the command",
        &[
            "the command took longer than the host's time-out, because the disk hangs or is slow",
            "the target's io_timeout_s was over",
        ],
        DISKS,
    ),
    status(
        0,
        0x08,
        "Command Aborted due to SQ Deletion",
        "the queue ended before the command",
        &[
            "the host resets or leaves the controller, or was disconnected; hosts repeat the command",
        ],
        LOG_OF_TARGET,
    ),
    status(
        0,
        0x0b,
        "Invalid Namespace or Format",
        "the subsystem has no such namespace for this host",
        &[
            "the namespace was removed",
            "the list of hosts of the namespace lacks this host",
        ],
        Next::Own {
            host: "at the target: TARGET namespace list",
            target: "TARGET namespace list",
        },
    ),
    status(
        0,
        0x0c,
        "Command Sequence Error",
        "a command came before another that it requires",
        &["the host has not authenticated yet", "a defect of the host"],
        LOG_OF_TARGET,
    ),
    status(
        0,
        0x15,
        "Operation Denied",
        "the target does not let this host do that",
        &["a setting of the target"],
        LOG_OF_TARGET,
    ),
    status(
        0,
        0x18,
        "Host Identifier Inconsistent Format",
        "the host ID has another size than one given before",
        &["two programs of one host have different /etc/nvme/hostid"],
        Next::Own {
            host: "cat /etc/nvme/hostid",
            target: "cat /etc/nvme/hostid at the host",
        },
    ),
    status(
        0,
        0x19,
        "Keep Alive Timer Expired",
        "the target received nothing from the host for KATO",
        &["the network lost packets, or the host was stopped"],
        Next::Path,
    ),
    status(
        0,
        0x1a,
        "Keep Alive Timeout Invalid",
        "the target does not accept the host's KATO",
        &["keep_alive_tmo is too short or too long"],
        KATO,
    ),
    status(
        0,
        0x20,
        "Namespace is Write Protected",
        "writes to the namespace are refused",
        &[
            "read_only is set at the target",
            "a host has protected it (nvme set-feature -f 0x84)",
        ],
        Next::Own {
            host: "at the target: TARGET namespace list -o json: read_only, protected_by_host",
            target: "TARGET namespace list -o json: read_only, protected_by_host",
        },
    ),
    status(
        0,
        0x21,
        "Command Interrupted",
        "the target could not execute the command now; hosts repeat it",
        &["a change of the namespace is under way"],
        Next::Own {
            host: "nothing, if it works at the next try",
            target: "nothing, if it works at the next try",
        },
    ),
    status(
        0,
        0x22,
        "Transient Transport Error",
        "the transport failed for a moment; hosts repeat the command",
        &["lost packets, or a full queue"],
        Next::Counters,
    ),
    status(
        0,
        0x80,
        "LBA Out of Range",
        "the blocks lie beyond the end of the namespace",
        &[
            "the disk became smaller",
            "a partition table or file system of a larger disk",
        ],
        DISKS,
    ),
    status(
        0,
        0x81,
        "Capacity Exceeded",
        "the storage behind the namespace is full",
        &["a thin pool, or the file system of an exported file, has no space (ENOSPC)"],
        Next::Own {
            host: "at the target: df, and lvs or zpool list",
            target: "df, and lvs or zpool list",
        },
    ),
    status(
        0,
        0x82,
        "Namespace Not Ready",
        "the namespace cannot execute commands now",
        &["its disk is being replaced, does not answer, or failed"],
        PROBLEMS,
    ),
    status(
        0,
        0x83,
        "Reservation Conflict",
        "another host has a reservation of the namespace",
        &["a cluster fenced this host"],
        Next::Own {
            host: "nvme resv-report DEVICE",
            target: "nvme resv-report DEVICE at a host",
        },
    ),
    status(
        1,
        0x80,
        "Connect Incompatible Format",
        "Connect has a format that the target does not know",
        &["the host is newer or older than the target"],
        Next::OtherLog,
    ),
    status(
        1,
        0x81,
        "Connect Controller Busy",
        "the target has no controller for the host now",
        &[
            "all controller IDs of the subsystem, or the memory of connections, are in use",
            "hosts that left without a word are kept until KATO is over",
        ],
        Next::Own {
            host: "at the target: TARGET connection list",
            target: "TARGET connection list, and controller_ids of the subsystem",
        },
    ),
    status(
        1,
        0x82,
        "Connect Invalid Parameters",
        "a parameter of Connect is wrong: Linux calls it Connect Invalid Data Parameter or Connect Invalid SQE Parameter",
        &[
            "the subsystem does not exist, is misspelt, or the listener does not lead to it",
            "the controller of an I/O queue is gone, because the target was restarted",
        ],
        NAMES,
    ),
    status(
        1,
        0x83,
        "Connect Restart Discovery",
        "the host should ask the discovery service again",
        &["the subsystem moved"],
        NAMES,
    ),
    status(
        1,
        0x84,
        "Connect Invalid Host",
        "the subsystem does not permit this host",
        &[
            "the host's NQN is not in allowed_hosts",
            "the list has a slip, or nvme connect used another --hostnqn",
        ],
        HOSTS,
    ),
    status(
        1,
        0x85,
        "Invalid Queue Type",
        "the controller has no queue of this type",
        &["a defect of the host, or a newer host"],
        Next::OtherLog,
    ),
    status(
        1,
        0x90,
        "Discover Restart",
        "the discovery log changed while the host read it",
        &["a change at the target: ask again"],
        NAMES,
    ),
    status(
        1,
        0x91,
        "Authentication Required",
        "the host must authenticate first",
        &["the subsystem has a key for this host, and the host uses none"],
        Next::Own {
            host: "connect with --dhchap-secret",
            target: "TARGET host list NQN: column AUTHENTICATES",
        },
    ),
    status(
        2,
        0x80,
        "Write Fault",
        "the disk did not write the blocks",
        &["the disk fails: see the kernel's log at the target"],
        DISKS,
    ),
    status(
        2,
        0x81,
        "Unrecovered Read Error",
        "the disk cannot read the blocks",
        &["the disk fails: see the kernel's log at the target"],
        DISKS,
    ),
    status(
        2,
        0x85,
        "Compare Failure",
        "the blocks differ from those of the command",
        &["the data differs, as the host asked to know"],
        Next::Own {
            host: "nothing: this is the answer of Compare",
            target: "nothing: this is the answer of Compare",
        },
    ),
    status(
        2,
        0x86,
        "Access Denied",
        "the blocks may not be accessed",
        &["a lock or a key of the drive"],
        DISKS,
    ),
    status(
        3,
        0x00,
        "Internal Path Error",
        "the target cannot use this path",
        &["the target stops, or its disk is gone here"],
        PROBLEMS,
    ),
    status(
        3,
        0x01,
        "Asymmetric Access Persistent Loss",
        "the target says that this path is lost for good",
        &["the ANA state persistent-loss was set"],
        PATHS,
    ),
    status(
        3,
        0x02,
        "Asymmetric Access Inaccessible",
        "the target does not serve the namespace on this path now",
        &["the listener is drained, or its ANA state is inaccessible"],
        PATHS,
    ),
    status(
        3,
        0x03,
        "Asymmetric Access Transition",
        "the state of this path changes",
        &["the ANA state change was set, or a fail-over is under way"],
        PATHS,
    ),
    status(
        3,
        0x60,
        "Controller Pathing Error",
        "the controller met an error of the path",
        &["the adapter or the network of the target"],
        Next::Counters,
    ),
    status(
        3,
        0x70,
        "Host Pathing Error",
        "the host gave up the path, without asking the target",
        &[
            "the connection is down, and Linux ends its commands: fast_io_fail_tmo or ctrl_loss_tmo is over",
            "no other path was left",
        ],
        PATHS,
    ),
    status(
        3,
        0x71,
        "Command Aborted By Host",
        "the host ended the command itself",
        &[
            "the host resets the controller, because the connection broke or a command took longer than nvme_core.io_timeout",
        ],
        Next::Path,
    ),
];
