use cairn_config::{Limits, LimitsOf, NewLimits, parse_size};
use cairn_control::{Error, Stage, read};
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use super::parameters::QosLimit;

/// Unit of IOPS limits. SPDK rounds limits up to a multiple of this unit.
pub(crate) const IOS_UNIT: u64 = 1000;
pub(crate) const MBYTE: u64 = 1 << 20;

pub(super) struct Set {
    pub(super) name: String,
    limits: NewLimits,
}

impl Set {
    pub(super) fn read(params: Map<String, Value>) -> Result<Self, Error> {
        let set: QosLimit = read(params).map_err(|error| {
            // Only for this method, SPDK uses this code instead of -32602.
            let message = format!("spdk_json_decode_object failed: {error}");
            Error::new(Error::INTERNAL, message)
        })?;
        let bytes = |mbytes: Option<u64>| {
            let bytes = mbytes.map(|mbytes| mbytes.saturating_mul(MBYTE));
            bytes.map(|bytes| bytes.to_string())
        };
        let ios = set.rw_ios_per_sec;
        let ios = ios.map(|ios| ios.checked_next_multiple_of(IOS_UNIT).unwrap_or(u64::MAX));
        let limits = NewLimits {
            iops: ios,
            read: bytes(set.r_mbytes_per_sec),
            write: bytes(set.w_mbytes_per_sec),
            total: bytes(set.rw_mbytes_per_sec),
            outstanding: None,
            burst_ms: None,
        };
        let name = set.name;
        Ok(Self { name, limits })
    }

    pub(super) fn apply(&self, stage: &mut Stage) -> Result<Value, Error> {
        let places = stage.draft.named(&self.name);
        let disk = stage.disks.get_mut(&self.name);
        if disk.is_none() && places.is_empty() {
            return Err(Error::errno(Errno::NODEV, "No such device"));
        }
        if self.limits == NewLimits::default() {
            return Err(Error::errno(Errno::INVAL, "No rate limits specified"));
        }
        if let Some(disk) = disk {
            let NewLimits {
                iops,
                read,
                write,
                total,
                ..
            } = self.limits.clone();
            let old = &mut disk.limits;
            old.iops = iops.or(old.iops);
            for (old, new) in [
                (&mut old.read, read),
                (&mut old.write, write),
                (&mut old.total, total),
            ] {
                *old = new.or(old.take());
            }
        }
        for (nqn, nsid) in places {
            let of = LimitsOf::Namespace(nsid);
            let set = stage.draft.set_limits(&nqn, &of, &self.limits);
            set.map_err(super::of)?;
        }
        Ok(json!(true))
    }
}

fn shown([iops, read, write, total]: [Option<u64>; 4]) -> Value {
    let mbytes = |bytes: Option<u64>| bytes.unwrap_or(0).div_ceil(MBYTE);
    json!({
        "rw_ios_per_sec": iops.unwrap_or(0),
        "rw_mbytes_per_sec": mbytes(total),
        "r_mbytes_per_sec": mbytes(read),
        "w_mbytes_per_sec": mbytes(write),
    })
}

pub(super) fn of_namespace(limits: &Limits) -> Value {
    shown([limits.iops, limits.read, limits.write, limits.total])
}

pub(super) fn of_disk(limits: &NewLimits) -> Value {
    let bytes = |text: &Option<String>| text.as_deref().and_then(|text| parse_size(text).ok());
    let [read, write, total] = [&limits.read, &limits.write, &limits.total].map(bytes);
    shown([limits.iops, read, write, total])
}
