//! Advice for a missing permission.

/// Returns the remedy for a missing permission. An ordinary user should run as root or follow
/// `of_user`. For root, `of_root` names the mechanism that restricts root too.
#[must_use]
pub fn permission(of_user: &str, of_root: &str) -> String {
    permission_of(rustix::process::geteuid().is_root(), of_user, of_root)
}

/// Returns the remedy of [`permission`] for a program that runs as root.
#[must_use]
pub fn permission_for_root(of_root: &str) -> String {
    format!("root may not either: {of_root}")
}

fn permission_of(is_root: bool, of_user: &str, of_root: &str) -> String {
    if is_root {
        permission_for_root(of_root)
    } else {
        format!("run as root, or {of_user}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_advised_to_become_root() {
        let user = permission_of(false, "ask the owner", "look for a security module");
        assert_eq!(user, "run as root, or ask the owner");
        let root = permission_of(true, "ask the owner", "look for a security module");
        assert_eq!(root, "root may not either: look for a security module");
    }
}
