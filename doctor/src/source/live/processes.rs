use std::fs;
use std::io;

/// Returns the program with this socket: "NAME (pid N)"; `None` for the kernel, or a process that
/// this user may not inspect.
pub(super) fn holder_of(inode: u64) -> io::Result<Option<String>> {
    let wanted = format!("socket:[{inode}]");
    for process in fs::read_dir("/proc")?.flatten() {
        let pid = process.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Ok(open) = fs::read_dir(process.path().join("fd")) else {
            continue;
        };
        let links = open
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        if links
            .into_iter()
            .any(|link| link.to_string_lossy() == wanted)
        {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Ok(Some(format!("{} (pid {pid})", name.trim())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::holder_of;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn our_own_socket_is_ours() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap();
        let link = link.to_string_lossy().into_owned();
        let inode = link.trim_start_matches("socket:[").trim_end_matches(']');
        let holder = holder_of(inode.parse().unwrap()).unwrap().unwrap();
        assert!(
            holder.ends_with(&format!("(pid {})", std::process::id())),
            "{holder}"
        );
        assert_eq!(holder_of(u64::MAX).unwrap(), None);
    }
}
