use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

pub(crate) const EXPORTS_MAX: usize = 1024;

const IMAGE: &str = "rbd:";

const WRITABLE: [&str; 4] = ["/dev/shm", "/dev/mqueue", "/dev/hugepages", "/dev/fd"];

/// Patterns of folders, devices and images that requests may export. Patterns match the text of a
/// path, so callers must resolve links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exports {
    patterns: Arc<[String]>,
}

impl Exports {
    pub(crate) fn new(patterns: Vec<String>) -> Self {
        Self {
            patterns: patterns.into(),
        }
    }

    pub(crate) fn check(pattern: &str) -> Result<(), &'static str> {
        if pattern.starts_with(IMAGE) {
            return Ok(());
        }
        let path = Path::new(pattern);
        if !path.is_absolute() || pattern.contains('\0') {
            return Err("not an absolute path");
        }
        let has_dots = path.components().any(|part| part == Component::ParentDir);
        if has_dots {
            Err("a path with \"..\"")
        } else {
            Ok(())
        }
    }

    /// True if a pattern permits this Ceph image; `image` begins with "rbd:".
    #[must_use]
    pub fn allow_image(&self, image: &str) -> bool {
        let all = self.patterns.iter();
        let mut images = all.filter(|pattern| pattern.starts_with(IMAGE));
        images.any(|pattern| matches(pattern, image, false))
    }

    /// True if a pattern matches the text of `path`; false if `path` contains `..`.
    #[must_use]
    pub fn name_path(&self, path: &Path) -> bool {
        // After a symbolic link, ".." leads to a folder that the text does not show.
        if path.components().any(|part| part == Component::ParentDir) {
            return false;
        }
        let path: PathBuf = path.components().collect();
        let mut patterns = self.patterns.iter();
        path.to_str()
            .is_some_and(|text| patterns.any(|pattern| matches(pattern, text, true)))
    }

    /// True if a request may export `path`. `location` is `path` with all symbolic links resolved.
    ///
    /// A pattern must match `path` and `location`. If both are in /dev, matching `path` is enough,
    /// because only the system creates links there.
    #[must_use]
    pub fn allow_path(&self, path: &Path, location: &Path) -> bool {
        let are_devices = is_device_name(path) && is_device_name(location);
        self.name_path(path) && (are_devices || self.name_path(location))
    }
}

fn is_device_name(path: &Path) -> bool {
    path.starts_with("/dev") && !WRITABLE.iter().any(|folder| path.starts_with(folder))
}

fn matches(pattern: &str, text: &str, below: bool) -> bool {
    let pattern = match pattern.trim_end_matches('/') {
        "" => "/",
        pattern => pattern,
    };
    if is_match(pattern, text) {
        return true;
    }
    let ends = text.match_indices('/').map(|(at, _)| at);
    let mut folders = ends.map(|at| if at == 0 { "/" } else { &text[..at] });
    below && folders.any(|folder| is_match(pattern, folder))
}

fn is_match(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.as_bytes(), text.as_bytes());
    // State for backtracking: pattern after the last "*", and text at the start of its match.
    let mut star = None;
    loop {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => return true,
            (Some((b'*', rest)), _) => {
                star = Some((rest, text));
                pattern = rest;
                continue;
            }
            (Some((one, rest)), Some((other, more))) if one == other => {
                (pattern, text) = (rest, more);
                continue;
            }
            _ => {}
        }
        match star {
            Some((rest, [first, more @ ..])) if *first != b'/' => {
                star = Some((rest, more));
                (pattern, text) = (rest, more);
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exports(patterns: &[&str]) -> Exports {
        let patterns: Vec<String> = patterns.iter().map(|one| (*one).to_owned()).collect();
        for pattern in &patterns {
            Exports::check(pattern).unwrap();
        }
        Exports::new(patterns)
    }

    #[test]
    fn a_star_stands_for_a_part_of_one_name() {
        for (pattern, text, expected) in [
            ("/dev/vg0/*", "/dev/vg0/a", true),
            ("/dev/vg0/*", "/dev/vg0/", true),
            ("/dev/vg0/*", "/dev/vg1/a", false),
            ("/dev/nvme*n*", "/dev/nvme10n1", true),
            ("/dev/nvme*n*", "/dev/nvme/n1", false),
            ("/a*c*e", "/abcbcde", true),
            ("/a*c*e", "/abcbcd", false),
            ("*", "", true),
        ] {
            assert_eq!(is_match(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_link_counts_by_the_disk_that_it_leads_to() {
        let exports = exports(&["/srv/images/", "/dev/vg0/*", "/dev/shm/*", "rbd:pool/*"]);
        let allow =
            |path: &str, resolved: &str| exports.allow_path(Path::new(path), Path::new(resolved));
        assert!(allow("/srv/images/a", "/srv/images/a"));
        assert!(allow("/srv/images/deep/a", "/srv/images/deep/a"));
        assert!(allow("/srv/images", "/srv/images"));
        assert!(allow("//srv/./images/link", "/srv/images/a"));
        assert!(allow("/dev/vg0/a", "/dev/dm-3"));
        for (path, resolved) in [
            ("/etc/shadow", "/etc/shadow"),
            ("/srv/images-2/a", "/srv/images-2/a"),
            ("/srv/images/a", "/etc/shadow"),
            ("/srv/images/a", "/dev/sda"),
            ("/srv/images/../../etc/shadow", "/etc/shadow"),
            ("/elsewhere/a", "/srv/images/a"),
            ("/dev/disk/by-label/a", "/dev/vg0/a"),
            ("/dev/vg0/a", "/etc/shadow"),
            ("/dev/vg0/../sda", "/dev/sda"),
            ("/dev/shm/a", "/dev/sda"),
            ("/dev/shm/a/../../vg0/b", "/dev/sda"),
        ] {
            assert!(!allow(path, resolved), "{path} {resolved}");
        }
        assert!(exports.allow_image("rbd:pool/image"));
        assert!(!exports.allow_image("rbd:other/image"));
    }

    #[test]
    fn a_pattern_is_absolute_or_names_images() {
        for pattern in ["", "srv", "/srv/../etc", "mem:1GiB"] {
            assert!(Exports::check(pattern).is_err(), "{pattern}");
        }
    }
}
