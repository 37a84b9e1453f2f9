//! SPDK parameters and methods that Cairn accepts without effect, or refuses. Saved SPDK
//! configurations contain most of them, with values that change nothing.

use cairn_control::Error;
use serde_json::{Value, json};

use super::{Answer, Params, invalid};

enum Accepted {
    /// Any value of the type is accepted and ignored.
    Number,
    Flag,
    Text,
    /// Only 0, false, "" or zeros are accepted. The text explains why other values are refused.
    Off(&'static str),
}

const NO_METADATA: &str = "Cairn's disks have no metadata and no protection information";

/// Ignored parameters by method. A name such as `_x` stands for all methods that end in `_x`.
const IGNORED: &[(&str, &[(&str, Accepted)])] = &[
    (
        "nvmf_create_subsystem",
        &[
            ("admin_label", Accepted::Text),
            ("ana_reporting", Accepted::Flag),
            ("dmrsl", Accepted::Number),
            ("max_discard_size_kib", Accepted::Number),
            ("max_namespaces", Accepted::Number),
            ("max_write_zeroes_size_kib", Accepted::Number),
            ("wzsl", Accepted::Number),
            (
                "enable_nssr",
                Accepted::Off("Cairn has no reset of an NVM subsystem"),
            ),
            (
                "passthrough",
                Accepted::Off("Cairn answers admin commands itself"),
            ),
        ],
    ),
    (
        "nvmf_subsystem_add_host",
        &[("psk", Accepted::Off("over RDMA there is no TLS"))],
    ),
    (
        "nvmf_subsystem_remove_host",
        &[("timeout_ms", Accepted::Number)],
    ),
    (
        "_listener",
        &[
            ("numa_id", Accepted::Number),
            ("sock_impl", Accepted::Text),
            (
                "secure_channel",
                Accepted::Off("over RDMA there is no secure channel"),
            ),
        ],
    ),
    (
        "bdev_aio_create",
        &[
            (
                "fallocate",
                Accepted::Off("Cairn itself finds out how a file is deallocated"),
            ),
            ("nowait", Accepted::Flag),
        ],
    ),
    ("bdev_malloc_create", &[("numa_id", Accepted::Number)]),
    (
        "bdev_null_create",
        &[
            ("optimal_write_size", Accepted::Number),
            ("preferred_unmap_alignment", Accepted::Number),
            ("preferred_unmap_granularity", Accepted::Number),
            ("preferred_write_alignment", Accepted::Number),
            ("preferred_write_granularity", Accepted::Number),
        ],
    ),
    (
        "_create",
        &[
            ("optimal_io_boundary", Accepted::Number),
            ("physical_block_size", Accepted::Number),
            ("dif_is_head_of_md", Accepted::Off(NO_METADATA)),
            ("dif_pi_format", Accepted::Off(NO_METADATA)),
            ("dif_type", Accepted::Off(NO_METADATA)),
            ("md_interleave", Accepted::Off(NO_METADATA)),
            ("md_size", Accepted::Off(NO_METADATA)),
        ],
    ),
];

const OF_NAMESPACES: &[(&str, Accepted)] = &[
    ("hide_metadata", Accepted::Flag),
    (
        "eui64",
        Accepted::Off("Cairn's namespaces have a UUID and an NGUID, and no EUI-64"),
    ),
    (
        "ptpl_file",
        Accepted::Off("Cairn has no reservations that it could keep"),
    ),
];

/// Methods in every saved configuration that set SPDK components without a counterpart in Cairn.
pub(super) const SETTINGS: [&str; 14] = [
    "accel_set_options",
    "bdev_examine",
    "bdev_iscsi_set_options",
    "bdev_nvme_set_hotplug",
    "bdev_nvme_set_options",
    "bdev_raid_set_options",
    "bdev_set_options",
    "bdev_wait_for_examine",
    "framework_set_scheduler",
    "iobuf_set_options",
    "keyring_linux_set_options",
    "nvmf_set_crdt",
    "sock_impl_set_options",
    "sock_set_default_impl",
];

const TARGET: &str = "nvmf_tgt";

pub(super) fn take_out(method: &str, params: &mut Params) -> Result<(), Error> {
    if method.starts_with("nvmf_")
        && let Some(name) = params.remove("tgt_name").filter(|name| !name.is_null())
        && name != TARGET
    {
        let message = format!("NVMf target {name} not found: the only one is \"{TARGET}\"");
        return Err(Error::invalid(message));
    }
    let mut taken = Vec::new();
    for (of, all) in IGNORED {
        let is_it = match of.starts_with('_') {
            true => method.ends_with(of),
            false => method == *of,
        };
        if is_it {
            take(all, params, &mut taken)?;
        }
    }
    if method == "nvmf_subsystem_add_ns"
        && let Some(Value::Object(namespace)) = params.get_mut("namespace")
    {
        take(OF_NAMESPACES, namespace, &mut taken)?;
    }
    if !taken.is_empty() {
        let parameters = taken.join(", ");
        // Logged for a control socket request.
        tracing::debug!(method, parameters, "accepted and not heeded");
    }
    Ok(())
}

fn take(
    all: &[(&'static str, Accepted)],
    params: &mut Params,
    taken: &mut Vec<&'static str>,
) -> Result<(), Error> {
    for (name, accepted) in all {
        let Some(value) = params.remove(*name).filter(|value| !value.is_null()) else {
            continue;
        };
        let is_right = match accepted {
            Accepted::Number => value.is_i64() || value.is_u64(),
            Accepted::Flag => value.is_boolean(),
            Accepted::Text => value.is_string(),
            Accepted::Off(why) => {
                if !is_off(&value) {
                    let message = format!("Invalid parameters: {name} is {value}: {why}");
                    return Err(Error::invalid(message));
                }
                continue;
            }
        };
        if !is_right {
            return Err(invalid());
        }
        if !is_off(&value) {
            taken.push(name);
        }
    }
    Ok(())
}

fn is_off(value: &Value) -> bool {
    match value {
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.bytes().all(|byte| byte == b'0'),
        _ => false,
    }
}

pub(super) fn set(method: &str, params: &Params) -> Answer {
    let on = match method {
        "bdev_nvme_set_hotplug" | "keyring_linux_set_options" => params.get("enable"),
        _ => None,
    };
    if !on.is_none_or(is_off) {
        let message = format!("Invalid parameters: Cairn has nothing that {method} turns on");
        return Err(Error::invalid(message));
    }
    // Logged for a control socket request.
    tracing::debug!(method, "accepted and not heeded");
    Ok(json!(true))
}
