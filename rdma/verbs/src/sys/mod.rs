//! C declarations: types of rdma-core, and its functions resolved at run time.
//!
//! Why `unsafe` here: the functions are C. `cargo xtask bindings` generates `bindings.rs`.

#[allow(
    missing_docs,
    non_camel_case_types,
    dead_code,
    unreachable_pub,
    clippy::all,
    clippy::too_many_lines,
    clippy::undocumented_unsafe_blocks,
    clippy::missing_safety_doc,
    clippy::semicolon_if_nothing_returned
)]
mod bindings;
pub(crate) mod inline;

pub(crate) use bindings::*;

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<rdma_cm_id>() == 416);
    assert!(size_of::<rdma_cm_event>() == 80);
    assert!(size_of::<ibv_wc>() == 48);
    assert!(size_of::<ibv_send_wr>() == 128);
    assert!(size_of::<ibv_sge>() == 16);
};
