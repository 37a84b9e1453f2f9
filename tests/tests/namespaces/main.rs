//! Target and host in network namespaces connected by a veth pair.
//!
//! Packets cross the kernel's network stack, and a packet socket captures them.

mod cable;
mod disks;
mod fabric;
mod life;
mod shrinking;
mod sniffer;

use cable::{BAD, Cable, LINK_LOCAL, Roce, V4, V6};

macro_rules! cables {
    ($run:path; $($name:ident: $roce:ident, $addresses:ident, $mtu:literal, $fault:expr;)*) => {
        $(#[test]
        fn $name() {
            $run(super::Cable {
                mtus: [$mtu; 2],
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
        long_sends: V2, V4, 9000, None;
        long_sends_on_ipv6: V2, V6, 9000, None;
        long_sends_bad_wire: V2, V4, 9000, Some(BAD);
        v1_long_sends: V1, V6, 9000, Some(BAD);
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

mod unequal {
    use super::{Cable, Roce, V4, fabric, shrinking};

    fn cable(mtus: [u32; 2]) -> Cable {
        Cable {
            mtus,
            addresses: V4,
            fault: None,
            roce: Roce::V2,
        }
    }

    #[test]
    fn the_host_takes_longer_packets() {
        fabric::run(cable([4200, 9000]));
        fabric::run(cable([1500, 9000]));
    }

    #[test]
    fn the_target_takes_longer_packets() {
        fabric::run(cable([9000, 4200]));
        fabric::run(cable([9000, 1500]));
    }

    #[test]
    fn a_path_that_loses_longer_packets_is_remembered() {
        shrinking::run(cable([9000, 9000]));
    }
}

mod nvme {
    use super::BAD;

    cables! { super::disks::run;
        ordinary_frames: V2, V4, 1500, Some(BAD);
        jumbo_frames: V2, V4, 4200, Some(BAD);
        long_sends: V2, V4, 9000, Some(BAD);
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
