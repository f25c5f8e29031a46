//! Claims: who signs them, and what a shard's reply means for the request that wants one.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::admission::{Conclusion, Rejection, conclude};
use crate::claim::{ClaimId, Ticket};
use crate::ledger::{ClaimReply, OpenClaim};
use crate::sale::{Catalogue, ClaimKey};
use crate::verdict::Verdict;
use weir_base::key::KeyRing;
use weir_engine::Level;
use weir_engine::redis::{Definite, Failure};

use crate::engine::job::{ClaimJob, HandBackJob};

/// Signs claims, as long as the origin knows the key.
#[derive(Debug)]
pub(crate) struct ClaimSigner {
    keys: KeyRing,
    /// The key that signs, as the origin lists it.
    key: ClaimKey,
    /// Whether the origin has listed its keys, and this one is not among them.
    is_unknown: bool,
}

impl ClaimSigner {
    pub(crate) fn new(keys: KeyRing) -> Self {
        Self {
            key: ClaimKey::of(keys.signer()),
            keys,
            is_unknown: false,
        }
    }

    /// Refuses everybody while the origin would not know this gateway's claims. Each would tie a unit up until its end, and
    /// the origin would send its buyer away.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        match self.is_unknown {
            true => Err(Verdict::Misconfigured.into()),
            false => Ok(()),
        }
    }

    /// Compares the keys of origin and gateway. Returns a line for the log when that changes, and not with every catalogue.
    pub(crate) fn compare(&mut self, catalogue: &Catalogue) -> Option<(Level, String)> {
        let is_unknown = !catalogue.knows(&self.key);
        if core::mem::replace(&mut self.is_unknown, is_unknown) == is_unknown {
            return None;
        }
        let ClaimKey { id, fingerprint } = &self.key;
        if !is_unknown {
            let text =
                format!("the origin knows the claim key {id} ({fingerprint}): buying goes on");
            return Some((Level::Info, text));
        }
        let known = catalogue.claim_keys.iter();
        let known: Vec<_> = known
            .map(|key| format!("{} ({})", key.id, key.fingerprint))
            .collect();
        let text = format!(
            "nobody can buy here: claims are signed with the key {id} (fingerprint {fingerprint}), and the origin knows {}; \
             give gateway and origin the same WEIR_CLAIM_SECRET and key id, and start the one that was changed again",
            known.join(", ")
        );
        Some((Level::Error, text))
    }

    /// The two headers by which the origin accepts `claim`: the ticket, and its signature.
    pub(crate) fn ticket(&self, job: &ClaimJob, claim: OpenClaim) -> [String; 2] {
        let ticket = Ticket {
            sale: job.sale.clone(),
            shard: job.shard,
            generation: claim.generation,
            quantity: claim.quantity,
            deadline_ms: claim.deadline_ms,
            user: job.user.clone(),
        }
        .encode();
        let signature = self.keys.sign(&ticket);
        [ticket, signature]
    }
}

/// What comes next for a request whose shard has replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClaimStep {
    /// It goes on to the origin with this claim.
    Pass(Verdict, OpenClaim),
    /// It waits for units to move to its shard.
    Rebalance,
    /// It is answered, with the order that the user has already.
    Reject(Verdict, Option<ClaimId>),
}

impl ClaimStep {
    /// What `reply` leads to. `if_empty` is the answer if the sale has no unit left.
    pub(crate) fn after(job: &ClaimJob, reply: ClaimReply, if_empty: Option<Verdict>) -> Self {
        let too_few = job.is_too_many.then_some(Verdict::TooFew);
        match (
            conclude(reply, if_empty.or(too_few), job.rebalances),
            job.refusal,
        ) {
            (Conclusion::Pass { verdict, held }, _) => Self::Pass(verdict, held),
            (_, Some(refusal)) => Self::Reject(refusal, None),
            (Conclusion::Rebalance, None) => Self::Rebalance,
            (Conclusion::Reject { verdict, ordered }, None) => {
                let order = ordered.map(|n| ClaimId::new(&job.sale, job.shard, n));
                Self::Reject(verdict, order)
            }
        }
    }
}

/// The answer to a request without a reply of Redis.
pub(crate) fn without_reply(failure: &Failure) -> Verdict {
    match failure {
        Failure::Definite(Definite::Expired) => Verdict::Overloaded,
        _ => Verdict::Unavailable,
    }
}

/// The delivery of `claim` that was granted for `job`.
pub(crate) fn delivery_of(job: ClaimJob, claim: OpenClaim) -> HandBackJob {
    HandBackJob {
        sale: job.sale,
        shard: job.shard,
        user: job.user,
        generation: claim.generation,
        delivery: claim.delivery,
    }
}
