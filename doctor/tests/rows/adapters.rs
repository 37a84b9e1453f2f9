use cairn_doctor::rules::Severity;

use crate::common::{assert_found, changed, findings};

struct Adapter {
    report: &'static str,
    /// `max_qp`, `max_qp_wr`, `max_srq`, `max_qp_rd_atom`, `max_qp_init_rd_atom`.
    limits: [u32; 5],
    found: &'static [&'static str],
}

const ADAPTERS: [Adapter; 4] = [
    Adapter {
        report: "E810, deepseek-ai/3FS#192",
        limits: [4092, 8127, 0, 8, 8],
        found: &["no shared receive queues", "at most 8 RDMA READs"],
    },
    Adapter {
        report: "ConnectX-6 Lx, openucx/ucx#10317",
        limits: [131_072, 32_768, 8_388_608, 16, 16],
        found: &[],
    },
    Adapter {
        report: "ConnectX-3, claudebarthels/infinity#5",
        limits: [131_000, 16_351, 65_472, 16, 128],
        found: &[],
    },
    Adapter {
        report: "hns, ofiwg/libfabric#6891",
        limits: [16_384, 16_383, 16_384, 128, 128],
        found: &[],
    },
];

fn attributes(limits: [u32; 5], flags: &str) -> String {
    let [max_qp, max_qp_wr, max_srq, reads, started] = limits;
    format!(
        "[?]\nattributes mlx5_0 = {{\"max_qp\":{max_qp},\"max_qp_wr\":{max_qp_wr},\
         \"max_srq\":{max_srq},\"max_qp_rd_atom\":{reads},\"max_qp_init_rd_atom\":{started},{flags}}}"
    )
}

const COMMON: &str = r#""iwarp":false,"rnr_nak":true,"invalidate":true"#;

#[test]
fn limits_of_an_adapter_are_notes() {
    for adapter in &ADAPTERS {
        let all = findings(&changed("healthy", &attributes(adapter.limits, COMMON)));
        let found: Vec<_> = all.iter().filter(|one| one.rule == "attributes").collect();
        assert_eq!(
            found.len(),
            adapter.found.len(),
            "{}: {found:?}",
            adapter.report
        );
        for part in adapter.found {
            assert_found(
                &all,
                "attributes",
                &["note", "mlx5_0", "ibv_devinfo -v -d mlx5_0", part],
            );
        }
    }
}

#[test]
fn an_adapter_without_flags_that_roce_needs_is_named() {
    let limits = ADAPTERS[1].limits;
    let flags = r#""iwarp":false,"rnr_nak":false,"invalidate":false"#;
    let all = findings(&changed("healthy", &attributes(limits, flags)));
    assert_found(
        &all,
        "attributes",
        &["warning", "wait for a receive", "RC_RNR_NAK_GEN"],
    );
    assert_found(&all, "attributes", &["note", "no SEND with Invalidate"]);
}

#[test]
fn iwarp_is_an_error_with_the_command_that_ends_it() {
    let flags = r#""iwarp":true,"rnr_nak":false,"invalidate":true"#;
    let all = findings(&changed("healthy", &attributes(ADAPTERS[1].limits, flags)));
    let found: Vec<_> = all.iter().filter(|one| one.rule == "attributes").collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].severity, Severity::Error);
    let fix = "devlink dev param set pci/0000:08:00.0 name enable_roce value true";
    assert_found(&all, "attributes", &["iWARP", fix]);
}
