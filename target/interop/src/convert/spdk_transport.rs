//! Settings of SPDK's RDMA transport.

use cairn_config::Draft;

use super::Notes;
use super::fields::Fields;

const USUAL_TRANSPORT: &[(&str, &str)] = &[
    ("max_queue_depth", "128"),
    ("max_qpairs_per_ctrlr", "128"),
    ("max_io_qpairs_per_ctrlr", "127"),
    ("in_capsule_data_size", "4096"),
    ("max_io_size", "131072"),
    ("io_unit_size", "8192"),
    ("max_aq_depth", "128"),
    ("num_shared_buffers", "4095"),
    ("buf_cache_size", "4294967295"),
    ("dif_insert_or_strip", "false"),
    ("zcopy", "false"),
    ("max_srq_depth", "4096"),
    ("no_srq", "false"),
    ("acceptor_backlog", "100"),
    ("no_wr_batching", "false"),
    ("abort_timeout_sec", "1"),
    ("ack_timeout", "0"),
    ("data_wr_pool_size", "4095"),
    ("num_cqe", "4096"),
    ("disable_command_passthru", "false"),
    ("kas", "10"),
    ("min_kato", "10000"),
];

pub(super) fn import(params: &Fields<'_>, draft: &mut Draft, notes: &Notes) {
    params.ignore(&["tgt_name"]);
    params.ignore_usual(USUAL_TRANSPORT);
    let is_usual = |key: &str, value: &str| USUAL_TRANSPORT.contains(&(key, value));
    for (key, own) in [
        ("max_queue_depth", "queue_depth"),
        ("max_io_qpairs_per_ctrlr", "io_queues"),
        ("max_io_size", "mdts"),
    ] {
        if let Some(value) = params.text(key).filter(|value| !is_usual(key, value)) {
            notes.add(format!(
                "nvmf_create_transport: {key} {value} is not carried over: [target] has {own}"
            ));
        }
    }
    in_capsule_data(params, draft, notes);
}

fn in_capsule_data(params: &Fields<'_>, draft: &mut Draft, notes: &Notes) {
    let size = params.text("in_capsule_data_size");
    let Some(size) = size.and_then(|text| text.parse::<u32>().ok()) else {
        return;
    };
    let own = super::in_capsule_data(size);
    if own != size {
        notes.add(format!(
            "nvmf_create_transport: in_capsule_data_size {size} is {own} here"
        ));
    }
    super::set_in_capsule_data(draft, own);
}
