//! Detection of RDMA adapters that consume the RoCE v2 packets of an address before the kernel.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

/// Returns an error message if an RDMA adapter consumes the RoCE v2 packets to `address`: an active
/// port has the address in its GID table.
#[must_use]
pub fn taken_by_adapter(address: IpAddr) -> Option<String> {
    let device = owner(Path::new("/sys/class/infiniband"), address)?;
    Some(format!(
        "RDMA device {device} takes all packets to UDP port 4791 of {address} in its hardware, so \
         that none reaches user space: use the device (provider verbs), turn its RoCE off \
         (`devlink dev param show` lists enable_roce), or use an address of another interface"
    ))
}

fn owner(class: &Path, address: IpAddr) -> Option<String> {
    let devices = fs::read_dir(class).ok()?.flatten();
    let mut names = devices.filter_map(|device| {
        // A software device has no folder `device`; its packets pass through the kernel.
        let path = device.path();
        let is_adapter = path.join("device").exists();
        let mut ports = fs::read_dir(path.join("ports")).ok()?.flatten();
        let takes = is_adapter && ports.any(|port| has_gid(&port.path(), address));
        takes.then(|| device.file_name().to_string_lossy().into_owned())
    });
    names.next()
}

fn has_gid(port: &Path, address: IpAddr) -> bool {
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    if !text(&port.join("state")).contains("ACTIVE") {
        return false;
    }
    let Ok(gids) = fs::read_dir(port.join("gids")) else {
        return false;
    };
    gids.flatten().any(|gid| {
        let known = text(&gid.path()).trim().parse::<Ipv6Addr>();
        let types = port.join("gid_attrs/types").join(gid.file_name());
        known.is_ok_and(|known| IpAddr::from(known).to_canonical() == address.to_canonical())
            && text(&types).trim() == "RoCE v2"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, adapter: bool, state: &str, kind: &str) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("cairn-gids-{}-{name}", std::process::id()));
        let port = root.join("mlx5_0/ports/1");
        fs::create_dir_all(port.join("gids")).unwrap();
        fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
        if adapter {
            fs::create_dir_all(root.join("mlx5_0/device")).unwrap();
        }
        fs::write(port.join("state"), state).unwrap();
        let gid = "0000:0000:0000:0000:0000:ffff:c000:0207\n";
        fs::write(port.join("gids/3"), gid).unwrap();
        fs::write(port.join("gid_attrs/types/3"), kind).unwrap();
        root
    }

    #[test]
    fn an_active_adapter_owns_the_addresses_of_its_gids() {
        let owned = IpAddr::from([192, 0, 2, 7]);
        for (name, adapter, state, kind, takes) in [
            ("active", true, "4: ACTIVE\n", "RoCE v2\n", true),
            ("software", false, "4: ACTIVE\n", "RoCE v2\n", false),
            ("down", true, "1: DOWN\n", "RoCE v2\n", false),
            ("v1", true, "4: ACTIVE\n", "IB/RoCE v1\n", false),
        ] {
            let class = class(name, adapter, state, kind);
            let expected = takes.then(|| "mlx5_0".to_owned());
            assert_eq!(owner(&class, owned), expected, "{name}");
            assert_eq!(owner(&class, [192, 0, 2, 8].into()), None, "{name}");
            fs::remove_dir_all(class).unwrap();
        }
    }
}
