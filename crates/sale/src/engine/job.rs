//! The pump's jobs, and their grouping into script calls.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::idempotency::AttemptTag;
use crate::ledger::{Checks, ClaimTerms, ReleaseKind, Transfer};
use crate::redis::challenge_spend::SolutionSpend;
use crate::redis::keys::ShardKeys;
use crate::redis::{challenge_spend, claim, deposit, lend, probe, release, settle_transfer};
use crate::verdict::Verdict;
use weir_base::breaker::Pass;
use weir_base::id::{SaleId, UserId};
use weir_engine::page::Reader;
use weir_engine::pump::{Pending, Plan, PlannedBatch};
use weir_scripts::Call;

use crate::engine::config::Topology;
use crate::engine::report::SaleMark;

/// A job for Redis.
#[derive(Clone, Debug)]
pub enum Job {
    /// A claim for a waiting request.
    Claim(ClaimJob),
    /// Releases a claim's delivery that never left the gateway, or that the origin refused.
    HandBack(HandBackJob),
    /// A probe of one shard, for the rebalance of another.
    Probe(ProbeJob),
    /// A step of a transfer to a shard.
    Move(MoveJob),
    /// Finds the order token of a solved challenge.
    Spend(SpendJob),
}

/// A solved challenge to exchange for a token.
#[derive(Clone, Debug)]
pub struct SpendJob {
    /// The shopper.
    pub shopper: Shopper,
    /// The solution.
    pub spend: SolutionSpend,
    /// The bits that the sale requires.
    pub bits: u8,
    /// The breaker's pass, until Redis has answered.
    pub pass: Option<Pass>,
}

/// A shopper who waits for an order token.
#[derive(Clone, Debug)]
pub struct Shopper {
    /// The sale.
    pub sale: SaleId,
    /// The user.
    pub user: UserId,
    /// The reader of a refusal.
    pub reader: Reader,
}

/// A user's claim.
#[derive(Clone, Debug)]
pub struct ClaimJob {
    /// The sale.
    pub sale: SaleId,
    /// The user's home shard.
    pub shard: u32,
    /// The user.
    pub user: UserId,
    /// The sale's cap.
    pub user_cap: u32,
    /// The requested number of units: 1 to the sale's cap.
    pub quantity: u32,
    /// Whether a rebalance has found fewer units on all shards together.
    pub is_too_many: bool,
    /// The sale's number of shards.
    pub shards: u32,
    /// The number of rebalances that the request has waited for.
    pub rebalances: u8,
    /// Additional checks in the shard.
    pub checks: Checks,
    /// Its path without the query, if it has one: the query is not forwarded to the origin.
    pub path: Option<String>,
    /// The attempt's idempotency key, if any.
    pub attempt: Option<AttemptTag>,
    /// The verdict for a request that gets no claim, if already known: the sale has ended, and only an attempt with an
    /// earlier grant continues.
    pub refusal: Option<Verdict>,
    /// The breaker's pass, until Redis has answered.
    pub pass: Option<Pass>,
    /// The buyer.
    pub buyer: Buyer,
}

/// The buyer's data for decisions and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buyer {
    /// Whether the request continues in any case: its sale is in dry-run mode.
    pub is_shadow: bool,
    /// The sale in reports.
    pub sale: SaleMark,
    /// Whether the client has sent headers that only gateways may send.
    pub poses_as_gateway: bool,
    /// The reader of a refusal.
    pub reader: Reader,
}

/// A probe of a shard for a rebalance.
#[derive(Clone, Debug)]
pub struct ProbeJob {
    /// The sale.
    pub sale: SaleId,
    /// The shard to probe.
    pub shard: u32,
    /// The shard to rebalance.
    pub to_shard: u32,
}

/// A step of a rebalance.
#[derive(Clone, Debug)]
pub struct MoveJob {
    /// The sale.
    pub sale: SaleId,
    /// The shard to rebalance.
    pub to_shard: u32,
    /// The step.
    pub step: Step,
}

/// A step of a transfer between shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Transfers units out.
    Lend {
        /// The source shard.
        from_shard: u32,
        /// The minimum number of units, if available.
        units: u64,
    },
    /// Transfers units in.
    Deposit {
        /// The source shard.
        from_shard: u32,
        /// The transfer.
        transfer: Transfer,
    },
    /// Finishes the transfer at the source shard.
    Settle {
        /// The source shard.
        from_shard: u32,
        /// The transfer's id.
        id: u64,
    },
}

/// A claim's delivery to release.
#[derive(Clone, Debug)]
pub struct HandBackJob {
    /// The sale.
    pub sale: SaleId,
    /// The user's home shard.
    pub shard: u32,
    /// The user.
    pub user: UserId,
    /// The claim's generation.
    pub generation: u64,
    /// The delivery's number.
    pub delivery: u32,
}

/// Groups claims by shard, and shards into calls that the topology allows.
#[derive(Clone, Debug)]
pub struct ClaimPlan {
    /// The prefix of all keys.
    pub key_prefix: String,
    /// The topology of Redis.
    pub topology: Topology,
    /// The lifetime of a claim in milliseconds.
    pub claim_ttl_ms: u64,
}

/// The requests of one shard.
type Shards = BTreeMap<(SaleId, u32), Vec<Pending<Job>>>;

impl Plan for ClaimPlan {
    type Job = Job;

    fn plan(&self, requests: Vec<Pending<Job>>, _now_ms: u64) -> Vec<PlannedBatch<Job>> {
        let (mut claims, mut hand_backs) = (BTreeMap::<u32, Shards>::new(), Shards::new());
        let (mut probes, mut moves, mut spends) = (Vec::new(), Vec::new(), Vec::new());
        for request in requests {
            let (shards, sale, shard) = match &request.job {
                Job::Claim(job) => {
                    let of_quantity = claims.entry(job.quantity).or_default();
                    (of_quantity, &job.sale, job.shard)
                }
                Job::HandBack(job) => (&mut hand_backs, &job.sale, job.shard),
                Job::Probe(_) => {
                    probes.push(request);
                    continue;
                }
                Job::Spend(_) => {
                    spends.push(request);
                    continue;
                }
                Job::Move(job) => {
                    let call = self.move_call(job);
                    let requests = vec![request];
                    moves.push(PlannedBatch { call, requests });
                    continue;
                }
            };
            shards
                .entry((sale.clone(), shard))
                .or_default()
                .push(request);
        }
        // Released units may be claimed in the same batch.
        let mut calls: Vec<_> = hand_backs
            .into_iter()
            .map(|shard| self.hand_back(shard))
            .collect();
        calls.extend(moves);
        // The script accepts each shard once, with one set of terms.
        for (quantity, shards) in claims {
            calls.extend(self.claim_calls(shards, quantity));
        }
        calls.extend(self.probe_calls(probes));
        calls.extend(self.spend_calls(spends));
        calls
    }
}

impl ClaimPlan {
    /// The keys of one shard.
    pub fn keys(&self, sale: &SaleId, shard: u32) -> ShardKeys {
        ShardKeys::new(&self.key_prefix, sale, shard)
    }

    fn claim_calls(&self, shards: Shards, quantity: u32) -> Vec<PlannedBatch<Job>> {
        match self.topology {
            Topology::Single => vec![self.claim(shards, quantity)],
            Topology::Cluster => {
                let each = |shard| self.claim(Shards::from([shard]), quantity);
                shards.into_iter().map(each).collect()
            }
        }
    }

    fn move_call(&self, job: &MoveJob) -> Call {
        let keys = |shard| self.keys(&job.sale, shard);
        match job.step {
            // The source shard decides whether to transfer more.
            Step::Lend { from_shard, units } => lend::call(&keys(from_shard), job.to_shard, units),
            Step::Deposit {
                from_shard,
                transfer,
            } => deposit::call(&keys(job.to_shard), from_shard, transfer),
            Step::Settle { from_shard, id } => {
                settle_transfer::call(&keys(from_shard), job.to_shard, id)
            }
        }
    }

    fn spend_calls(&self, requests: Vec<Pending<Job>>) -> Vec<PlannedBatch<Job>> {
        match self.topology {
            _ if requests.is_empty() => vec![],
            Topology::Single => vec![self.spend(requests)],
            Topology::Cluster => requests
                .into_iter()
                .map(|pending| self.spend(vec![pending]))
                .collect(),
        }
    }

    /// One call for all solutions.
    fn spend(&self, requests: Vec<Pending<Job>>) -> PlannedBatch<Job> {
        let spends: Vec<SolutionSpend> = requests
            .iter()
            .filter_map(|request| match &request.job {
                Job::Spend(job) => Some(job.spend),
                _ => None,
            })
            .collect();
        let call = challenge_spend::call(&self.key_prefix, &spends);
        PlannedBatch { call, requests }
    }

    fn probe_calls(&self, requests: Vec<Pending<Job>>) -> Vec<PlannedBatch<Job>> {
        match self.topology {
            _ if requests.is_empty() => vec![],
            Topology::Single => vec![self.probe(requests)],
            Topology::Cluster => requests
                .into_iter()
                .map(|pending| self.probe(vec![pending]))
                .collect(),
        }
    }

    /// One call for all probes.
    fn probe(&self, requests: Vec<Pending<Job>>) -> PlannedBatch<Job> {
        let keys: Vec<ShardKeys> = requests
            .iter()
            .filter_map(|request| match &request.job {
                Job::Probe(job) => Some(self.keys(&job.sale, job.shard)),
                _ => None,
            })
            .collect();
        let call = probe::call(&keys);
        PlannedBatch { call, requests }
    }

    /// One call for all `shards`, whose requests want `quantity` units each.
    fn claim(&self, shards: Shards, quantity: u32) -> PlannedBatch<Job> {
        let groups: Vec<_> = shards
            .iter()
            .map(|((sale, shard), requests)| claim::Group {
                keys: self.keys(sale, *shard),
                terms: self.terms(requests, quantity),
                users: claim_jobs(requests).map(|job| &job.user).collect(),
                attempts: attempts(requests),
            })
            .collect();
        let call = claim::call(&groups);
        // In bulk: copying requests one by one costs a twelfth of a batch's fuel.
        let mut requests = Vec::with_capacity(shards.values().map(Vec::len).sum());
        for mut of_shard in shards.into_values() {
            requests.append(&mut of_shard);
        }
        PlannedBatch { call, requests }
    }

    /// All requests of one shard belong to one sale, so one request determines the terms: the last, with the latest
    /// catalogue.
    fn terms(&self, requests: &[Pending<Job>], quantity: u32) -> ClaimTerms {
        let latest = claim_jobs(requests).last();
        ClaimTerms {
            ttl_ms: self.claim_ttl_ms,
            user_cap: latest.map_or(0, |job| job.user_cap),
            quantity,
            checks: latest.map_or_else(Checks::default, |job| job.checks),
        }
    }

    fn hand_back(
        &self,
        ((sale, shard), requests): ((SaleId, u32), Vec<Pending<Job>>),
    ) -> PlannedBatch<Job> {
        let claims: Vec<(&UserId, u64, ReleaseKind)> = requests
            .iter()
            .filter_map(|request| match &request.job {
                Job::HandBack(job) => {
                    let kind = ReleaseKind::Delivery(job.delivery);
                    Some((&job.user, job.generation, kind))
                }
                _ => None,
            })
            .collect();
        let call = release::call(&self.keys(&sale, shard), &claims);
        PlannedBatch { call, requests }
    }
}

/// The idempotency keys of the requests; empty, without an allocation, if no request has one.
fn attempts(requests: &[Pending<Job>]) -> Vec<Option<AttemptTag>> {
    match claim_jobs(requests).any(|job| job.attempt.is_some()) {
        true => claim_jobs(requests).map(|job| job.attempt).collect(),
        false => Vec::new(),
    }
}

fn claim_jobs(requests: &[Pending<Job>]) -> impl Iterator<Item = &ClaimJob> {
    requests.iter().filter_map(|request| match &request.job {
        Job::Claim(job) => Some(job),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim_of(sale: &str, shard: u32, user: &str) -> Pending<Job> {
        let job = Job::Claim(ClaimJob {
            sale: SaleId::new(sale).unwrap(),
            shard,
            user: UserId::new(user).unwrap(),
            user_cap: 2,
            quantity: 1,
            is_too_many: false,
            shards: 4,
            rebalances: 0,
            checks: Checks::default(),
            path: None,
            attempt: None,
            refusal: None,
            pass: None,
            buyer: Buyer::default(),
        });
        Pending {
            stream: Some(1),
            deadline_ms: 9,
            job,
        }
    }

    fn hand_back_of(sale: &str, shard: u32, user: &str) -> Pending<Job> {
        let job = Job::HandBack(HandBackJob {
            sale: SaleId::new(sale).unwrap(),
            shard,
            user: UserId::new(user).unwrap(),
            generation: 7,
            delivery: 2,
        });
        Pending {
            stream: None,
            deadline_ms: 9,
            job,
        }
    }

    fn plan(
        topology: Topology,
        requests: Vec<Pending<Job>>,
    ) -> Vec<(&'static str, String, String)> {
        let plan = ClaimPlan {
            key_prefix: "t".into(),
            topology,
            claim_ttl_ms: 50,
        };
        // Buckets are single bytes, each shown as a character.
        let text = |parts: Vec<&[u8]>| parts.join(&b' ').into_iter().map(char::from).collect();
        plan.plan(requests, 1_000)
            .iter()
            .map(|planned| {
                let Call { script, keys, args } = &planned.call;
                let keys = keys.iter().filter(|key| key.ends_with(b":claims"));
                (
                    script.name,
                    text(keys.collect()),
                    text(args.iter().collect()),
                )
            })
            .collect()
    }

    fn requests() -> Vec<Pending<Job>> {
        vec![
            claim_of("b", 0, "u1"),
            claim_of("a", 3, "u2"),
            hand_back_of("a", 3, "u3"),
            claim_of("b", 0, "u4"),
        ]
    }

    #[test]
    fn single_redis_server_decides_all_shards_in_one_call() {
        let calls = plan(Topology::Single, requests());
        assert_eq!(
            calls,
            [
                ("release", "t:{a:3}:claims".into(), "u3 102 7 2".into()),
                (
                    "claim",
                    "t:{a:3}:claims t:{b:0}:claims".into(),
                    "2 50 2 1 - \u{5b} u2 50 2 1 - \u{b7}\u{d0} u1 u4".into()
                ),
            ]
        );
    }

    #[test]
    fn multi_unit_requests_of_a_shard_get_their_own_call() {
        let mut requests = vec![claim_of("b", 0, "u1"), claim_of("b", 0, "u4")];
        if let Job::Claim(job) = &mut requests[0].job {
            job.quantity = 2;
        }
        let calls = plan(Topology::Single, requests);
        let arguments: Vec<_> = calls.iter().map(|(_, _, args)| args.as_str()).collect();
        assert_eq!(arguments, ["1 50 2 1 - \u{d0} u4", "1 50 2 2 - \u{b7} u1"]);
    }

    #[test]
    fn attempts_of_a_shard_are_sent_with_users_if_any_has_a_key() {
        let mut requests = vec![claim_of("b", 0, "u1"), claim_of("b", 0, "u4")];
        if let Job::Claim(job) = &mut requests[1].job {
            job.attempt = AttemptTag::from_hex("2a");
        }
        let calls = plan(Topology::Single, requests);
        assert_eq!(
            calls[0].2,
            "1 50 2 1 k \u{b7}\u{d0} u1 u4 - 000000000000002a"
        );
    }

    #[test]
    fn calls_on_a_redis_cluster_stay_within_one_slot() {
        let calls = plan(Topology::Cluster, requests());
        let keys: Vec<_> = calls
            .iter()
            .map(|(script, keys, _)| (*script, keys.as_str()))
            .collect();
        assert_eq!(
            keys,
            [
                ("release", "t:{a:3}:claims"),
                ("claim", "t:{a:3}:claims"),
                ("claim", "t:{b:0}:claims"),
            ]
        );
    }

    #[test]
    fn replies_are_matched_to_tickets_in_call_order() {
        let plan = ClaimPlan {
            key_prefix: "t".into(),
            topology: Topology::Single,
            claim_ttl_ms: 50,
        };
        let planned = plan.plan(requests(), 0).pop().unwrap();
        let users: Vec<_> = claim_jobs(&planned.requests)
            .map(|job| job.user.as_str())
            .collect();
        assert_eq!(users, ["u2", "u1", "u4"]);
    }

    #[test]
    fn batch_with_only_releases_sends_no_empty_claim_call() {
        let calls = plan(Topology::Single, vec![hand_back_of("a", 0, "u")]);
        assert_eq!(calls.len(), 1);
    }
}
