//! Bit fields of Identify Namespace.

use super::{Field, code, either, field, number, support};

/// Fields of Identify Namespace (NVM 1.0, figure 97).
pub(crate) const NAMESPACE: &[Field] = &[
    field(
        "nsfeat",
        8,
        &[
            support(4, "NPWG, NPWA, NPDG, NPDA and NOWS"),
            either(
                3,
                "NGUID and EUI64 may be used again",
                "NGUID and EUI64 are never used again",
            ),
            support(2, "errors for deallocated blocks"),
            either(
                1,
                "atomicity is the controller's",
                "NAWUN, NAWUPF and NACWU are the namespace's",
            ),
            support(0, "thin provisioning"),
        ],
    ),
    field(
        "flbas",
        8,
        &[
            number(6, 5, |index| format!("LBA format, upper bits: {index}")),
            either(
                4,
                "metadata in a buffer of its own",
                "metadata after the data of each block",
            ),
            number(3, 0, |index| format!("LBA format, lower bits: {index}")),
        ],
    ),
    field(
        "mc",
        8,
        &[
            support(1, "metadata in a buffer of its own"),
            support(0, "metadata after the data of each block"),
        ],
    ),
    field(
        "dpc",
        8,
        &[
            support(4, "protection information as the last bytes of metadata"),
            support(3, "protection information as the first bytes of metadata"),
            support(2, "protection information type 3"),
            support(1, "protection information type 2"),
            support(0, "protection information type 1"),
        ],
    ),
    field(
        "dps",
        8,
        &[
            either(
                3,
                "protection information is last in metadata",
                "protection information is first in metadata",
            ),
            code(
                2,
                0,
                "protection information",
                &["disabled", "type 1", "type 2", "type 3"],
            ),
        ],
    ),
    field(
        "nmic",
        8,
        &[
            either(1, "not a dispersed namespace", "a dispersed namespace"),
            either(
                0,
                "of one controller",
                "may be attached to several controllers",
            ),
        ],
    ),
    field(
        "rescap",
        8,
        &[
            either(
                7,
                "Ignore Existing Key as before NVMe 1.3",
                "Ignore Existing Key as since NVMe 1.3",
            ),
            support(6, "Exclusive Access - All Registrants"),
            support(5, "Write Exclusive - All Registrants"),
            support(4, "Exclusive Access - Registrants Only"),
            support(3, "Write Exclusive - Registrants Only"),
            support(2, "Exclusive Access"),
            support(1, "Write Exclusive"),
            support(0, "reservations that persist through power loss"),
        ],
    ),
    field(
        "fpi",
        8,
        &[
            support(7, "progress of Format NVM"),
            number(6, 0, |percent| format!("left to format: {percent} %")),
        ],
    ),
    field(
        "dlfeat",
        8,
        &[
            either(
                4,
                "guard of deallocated blocks: FFFFh",
                "guard of deallocated blocks: the CRC of their data",
            ),
            support(3, "the Deallocate bit of Write Zeroes"),
            code(
                2,
                0,
                "deallocated blocks read as",
                &["not reported", "00h", "FFh"],
            ),
        ],
    ),
    field(
        "nsattr",
        8,
        &[either(0, "not write protected", "write protected")],
    ),
];
