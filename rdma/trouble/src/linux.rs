//! Explanations of log lines of Linux's NVMe host (6.1 to 6.12), by their fixed words and error
//! numbers.

use super::{Next, Trouble};

const PATH: Next = Next::Path;
const TARGET: Next = Next::Own {
    host: "at the target: TARGET status, and journalctl -u TARGET",
    target: "TARGET status, and journalctl -u TARGET",
};
const OPTIONS: Next = Next::Own {
    host: "nvme connect --help, and man nvme-connect",
    target: "nvme connect --help at the host",
};
const MODULE: Next = Next::Own {
    host: "modprobe nvme-rdma, then connect again",
    target: "modprobe nvme-rdma at the host",
};
const KEYS: Next = Next::Own {
    host: "compare the fingerprints that TARGET key check FILE prints at both ends",
    target: "TARGET status, or journalctl -u TARGET -g authentication: the reason names a wrong key",
};
const KERNEL_LOG: Next = Next::Own {
    host: "dmesg | grep nvme | tail, and its line for fabric explain",
    target: "TARGET status; at the host: dmesg | grep nvme | tail",
};
const NOTHING: Next = Next::Own {
    host: "nothing, if it is followed by: Successfully reconnected",
    target: "nothing, if the host writes next: Successfully reconnected",
};

/// Explanations of log lines, named by the fixed part of the line.
pub const LINUX_LINES: [Trouble; 41] = [
    Trouble::new(
        1,
        "rdma connection establishment failed",
        "the RDMA connection of a queue did not come about; the number in parentheses says why",
        &[
            "the target does not run, or does not listen at this address and port",
            "a filter drops UDP port 4791",
        ],
        PATH,
    ),
    Trouble::new(
        2,
        "failed to connect socket",
        "NVMe/TCP could not connect; this is not RDMA",
        &["nvme connect had -t tcp: Cairn's transport is RDMA"],
        Next::Own {
            host: "nvme connect -t rdma -a ADDR -s 4420 -n NQN",
            target: "at the host: nvme connect -t rdma",
        },
    ),
    Trouble::new(
        3,
        "Connect rejected",
        "the target's machine refused the RDMA connection, with a reason",
        &["the status in the line, which is explained beside this entry"],
        TARGET,
    ),
    Trouble::new(
        4,
        "Connect Invalid Data Parameter",
        "the target does not accept a name or ID in Connect; the name is in the same line",
        &[
            "subsysnqn: it does not exist there, or the listener does not lead to it",
            "hostnqn: it is malformed",
            "cntlid: the controller of the queue is gone",
        ],
        Next::Own {
            host: "PROGRAM discover -a ADDR: the names of the subsystems there",
            target: "TARGET subsystem list",
        },
    ),
    Trouble::new(
        5,
        "Connect Invalid SQE Parameter",
        "the target does not accept a number in Connect; qid means a queue that it does not have",
        &["more I/O queues, or longer ones, than the target gives"],
        Next::Own {
            host: "connect with --nr-io-queues=1 --queue-size=32",
            target: "io_queues and queue_depth of [target]",
        },
    ),
    Trouble::new(
        6,
        "is not allowed, hostnqn",
        "the subsystem does not permit this host (Connect Invalid Host)",
        &["the hostnqn in the line is not in allowed_hosts"],
        Next::Own {
            host: "at the target: TARGET host add SUBNQN HOSTNQN",
            target: "TARGET status: it has the command that admits the host",
        },
    ),
    Trouble::new(
        7,
        "controller is busy or not available",
        "the target has no controller for the host now (Connect Controller Busy)",
        &[
            "hosts that left without a word are kept until KATO is over",
            "all controller IDs of the subsystem are in use",
        ],
        Next::Own {
            host: "connect again after KATO (5 s)",
            target: "TARGET connection list",
        },
    ),
    Trouble::new(
        8,
        "Connect incompatible format",
        "the target does not know this format of Connect",
        &["another generation of NVMe over Fabrics"],
        Next::OtherLog,
    ),
    Trouble::new(
        9,
        "Connect command failed: host path error",
        "the host gave up the queue before the target answered",
        &["the connection broke during Connect"],
        PATH,
    ),
    Trouble::new(
        10,
        "Connect command failed: authentication required",
        "the subsystem requires a key, and the host uses none",
        &["--dhchap-secret is missing"],
        KEYS,
    ),
    Trouble::new(
        11,
        "Connect command failed, error wo/DNR bit",
        "the target refused Connect with a status, in decimal, which is explained beside this entry",
        &["the status"],
        TARGET,
    ),
    Trouble::new(
        12,
        "Connect command failed, errno",
        "Connect did not reach the target, or its answer did not arrive",
        &["the connection broke, or the target did not answer"],
        PATH,
    ),
    Trouble::new(
        13,
        "Failed reconnect attempt",
        "the host tried to connect again, in vain; it goes on until ctrl_loss_tmo",
        &["the target or the way to it is down"],
        PATH,
    ),
    Trouble::new(
        14,
        "Reconnecting in",
        "the connection was lost, and the host pauses for reconnect_delay",
        &["the target was restarted, or the network failed: earlier lines say which"],
        NOTHING,
    ),
    Trouble::new(
        15,
        "Successfully reconnected",
        "the host is connected again, and repeats its commands",
        &["the fault is over"],
        NOTHING,
    ),
    Trouble::new(
        16,
        "starting error recovery",
        "the host drops its connection and begins to connect again",
        &[
            "the target closed the connection, a command timed out, or RDMA failed: earlier lines say which",
        ],
        TARGET,
    ),
    Trouble::new(
        17,
        "Removing controller",
        "ctrl_loss_tmo is over: the host gave up this controller, and its disk goes if no path is left",
        &["the target was away for longer than ctrl_loss_tmo"],
        Next::Own {
            host: "connect again, with --ctrl-loss-tmo=-1 to wait for ever",
            target: "at the host: nvme connect ... --ctrl-loss-tmo=-1",
        },
    ),
    Trouble::new(
        18,
        "QID %d timeout",
        "a command was not answered within nvme_core.io_timeout (30 s)",
        &[
            "the disk at the target hangs",
            "a limit makes the command wait",
            "the connection is dead, and nothing said so",
        ],
        Next::Own {
            host: "at the target: TARGET status, and TARGET limit list",
            target: "TARGET status, and TARGET limit list",
        },
    ),
    Trouble::new(
        19,
        "keep-alive failed",
        "Keep Alive was not answered, or not sent",
        &["the target stopped, or the network failed"],
        PATH,
    ),
    Trouble::new(
        20,
        "failed nvme_keep_alive_end_io error",
        "Keep Alive was not answered",
        &["the target stopped, or the network failed"],
        PATH,
    ),
    Trouble::new(
        21,
        "disconnect received - connection closed",
        "the target ended the connection",
        &["the target was restarted or drained, the host was removed, or KATO was over there"],
        TARGET,
    ),
    Trouble::new(
        22,
        "CM error event",
        "connection management could not resolve or reach the target",
        &["the address is wrong, no interface leads there, or the target does not answer"],
        PATH,
    ),
    Trouble::new(
        23,
        "Unexpected RDMA CM event",
        "connection management reported an event out of order",
        &["the adapter or the connection changed while connecting"],
        PATH,
    ),
    Trouble::new(
        24,
        "QP event",
        "the adapter reported an error of the queue pair",
        &["the peer broke the connection, or the adapter failed"],
        Next::KernelLog,
    ),
    Trouble::new(
        25,
        "for CQE 0x",
        "an RDMA operation failed, with a status that is explained beside this entry",
        &["the status"],
        PATH,
    ),
    Trouble::new(
        26,
        "Bogus remote invalidation",
        "the target invalidated a memory key that the host did not give",
        &[
            "the target's adapter invalidates the wrong key",
            "a defect of the target",
        ],
        Next::Own {
            host: "at the target: send_with_invalidate = \"never\" in [target], then a restart",
            target: "send_with_invalidate = \"never\" in [target], then a restart",
        },
    ),
    Trouble::new(
        27,
        "no handler found for transport",
        "the module of the transport is not loaded",
        &["nvme-rdma is missing"],
        MODULE,
    ),
    Trouble::new(
        28,
        "no usable path",
        "every path to the namespace is down: I/O waits",
        &["all connections are lost, or all ANA groups inaccessible"],
        Next::Own {
            host: "nvme list-subsys",
            target: "TARGET listener list: column ANA, and DRAINED",
        },
    ),
    Trouble::new(
        29,
        "ANATT timeout",
        "a path was in ANA state change for longer than ANATT",
        &["the state change was set at the target, and stayed"],
        Next::Own {
            host: "at the target: TARGET listener list",
            target: "TARGET listener set ADDR --ana optimized",
        },
    ),
    Trouble::new(
        30,
        "identifiers changed for nsid",
        "the namespace has another UUID or NGUID than before: Linux drops it",
        &["another disk is behind the NSID, or its uuid was changed"],
        Next::Own {
            host: "at the target: TARGET namespace list",
            target: "TARGET namespace list",
        },
    ),
    Trouble::new(
        31,
        "duplicate IDs in subsystem for nsid",
        "two namespaces have one UUID or NGUID",
        &["a disk was cloned with its identity, or exported twice"],
        Next::Own {
            host: "at the target: TARGET namespace list",
            target: "TARGET namespace list: give one of them another uuid",
        },
    ),
    Trouble::new(
        32,
        "authentication failed",
        "DH-HMAC-CHAP failed",
        &[
            "the keys of host and target differ",
            "the subsystem expects a key of the controller, too",
        ],
        KEYS,
    ),
    Trouble::new(
        33,
        "controller authentication failed",
        "the target could not prove who it is",
        &["the controller's key (dhchap_ctrl_key, --dhchap-ctrl-secret) differs"],
        KEYS,
    ),
    Trouble::new(
        34,
        "failed to connect queue",
        "Connect of a queue failed; ret is a status in decimal, or a negative error number",
        &["the status or the number, which is explained beside this entry"],
        TARGET,
    ),
    Trouble::new(
        35,
        "rdma_resolve_addr failed",
        "the host found no RDMA device for the target's address",
        &["no route leads there, or none over an interface with an RDMA device"],
        PATH,
    ),
    Trouble::new(
        36,
        "rdma_resolve_route failed",
        "the host found no RDMA route to the target",
        &["the RDMA device went away, or its port is down"],
        PATH,
    ),
    Trouble::new(
        37,
        "no available path - failing I/O",
        "no path to the namespace is left or comes back: I/O fails",
        &["ctrl_loss_tmo or fast_io_fail_tmo is over on every path"],
        Next::Own {
            host: "nvme list-subsys, then nvme connect for the missing path",
            target: "TARGET status, and TARGET listener list",
        },
    ),
    Trouble::new(
        38,
        "Device not ready; aborting",
        "the controller did not become ready, or did not shut down, within CAP.TO",
        &["CSTS=0x1: it is still enabled or ready; the target was busy, or its answers were lost"],
        TARGET,
    ),
    Trouble::new(
        39,
        "I/O error, dev nvme",
        "the block layer failed a command for good; file systems and programs see EIO",
        &[
            "no path was left: the lines before it say why",
            "the disk at the target failed the command",
        ],
        TARGET,
    ),
    Trouble::new(
        40,
        "failed to write to nvme-fabrics device",
        "nvme connect could not add a controller; the kernel's log has the reason",
        &[
            "the target refused the host, or is not there",
            "an option that this kernel does not know",
        ],
        KERNEL_LOG,
    ),
    Trouble::new(
        41,
        "Failed to write to /dev/nvme-fabrics",
        "the kernel refused what nvme connect wrote; its log has the reason",
        &[
            "the target is not there, or refused the host",
            "an option of nvme connect that is newer than this kernel",
        ],
        KERNEL_LOG,
    ),
];

/// Explanations of Linux's error numbers in log lines.
pub const LINUX_ERRORS: [Trouble; 20] = [
    Trouble::new(
        5,
        "EIO",
        "input or output failed",
        &["the connection or the disk failed"],
        TARGET,
    ),
    Trouble::new(
        11,
        "EAGAIN",
        "a resource is missing for a moment",
        &["try again"],
        NOTHING,
    ),
    Trouble::new(
        12,
        "ENOMEM",
        "no memory, or none that may be locked",
        &["the limit on locked memory, or queues too long for the adapter"],
        Next::Here,
    ),
    Trouble::new(
        13,
        "EACCES",
        "not permitted",
        &["an access right, or a key that the target refused"],
        TARGET,
    ),
    Trouble::new(
        16,
        "EBUSY",
        "in use",
        &["another connection or program has it"],
        TARGET,
    ),
    Trouble::new(
        17,
        "EEXIST",
        "it exists already",
        &["the host is connected to this address and subsystem"],
        Next::Own {
            host: "nvme list-subsys; --duplicate-connect connects once more",
            target: "nvme list-subsys at the host",
        },
    ),
    Trouble::new(
        19,
        "ENODEV",
        "no such device",
        &["no RDMA device has the address, or it was removed"],
        Next::Here,
    ),
    Trouble::new(
        22,
        "EINVAL",
        "an argument is wrong",
        &["an option of nvme connect, or a value in the target's answer"],
        OPTIONS,
    ),
    Trouble::new(
        95,
        "EOPNOTSUPP",
        "not supported",
        &["the target lacks something that the host requires"],
        Next::OtherLog,
    ),
    Trouble::new(
        99,
        "EADDRNOTAVAIL",
        "the address is not on this machine",
        &["--host-traddr is not an address of this host"],
        Next::Here,
    ),
    Trouble::new(
        101,
        "ENETUNREACH",
        "no route to the network",
        &["no interface leads to the address"],
        PATH,
    ),
    Trouble::new(
        103,
        "ECONNABORTED",
        "the connection was given up here",
        &["the host was asked to disconnect"],
        NOTHING,
    ),
    Trouble::new(
        104,
        "ECONNRESET",
        "the other end refused or broke the connection",
        &[
            "nothing listens at the address and port, or the target refuses the host: the line before says which",
            "the target was restarted",
        ],
        PATH,
    ),
    Trouble::new(
        110,
        "ETIMEDOUT",
        "no answer in time",
        &[
            "the target is down, or the address is wrong",
            "a filter drops UDP port 4791",
        ],
        PATH,
    ),
    Trouble::new(
        111,
        "ECONNREFUSED",
        "nothing listens at the address and port",
        &[
            "the target does not run, or listens elsewhere",
            "over TCP: Cairn's transport is RDMA",
        ],
        PATH,
    ),
    Trouble::new(
        113,
        "EHOSTUNREACH",
        "no route to the host",
        &["the machine is down, or a firewall rejects packets"],
        PATH,
    ),
    Trouble::new(
        114,
        "EALREADY",
        "it is under way already",
        &["the host is connected to this address and subsystem, or connecting"],
        Next::Own {
            host: "nvme list-subsys",
            target: "nvme list-subsys at the host",
        },
    ),
    Trouble::new(
        125,
        "ECANCELED",
        "cancelled",
        &["the host gave up the controller"],
        NOTHING,
    ),
    Trouble::new(
        126,
        "ENOKEY",
        "the key is missing",
        &["--dhchap-secret is missing, or its text is damaged"],
        KEYS,
    ),
    Trouble::new(
        129,
        "EKEYREJECTED",
        "the key was refused",
        &["the keys of host and target differ"],
        KEYS,
    ),
];
