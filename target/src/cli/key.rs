#![expect(clippy::disallowed_methods, reason = "a command for one file")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cairn_doctor::cli::{Format, OutputArgs};
use clap::Subcommand;
use nvme_auth::{Hash, Secret};
use schemars::JsonSchema;
use serde::Serialize;
use zeroize::Zeroizing;

const FILE_BYTES_MAX: usize = 1024;

/// Commands for secrets.
#[derive(Debug, Subcommand)]
pub(super) enum Key {
    /// Makes a secret for nvme-cli, nvmet, SPDK and Cairn: DHHC-1:01:...
    Generate {
        /// Hash that derives the key from the secret and an NQN; none: the secret itself is the key
        #[arg(
            long,
            value_name = "sha256|sha384|sha512|none",
            default_value = "sha256"
        )]
        hash: Transformation,
        /// Length of the secret in bytes [default: the length of the hash; 32 with --hash none]
        #[arg(long, value_name = "32|48|64")]
        bytes: Option<usize>,
        /// New file for the secret, readable only by its owner [default: stdout]
        #[arg(long, alias = "output", value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Reports whether a secret is valid, its length, its hash, and a fingerprint that is the same
    /// for the same secret, without showing it
    Check {
        /// File with the secret; -: stdin
        file: PathBuf,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Transformation(Option<Hash>);

impl FromStr for Transformation {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "none" => Ok(Self(None)),
            name => match name.parse() {
                Ok(hash) => Ok(Self(Some(hash))),
                Err(_) => Err("a hash is sha256, sha384, sha512 or none"),
            },
        }
    }
}

pub(super) fn run(key: &Key) -> Result<(), String> {
    match key {
        Key::Generate {
            hash,
            bytes,
            file: new,
        } => generate(hash.0, *bytes, new.as_deref()),
        Key::Check { file, output } => {
            super::print_line(&check(file, output.format == Format::Json)?);
            Ok(())
        }
    }
}

fn generate(hash: Option<Hash>, bytes: Option<usize>, file: Option<&Path>) -> Result<(), String> {
    let usual = hash.map_or(32, Hash::bytes);
    let bytes = bytes.unwrap_or(usual);
    match hash {
        None if !matches!(bytes, 32 | 48 | 64) => {
            return Err(format!("a secret has 32, 48 or 64 bytes, not {bytes}"));
        }
        Some(hash) if bytes != usual => {
            return Err(format!(
                "a secret for {hash} has {usual} bytes, not {bytes}: older Linux hosts make \
                 another key of it. Leave --bytes out, or use --hash none"
            ));
        }
        _ => {}
    }
    let mut failed = None;
    let secret = Secret::generate(bytes, hash, &mut |bytes| {
        failed = getrandom::fill(bytes).err();
    });
    if let Some(error) = failed {
        return Err(format!(
            "the operating system has no random numbers: {error}"
        ));
    }
    let text = secret.to_text();
    let Some(path) = file else {
        super::print_line(&text);
        return Ok(());
    };
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| writeln!(file, "{}", *text));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Reads a file or stdin (`-`) into a buffer of fixed size, because a growing buffer would leave
/// copies of the secret in memory.
fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut file = if path == Path::new("-") {
        File::from(io::stdin().as_fd().try_clone_to_owned()?)
    } else {
        File::open(path)?
    };
    let mut bytes = Zeroizing::new(vec![0; FILE_BYTES_MAX]);
    let mut length = 0;
    loop {
        match file.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if length == FILE_BYTES_MAX {
        return Err(io::Error::other("the file is too large for a secret"));
    }
    bytes.truncate(length);
    Ok(bytes)
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CheckedKey {
    /// Length of the secret in bytes.
    bytes: usize,
    /// Hash that derives a key for each NQN: `sha256`, `sha384` or `sha512`; null for none.
    hash: Option<String>,
    /// First 8 hexadecimal digits of a hash of the secret.
    fingerprint: String,
}

fn check(path: &Path, as_json: bool) -> Result<String, String> {
    let text = read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let text = std::str::from_utf8(&text).unwrap_or_default();
    let secret: Secret = text
        .parse()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let hash = secret.transformation();
    if as_json {
        let checked = CheckedKey {
            bytes: secret.key_len(),
            hash: hash.map(|hash| hash.to_string()),
            fingerprint: secret.fingerprint(),
        };
        return serde_json::to_string_pretty(&checked).map_err(|error| error.to_string());
    }
    let made = match hash {
        Some(hash) => format!("{hash} derives a key from it and an NQN"),
        None => "it is the key for every NQN".to_owned(),
    };
    let (bytes, fingerprint) = (secret.key_len(), secret.fingerprint());
    Ok(format!(
        "a secret of {bytes} bytes; {made}; fingerprint {fingerprint}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_its_owners_alone_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.key");
        generate(Some(Hash::Sha384), None, Some(&path)).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("DHHC-1:02:"), "{}", &text[..10]);
        let secret: Secret = text.parse().unwrap();
        let said = check(&path, false).unwrap();
        assert!(said.ends_with(&secret.fingerprint()), "{said}");
        let said: serde_json::Value = serde_json::from_str(&check(&path, true).unwrap()).unwrap();
        let expected = serde_json::json!({
            "bytes": 48, "hash": "sha384", "fingerprint": secret.fingerprint()
        });
        assert_eq!(said, expected);
        std::fs::write(folder.path().join("large"), [b'D'; FILE_BYTES_MAX]).unwrap();
        let large = check(&folder.path().join("large"), false).unwrap_err();
        assert!(large.contains("too large"), "{large}");
        let again = generate(None, None, Some(&path)).unwrap_err();
        assert!(again.contains("exists"), "{again}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn lengths_that_hosts_understand_differently_are_refused() {
        assert!(generate(Some(Hash::Sha256), Some(48), None).is_err());
        assert!(generate(None, Some(40), None).is_err());
    }
}
