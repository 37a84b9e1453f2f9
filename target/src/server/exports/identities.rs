//! Checks that namespaces do not share a writable disk, UUID or NGUID by mistake.

use std::collections::HashMap;
use std::sync::Arc;

use nvme_proto::wire::Nqn;

use super::super::error::StartError;
use cairn_data_path::namespace::Namespace;

pub(crate) struct Identity<'a> {
    pub(crate) nqn: &'a Nqn,
    pub(crate) nsid: u32,
    pub(crate) id: u64,
    pub(crate) uuid: cairn_config::Uuid,
    pub(crate) nguid: Option<[u8; 16]>,
    pub(crate) is_named: bool,
    pub(crate) place: Option<(u64, u64)>,
    pub(crate) read_only: bool,
}

pub(crate) fn check_identities<'a>(
    all: impl Iterator<Item = (&'a Nqn, &'a Arc<Namespace>)>,
) -> Result<(), StartError> {
    tell_apart(all.map(|(nqn, namespace)| Identity {
        nqn,
        nsid: namespace.nsid,
        id: namespace.id,
        uuid: namespace.uuid,
        nguid: namespace.nguid,
        is_named: namespace.is_named,
        place: namespace.backend.place(),
        read_only: namespace.read_only,
    }))
}

pub(crate) fn tell_apart<'a>(all: impl Iterator<Item = Identity<'a>>) -> Result<(), StartError> {
    let mut firsts: HashMap<cairn_config::Uuid, Identity<'_>> = HashMap::new();
    let mut nguids = HashMap::new();
    let mut places = HashMap::new();
    for new in all {
        if let Some(place) = new.place {
            let own = (new.nqn, new.nsid, new.id, new.read_only);
            let (nqn, nsid, id, read_only) = *places.entry(place).or_insert(own);
            if id != new.id && !(read_only && new.read_only) {
                return Err(StartError::SameDisk {
                    nqn: new.nqn.to_string(),
                    nsid: new.nsid,
                    other_nqn: nqn.to_string(),
                    other_nsid: nsid,
                });
            }
        }
        if let Some(nguid) = new.nguid {
            let (nsid, id) = *nguids.entry((new.nqn, nguid)).or_insert((new.nsid, new.id));
            if id != new.id {
                return Err(StartError::SameNguid {
                    nqn: new.nqn.to_string(),
                    nsid: new.nsid,
                    other_nsid: nsid,
                    nguid: format!("{:032x}", u128::from_be_bytes(nguid)),
                });
            }
        }
        let Some(first) = firsts.get(&new.uuid) else {
            firsts.insert(new.uuid, new);
            continue;
        };
        // Namespaces of different subsystems may be configured with the same UUID.
        let named = new.is_named || first.is_named;
        let same_disk = new.place == first.place;
        if new.id != first.id && (new.nqn == first.nqn || !named && !same_disk) {
            return Err(StartError::SameIdentity {
                nqn: new.nqn.to_string(),
                nsid: new.nsid,
                other_nqn: first.nqn.to_string(),
                other_nsid: first.nsid,
                uuid: new.uuid.to_string(),
            });
        }
    }
    Ok(())
}
