//! P_Key table of a port: its partitions.
//!
//! Queue pairs select a P_Key by its index (IBTA 10.9.2). RoCE connections of rdma_cm use the
//! default partition unless the index is changed.

use cairn_rdma::{FabricError, PKey};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PKeyTable {
    pub(crate) device: String,
    pub(crate) keys: Vec<u16>,
}

impl PKeyTable {
    pub(crate) fn index_of(&self, pkey: PKey) -> Result<u16, FabricError> {
        let place = self.keys.iter().position(|&key| key == pkey.bits());
        let index = place.and_then(|index| u16::try_from(index).ok());
        index.ok_or_else(|| FabricError::NoPartition {
            device: self.device.clone(),
            pkey,
            table: self.to_text(),
        })
    }

    fn to_text(&self) -> String {
        let valid = self.keys.iter().filter_map(|&key| PKey::new(key));
        let texts: Vec<String> = valid.map(|pkey| pkey.to_string()).collect();
        if texts.is_empty() {
            return "none".to_owned();
        }
        texts.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(keys: &[u16]) -> PKeyTable {
        PKeyTable {
            device: "mlx5_0".to_owned(),
            keys: keys.to_vec(),
        }
    }

    fn pkey(bits: u16) -> PKey {
        PKey::new(bits).unwrap()
    }

    #[test]
    fn a_key_is_found_by_its_place_membership_included() {
        let table = table(&[0xffff, 0, 0x8001, 0x0002]);
        assert_eq!(table.index_of(PKey::DEFAULT).unwrap(), 0);
        assert_eq!(table.index_of(pkey(0x8001)).unwrap(), 2);
        assert_eq!(table.index_of(pkey(0x0002)).unwrap(), 3);
        assert!(table.index_of(pkey(0x0001)).is_err());
        assert!(table.index_of(pkey(0x8002)).is_err());
    }

    #[test]
    fn a_key_that_is_not_there_is_refused_with_device_table_and_remedy() {
        let error = table(&[0xffff, 0, 0x8001]).index_of(pkey(0x8002));
        let error = error.unwrap_err().to_string();
        for part in ["0x8002", "mlx5_0", "has 0xffff 0x8001:", "provider soft"] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
        let error = table(&[0, 0]).index_of(pkey(0x8002)).unwrap_err();
        assert!(error.to_string().contains("has none:"), "{error}");
    }
}
