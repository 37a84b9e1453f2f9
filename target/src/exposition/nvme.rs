use nvme_proto::wire::Status;
use nvme_proto::wire::cm::RejectStatus;

use super::Observed;
use super::reporter::Reporter;
use crate::exposition::families;
use cairn_data_path::metrics::histogram::Times;
use cairn_data_path::metrics::io::{Class, Op, PARTS, WHOLE};
use cairn_data_path::namespace::{Entry, Namespace};
use cairn_data_path::registry::{ControllerView, QueueShared, SubsystemShared};

pub(super) fn report(reporter: &Reporter<'_>, observed: &Observed) {
    for subsystem in observed.registry.all() {
        report_subsystem(reporter, &subsystem);
    }
    report_refusals(reporter, observed);
}

fn report_subsystem(reporter: &Reporter<'_>, subsystem: &SubsystemShared) {
    let nqn = ("subsystem", subsystem.nqn());
    let view = subsystem.view();
    let controllers = view.controllers.len() as u64;
    reporter.gauge(&families::SUBSYSTEM_CONTROLLERS, &[nqn], controllers);
    report_smart(reporter, subsystem);
    for entry in &view.namespaces.namespaces {
        report_namespace(reporter, nqn, entry);
    }
    for controller in &view.controllers {
        report_host(reporter, nqn, controller);
    }
}

fn report_smart(reporter: &Reporter<'_>, subsystem: &SubsystemShared) {
    let nqn = ("subsystem", subsystem.nqn());
    let mut sums = [0; 5];
    for (reactor, set) in subsystem.all_counters().iter().enumerate() {
        let counted = [
            &set.read_commands,
            &set.read_bytes,
            &set.write_commands,
            &set.written_bytes,
            &set.media_errors,
        ];
        for (sum, counter) in sums.iter_mut().zip(counted) {
            *sum += counter.get();
        }
        let labels = [nqn, ("reactor", &reactor.to_string())];
        reporter.count_ns(&families::SUBSYSTEM_BUSY, &labels, set.busy_ns.get());
    }
    let [reads, read_bytes, writes, written_bytes, media_errors] = sums;
    for (op, ios, bytes) in [
        ("read", reads, read_bytes),
        ("write", writes, written_bytes),
    ] {
        let labels = [nqn, ("op", op)];
        reporter.count(&families::SUBSYSTEM_IOS, &labels, ios);
        reporter.count(&families::SUBSYSTEM_BYTES, &labels, bytes);
    }
    reporter.count(&families::SUBSYSTEM_MEDIA_ERRORS, &[nqn], media_errors);
}

type Label<'a> = (&'static str, &'a str);

fn report_namespace(reporter: &Reporter<'_>, nqn: Label<'_>, entry: &Entry) {
    let Entry {
        namespace, view, ..
    } = entry;
    let number = namespace.nsid.to_string();
    let nsid = ("nsid", number.as_str());
    let info = [nqn, nsid, ("backing", namespace.backing.as_str())];
    reporter.info(&families::NAMESPACE_INFO, &info);
    let block_bytes = 1 << view.lbads;
    let size = view.nsze * block_bytes;
    reporter.gauge(&families::NAMESPACE_SIZE, &[nqn, nsid], size);
    reporter.gauge(&families::NAMESPACE_BLOCK_SIZE, &[nqn, nsid], block_bytes);
    let failed = namespace.backend.is_failed();
    reporter.gauge(&families::NAMESPACE_FAILED, &[nqn, nsid], failed.into());
    let deleted = namespace.backend.is_deleted();
    reporter.gauge(&families::NAMESPACE_DELETED, &[nqn, nsid], deleted.into());
    let sets = namespace.all_counters();
    let in_progress = sets.iter().map(|set| set.in_progress.get()).sum();
    let labels = [nqn, nsid];
    reporter.gauge(&families::NAMESPACE_IN_PROGRESS, &labels, in_progress);
    let oldest_ns = sets.iter().map(|set| set.oldest_ns.get()).max();
    reporter.gauge_ns(&families::NAMESPACE_OLDEST, &labels, oldest_ns.unwrap_or(0));
    for (op, name) in Op::ALL {
        let tallies = || sets.iter().map(|set| &set.ops[op as usize]);
        let labels = [nqn, nsid, ("op", name)];
        let ios = tallies().map(|tally| tally.ios.get()).sum();
        reporter.count(&families::NAMESPACE_IOS, &labels, ios);
        if op.has_bytes() {
            let bytes = tallies().map(|tally| tally.bytes.get()).sum();
            reporter.count(&families::NAMESPACE_BYTES, &labels, bytes);
        }
    }
    let waits = sets.iter().map(|set| set.limit_waits.get()).sum();
    reporter.count(&families::NAMESPACE_LIMIT_WAITS, &labels, waits);
    let waited_ns = sets.iter().map(|set| set.limit_wait_ns.get()).sum();
    reporter.count_ns(&families::NAMESPACE_LIMIT_WAIT, &labels, waited_ns);
    let mut errors = std::collections::BTreeMap::<_, u64>::new();
    for (code, count) in sets.iter().flat_map(|set| set.errors.each()) {
        *errors.entry(status_name(code)).or_default() += count;
    }
    for (status, count) in errors {
        let labels = [nqn, nsid, ("status", status.as_str())];
        reporter.count(&families::NAMESPACE_ERRORS, &labels, count);
    }
    let mismatches = sets.iter().map(|set| set.protection_errors.get()).sum();
    reporter.count(&families::NAMESPACE_PROTECTION_ERRORS, &labels, mismatches);
    report_stages(reporter, [nqn, nsid], namespace);
}

fn report_stages(reporter: &Reporter<'_>, [nqn, nsid]: [Label<'_>; 2], namespace: &Namespace) {
    let sets = namespace.all_counters();
    for (class, op) in Class::ALL {
        let stages = || sets.iter().map(|set| &set.stages[class as usize]);
        let report = |stage: &'static str, times: &Times| {
            let labels = [nqn, nsid, ("op", op), ("stage", stage)];
            reporter.times(&families::NAMESPACE_IO, &labels, times);
        };
        for (part, stage) in PARTS.into_iter().enumerate() {
            let mut times = Times::default();
            stages().for_each(|stages| times.add(&stages.parts[part].read()));
            report(stage, &times);
        }
        let mut times = Times::default();
        stages().for_each(|stages| times.add(&stages.whole.read()));
        report(WHOLE, &times);
    }
}

fn report_host(reporter: &Reporter<'_>, nqn: Label<'_>, controller: &ControllerView) {
    let cntlid = controller.cntlid.to_string();
    let host = [
        nqn,
        ("host_nqn", controller.host_nqn.as_str()),
        ("cntlid", cntlid.as_str()),
    ];
    let totals = controller.totals();
    let [nqn, host_nqn, cntlid] = host;
    for (class, op) in Class::ALL {
        let labels = [nqn, host_nqn, cntlid, ("op", op)];
        let (ios, bytes) = totals.classes[class as usize];
        reporter.count(&families::HOST_IOS, &labels, ios);
        reporter.count(&families::HOST_BYTES, &labels, bytes);
        reporter.times(&families::HOST_IO, &labels, &totals.times[class as usize]);
    }
    for (&code, &count) in &totals.errors {
        let status = status_name(code);
        let labels = [nqn, host_nqn, cntlid, ("status", &status)];
        reporter.count(&families::HOST_ERRORS, &labels, count);
    }
    for (cause, count) in [("share", totals.share_waits), ("pool", totals.pool_waits)] {
        let labels = [nqn, host_nqn, cntlid, ("cause", cause)];
        reporter.count(&families::HOST_BUFFER_WAITS, &labels, count);
    }
    reporter.count(&families::HOST_LIMIT_WAITS, &host, totals.limit_waits);
    reporter.count_ns(&families::HOST_LIMIT_WAIT, &host, totals.limit_wait_ns);
    let queues = controller.queues.len() as u64;
    reporter.gauge(&families::HOST_QUEUES, &host, queues);
    for (qid, queue) in &controller.queues {
        report_queue(reporter, host, &qid.to_string(), queue);
    }
}

fn report_queue(reporter: &Reporter<'_>, host: [Label<'_>; 3], qid: &str, queue: &QueueShared) {
    let [nqn, host_nqn, cntlid] = host;
    let labels = [nqn, host_nqn, cntlid, ("qid", qid)];
    let counters = &queue.counters;
    for (class, op) in Class::ALL {
        let tally = &counters.classes[class as usize];
        let labels = [nqn, host_nqn, cntlid, ("qid", qid), ("op", op)];
        reporter.count(&families::QUEUE_IOS, &labels, tally.ios.get());
        reporter.count(&families::QUEUE_BYTES, &labels, tally.bytes.get());
    }
    reporter.gauge(&families::QUEUE_DEPTH, &labels, counters.depth.get());
    reporter.gauge(&families::QUEUE_ENTRIES, &labels, queue.entries.into());
    let waits = [
        ("share", &counters.share_waits),
        ("pool", &counters.pool_waits),
    ];
    for (cause, count) in waits {
        let labels = [nqn, host_nqn, cntlid, ("qid", qid), ("cause", cause)];
        reporter.count(&families::QUEUE_BUFFER_WAITS, &labels, count.get());
    }
    let [remote, local] = [queue.peer, queue.local].map(|address| address.to_string());
    let marked = &queue.marked;
    let [tos, dscp, sl, pcp, hop_limit] = [
        marked.tos,
        marked.dscp,
        marked.sl,
        marked.pcp,
        marked.hop_limit,
    ]
    .map(|value| value.map_or_else(String::new, |value| value.to_string()));
    let info = [
        nqn,
        host_nqn,
        cntlid,
        ("qid", qid),
        ("remote", &remote),
        ("local", &local),
        ("provider", queue.provider),
        ("device", &queue.device),
        ("reactor", &queue.reactor.to_string()),
        ("tos", &tos),
        ("dscp", &dscp),
        ("sl", &sl),
        ("pcp", &pcp),
        ("hop_limit", &hop_limit),
        ("pkey", &queue.pkey.to_string()),
    ];
    reporter.info(&families::CONNECTION_INFO, &info);
}

fn report_refusals(reporter: &Reporter<'_>, observed: &Observed) {
    let reactors = &observed.reactors;
    let mut refusals = std::collections::BTreeMap::<_, u64>::new();
    let own = observed.rejected.each();
    for (code, count) in own.chain(reactors.iter().flat_map(|r| r.rejected.each())) {
        let reason = code.map_or_else(other, |code| RejectStatus(code).to_string());
        *refusals.entry(("cm", reason)).or_default() += count;
    }
    for (code, count) in reactors.iter().flat_map(|r| r.refused.each()) {
        *refusals.entry(("connect", status_name(code))).or_default() += count;
    }
    for ((step, reason), count) in refusals {
        let labels = [("step", step), ("reason", reason.as_str())];
        reporter.count(&families::CONNECTS_REFUSED, &labels, count);
    }
}

fn status_name(code: Option<u16>) -> String {
    code.map_or_else(other, |code| {
        let status = Status::from_bits(code);
        status
            .name()
            .map_or_else(|| status.to_string(), str::to_owned)
    })
}

fn other() -> String {
    "other".to_owned()
}
