//! Target and host in network namespaces connected by a veth pair.
//!
//! Packets cross the kernel's network stack, and a packet socket captures them.

mod cable;
mod disks;
mod fabric;
mod life;
mod sniffer;

use cable::{BAD, Cable, LINK_LOCAL, Roce, V4, V6};

macro_rules! cables {
    ($run:path; $($name:ident: $roce:ident, $addresses:ident, $mtu:literal, $fault:expr;)*) => {
        $(#[test]
        fn $name() {
            $run(super::Cable {
                mtu: $mtu,
                addresses: super::$addresses,
                fault: $fault,
                roce: super::Roce::$roce,
            });
        })*
    };
}

mod work {
    use super::BAD;

    cables! { super::fabric::run;
        ordinary_frames: V2, V4, 1500, None;
        jumbo_frames: V2, V4, 4200, None;
        ordinary_frames_on_ipv6: V2, V6, 1500, None;
        jumbo_frames_on_ipv6: V2, V6, 4200, None;
        link_local: V2, LINK_LOCAL, 1500, None;
        v1_link_local: V1, LINK_LOCAL, 1500, None;
        bad_wire: V2, V4, 1500, Some(BAD);
        bad_wire_on_ipv6: V2, V6, 4200, Some(BAD);
        vlan: V2Vlan, V4, 1500, None;
        vlan_on_ipv6: V2Vlan, V6, 1500, None;
        v1_ordinary_frames: V1, V4, 1500, None;
        v1_jumbo_frames: V1, V4, 4200, None;
        v1_ordinary_frames_on_ipv6: V1, V6, 1500, None;
        v1_jumbo_frames_on_ipv6: V1, V6, 4200, None;
        v1_bad_wire: V1, V4, 4200, Some(BAD);
        v1_bad_wire_on_ipv6: V1, V6, 1500, Some(BAD);
        v1_tagged: V1Tagged, V4, 1500, None;
        v1_tagged_jumbo_frames: V1Tagged, V4, 4200, None;
        v1_tagged_on_ipv6: V1Tagged, V6, 1500, None;
        v1_tagged_bad_wire: V1Tagged, V4, 1500, Some(BAD);
        v1_tagged_bad_wire_on_ipv6: V1Tagged, V6, 4200, Some(BAD);
        v1_vlan: V1Vlan, V4, 1500, None;
        v1_vlan_bad_wire_on_ipv6: V1Vlan, V6, 4200, Some(BAD);
    }
}

mod nvme {
    use super::BAD;

    cables! { super::disks::run;
        ordinary_frames: V2, V4, 1500, Some(BAD);
        jumbo_frames: V2, V4, 4200, Some(BAD);
        ordinary_frames_on_ipv6: V2, V6, 1500, Some(BAD);
        jumbo_frames_on_ipv6: V2, V6, 4200, Some(BAD);
        good_wire: V2, V4, 4200, None;
        v1_ordinary_frames: V1, V4, 1500, Some(BAD);
        v1_jumbo_frames: V1, V4, 4200, Some(BAD);
        v1_ordinary_frames_on_ipv6: V1, V6, 1500, Some(BAD);
        v1_jumbo_frames_on_ipv6: V1, V6, 4200, Some(BAD);
        v1_good_wire: V1, V4, 4200, None;
        v1_tagged_ordinary_frames: V1Tagged, V4, 1500, Some(BAD);
        v1_tagged_jumbo_frames: V1Tagged, V4, 4200, Some(BAD);
        v1_tagged_ordinary_frames_on_ipv6: V1Tagged, V6, 1500, Some(BAD);
        v1_tagged_jumbo_frames_on_ipv6: V1Tagged, V6, 4200, Some(BAD);
        v1_tagged_good_wire: V1Tagged, V4, 4200, None;
        v1_vlan: V1Vlan, V4, 1500, Some(BAD);
    }
}

mod link_local {
    cables! { super::disks::run_link_local;
        good_wire: V2, LINK_LOCAL, 4200, None;
    }
}

mod blocks {
    cables! { super::disks::blocks_are_whole;
        ordinary_frames: V2, V4, 1500, None;
    }
}

mod links {
    cables! { super::life::run;
        come_back: V2, V4, 1500, None;
        come_back_on_ipv6: V2, V6, 4200, None;
        v1_come_back: V1, V4, 1500, None;
    }
}
