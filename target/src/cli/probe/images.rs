use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use cairn_config::{Backing, Config, ImageSpec, Namespace};
use cairn_disk::{Backend, Claim};

#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Time limit for each image, longer than the 8 seconds that a Ceph client waits for a monitor.
    each: Duration,
    all: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            each: Duration::from_secs(12),
            all: Duration::from_secs(30),
        }
    }
}

/// Opens an image read-only, because a running target may hold the image's exclusive lock.
pub(super) fn open(image: &ImageSpec, namespace: &Namespace) -> Result<(), String> {
    let claim = Claim {
        read_only: true,
        ..Claim::default()
    };
    let block_bytes = namespace.block_size.map(cairn_config::BlockSize::bytes);
    let opened = Backend::open_image(image, block_bytes, claim, Arc::new(|| {}));
    opened.map(drop).map_err(|error| error.to_string())
}

pub(super) fn problems(
    config: &Config,
    open: impl Fn(&ImageSpec, &Namespace) -> Result<(), String> + Send + 'static,
    patience: Patience,
) -> Vec<String> {
    let mut images = Vec::new();
    for subsystem in &config.subsystems {
        for namespace in &subsystem.namespaces {
            if let Backing::Rbd(image) = &namespace.backing {
                let what = format!("namespace {} of {}", namespace.nsid, subsystem.nqn);
                images.push((what, image.clone(), namespace.clone()));
            }
        }
    }
    let names: Vec<(String, String)> = images
        .iter()
        .map(|(what, image, _)| (what.clone(), image.to_string()))
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let (report, reports) = channel();
    let probe = move || {
        for (_, image, namespace) in images {
            if report.send(open(&image, &namespace)).is_err() {
                return;
            }
        }
    };
    let mut problems = Vec::new();
    if let Err(error) = std::thread::Builder::new().spawn(probe) {
        problems.push(format!(
            "images of Ceph are not checked: no thread: {error}"
        ));
        return problems;
    }
    let end = Instant::now() + patience.all;
    for (index, (what, image)) in names.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        match reports.recv_timeout(left.min(patience.each)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => problems.push(format!("{what}: {error}")),
            Err(RecvTimeoutError::Timeout) => {
                problems.push(format!(
                    "{what}: the cluster of {image} does not answer: look at it by `ceph -s`, and at the way to its \
                     monitors"
                ));
                let rest = names.len() - index - 1;
                if rest > 0 {
                    problems.push(format!(
                        "{rest} more images of Ceph are not checked: there was no time"
                    ));
                }
                break;
            }
            Err(RecvTimeoutError::Disconnected) => {
                problems.push(format!(
                    "{what}: {image} is not checked: the look at it panicked"
                ));
                break;
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::Flags;

    fn config(images: &[&str]) -> Config {
        let mut text = "[[listener]]\naddress = \"127.0.0.1\"\n[[subsystem]]\n\
                        nqn = \"nqn.2024-01.com.example:i\"\nallow_any_host = true\n"
            .to_owned();
        for (image, nsid) in images.iter().zip(1..) {
            text += &format!("[[subsystem.namespace]]\nnsid = {nsid}\nexport = \"{image}\"\n");
        }
        Config::parse("test", &text, &Flags::default()).unwrap()
    }

    #[test]
    fn an_image_that_cannot_be_opened_is_named_and_one_that_hangs_ends_the_look() {
        let config = config(&[
            "rbd:pool/good",
            "mem:1MiB",
            "rbd:pool/none",
            "rbd:pool/hangs",
            "rbd:pool/last",
        ]);
        let (go_on, hangs) = channel::<()>();
        let open = move |image: &ImageSpec, _: &Namespace| match &*image.image {
            "good" => Ok(()),
            "none" => Err("there is no image pool/none".to_owned()),
            _ => {
                let _ = hangs.recv();
                Ok(())
            }
        };
        let patience = Patience {
            each: Duration::from_millis(200),
            all: Duration::from_secs(60),
        };
        let since = Instant::now();
        let problems = problems(&config, open, patience);
        assert!(since.elapsed() < Duration::from_secs(30));
        let parts = [
            "namespace 3 of nqn.2024-01.com.example:i: there is no image",
            "the cluster of rbd:pool/hangs does not answer",
            "1 more images of Ceph are not checked",
        ];
        assert_eq!(problems.len(), parts.len(), "{problems:?}");
        for (problem, part) in problems.iter().zip(parts) {
            assert!(problem.contains(part), "{problem}");
        }
        drop(go_on);
    }

    #[test]
    fn all_images_together_have_a_deadline() {
        let config = config(&["rbd:pool/a", "rbd:pool/b", "rbd:pool/c"]);
        let open = |_: &ImageSpec, _: &Namespace| {
            std::thread::sleep(Duration::from_millis(200));
            Err("a monitor does not answer".to_owned())
        };
        let patience = Patience {
            each: Duration::from_secs(60),
            all: Duration::from_millis(300),
        };
        let problems = problems(&config, open, patience);
        let last = problems.last().unwrap();
        assert!(
            last.contains("does not answer") || last.contains("no time"),
            "{problems:?}"
        );
    }
}
