use cairn_config::{Nqn, Referral};
use cairn_control::Error;
use serde_json::{Value, json};

use super::super::changes::Kind;
use super::super::methods::Methods;
use super::super::parameters::read;
use super::listeners::place;
use super::parameters::{ReferralOf, ReferralsOf};
use super::{Answer, Params, invalid, views};

impl Methods {
    pub(super) async fn of_referral(&self, method: &str, params: Params) -> Answer {
        if method == "nvmf_discovery_get_referrals" {
            read::<ReferralsOf>(params)?;
            let snapshot = self.snapshot().await?;
            return Ok(all(&snapshot.config.referrals));
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
        // Interfaces of this machine mean nothing to other hosts.
        let address = place(&of.address)?.unscoped().ok_or_else(invalid)?;
        let nqn = Some(of.subnqn).filter(|nqn| !nqn.is_empty());
        match method {
            "nvmf_discovery_add_referral" => {
                self.change(Kind::Grows, move |stage| {
                    stage.draft.add_referral(address, nqn.as_deref());
                    Ok(json!(true))
                })
                .await
            }
            "nvmf_discovery_remove_referral" => {
                self.change(Kind::Shrinks, move |stage| {
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
