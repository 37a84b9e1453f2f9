//! NQN and identifier of the local host.

use std::fs;
use std::path::Path;

use nvme_proto::wire::Nqn;
use uuid::Uuid;

/// NQN and identifier of a host. Each machine must have its own.
///
/// A target treats all associations with equal NQN and identifier as one host. Cairn's target
/// executes their writes of the same blocks in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// HOSTNQN.
    pub nqn: Nqn,
    /// HOSTID.
    pub id: [u8; 16],
}

impl Identity {
    /// Identity of this machine as in nvme-cli: from /etc/nvme/hostnqn and /etc/nvme/hostid, else
    /// from /etc/machine-id.
    pub fn of_this_machine() -> Result<Self, String> {
        of_this_host(None, None)
    }

    /// Identity with an identifier derived from the NQN: the UUID in the NQN, else a version 5
    /// (SHA-1) UUID.
    #[must_use]
    pub fn named(nqn: Nqn) -> Self {
        let id = of_name(&nqn).into_bytes();
        Self { nqn, id }
    }
}

const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";
const NAMESPACE: Uuid = Uuid::from_u128(0x8c1b_3f6e_52a4_4d0f_9d7e_1f0a_63c2_b5d8);

/// Like [`Identity::of_this_machine`], with NQN or identifier from the arguments if present.
pub fn of_this_host(nqn: Option<Nqn>, id: Option<&str>) -> Result<Identity, String> {
    decide(nqn, id, Path::new("/etc"))
}

fn decide(nqn: Option<Nqn>, id: Option<&str>, etc: &Path) -> Result<Identity, String> {
    let nqn = match nqn {
        Some(nqn) => nqn,
        None => match read(&etc.join("nvme/hostnqn")) {
            Some(text) => Nqn::parse(&text)
                .map_err(|error| format!("{}: {error}", etc.join("nvme/hostnqn").display()))?,
            None => of_machine(etc)?,
        },
    };
    let id = match id {
        Some(text) => Uuid::try_parse(text).map_err(|error| format!("-I {text}: {error}"))?,
        None => match read(&etc.join("nvme/hostid")) {
            Some(text) => Uuid::try_parse(&text)
                .map_err(|error| format!("{}: {error}", etc.join("nvme/hostid").display()))?,
            None => of_name(&nqn),
        },
    };
    Ok(Identity {
        nqn,
        id: id.into_bytes(),
    })
}

fn of_machine(etc: &Path) -> Result<Nqn, String> {
    let machine = read(&etc.join("machine-id")).ok_or_else(|| {
        "this host has no name: give one by -q, or put one into /etc/nvme/hostnqn (nvme \
         gen-hostnqn makes one)"
            .to_owned()
    })?;
    let uuid = Uuid::new_v5(&NAMESPACE, machine.as_bytes());
    Ok(Nqn::parse(&format!("{UUID_PREFIX}{uuid}")).expect("a UUID makes a name"))
}

fn of_name(nqn: &Nqn) -> Uuid {
    let in_name = nqn.raw().strip_prefix(UUID_PREFIX);
    in_name
        .and_then(|text| Uuid::try_parse(text).ok())
        .unwrap_or_else(|| Uuid::new_v5(&NAMESPACE, nqn.raw().as_bytes()))
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "4050e73e-96ba-478b-a06b-228fa40325d2";

    #[test]
    fn files_come_before_the_machine_and_options_before_files() {
        let etc = tempfile::tempdir().unwrap();
        let of =
            |nqn: Option<&str>, id| decide(nqn.map(|n| Nqn::parse(n).unwrap()), id, etc.path());
        assert!(of(None, None).unwrap_err().contains("give one by -q"));

        fs::write(
            etc.path().join("machine-id"),
            "3d1219c7c4c5404aaa1f6d2a48adfda4\n",
        )
        .unwrap();
        let made = of(None, None).unwrap();
        assert_eq!(made, of(None, None).unwrap());
        assert!(made.nqn.raw().starts_with(UUID_PREFIX));
        assert!(!made.nqn.raw().contains("3d1219c7"));

        fs::create_dir(etc.path().join("nvme")).unwrap();
        fs::write(
            etc.path().join("nvme/hostnqn"),
            format!("{UUID_PREFIX}{UUID}\n"),
        )
        .unwrap();
        let read = of(None, None).unwrap();
        assert_eq!(read.id, Uuid::try_parse(UUID).unwrap().into_bytes());
        assert_ne!(read, made);

        fs::write(
            etc.path().join("machine-id"),
            "0f1219c7c4c5404aaa1f6d2a48adfda4\n",
        )
        .unwrap();
        fs::remove_file(etc.path().join("nvme/hostnqn")).unwrap();
        let other = of(None, None).unwrap();
        assert!(other.nqn != made.nqn && other.id != made.id);

        let given = of(Some("nqn.2026-01.org.example:me"), Some(UUID)).unwrap();
        assert_eq!(given.nqn.raw(), "nqn.2026-01.org.example:me");
        assert_eq!(given.id, read.id);
        assert!(of(None, Some("x")).unwrap_err().starts_with("-I x: "));
    }
}
