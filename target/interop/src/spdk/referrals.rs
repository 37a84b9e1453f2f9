use cairn_config::{Nqn, Referral};
use cairn_control::{Error, Kind, Nothing, read};
use serde_json::{Value, json};

use super::listeners::place;
use super::parameters::ReferralOf;
use super::{Answer, Params, edit, invalid, views};
use crate::{Control, Snapshot};

pub(super) async fn call(control: &impl Control, method: &str, params: Params) -> Answer {
    if method == "nvmf_discovery_get_referrals" {
        read::<Nothing>(params)?;
        let snapshot = control.snapshot().await?;
        return Ok(all(&snapshot.config().referrals));
    }
    let of: ReferralOf = read(params)?;
    if of.secure_channel {
        return Err(Error::invalid(
            "Invalid parameters: over RDMA there is no secure channel",
        ));
    }
    if of.address.trsvcid.as_deref().is_none_or(str::is_empty) {
        return Err(Error::new(Error::INTERNAL, "Service ID is required."));
    }
    // The scope names an interface of this machine, so hosts cannot use it.
    let address = place(&of.address)?.unscoped().ok_or_else(invalid)?;
    let nqn = Some(of.subnqn).filter(|nqn| !nqn.is_empty());
    match method {
        "nvmf_discovery_add_referral" => {
            edit(control, Kind::Grows, move |draft| {
                Ok(draft.add_referral(address, nqn.as_deref()))
            })
            .await
        }
        "nvmf_discovery_remove_referral" => {
            control
                .change(Kind::Shrinks, move |stage| {
                    let removed = stage.draft.remove_referral(address, nqn.as_deref());
                    removed
                        .map_err(|_| Error::new(Error::INTERNAL, "Unable to remove a referral."))?;
                    Ok(json!(true))
                })
                .await
        }
        _ => Err(Error::no_method()),
    }
}

pub(super) fn shown(referral: &Referral) -> Value {
    let is_discovery = referral.nqn == Nqn::discovery();
    json!({
        "address": views::trid(referral.address.into()),
        "secure_channel": false,
        "subnqn": if is_discovery { "" } else { referral.nqn.raw() },
    })
}

fn all(referrals: &[Referral]) -> Value {
    referrals.iter().map(shown).collect()
}
