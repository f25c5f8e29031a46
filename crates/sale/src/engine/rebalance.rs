//! Running rebalances, and the requests that wait for them.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::ledger::{DepositReply, LendReply, ShardProbe};
use crate::rebalance::{End, Rebalance, RebalanceCall, RebalanceEvent, RebalanceStep};
use crate::site::{fence_of, first_shard, index_of};
use weir_base::id::SaleId;
use weir_engine::StreamId;

use crate::engine::job::{ClaimJob, Job, MoveJob, ProbeJob, Step};

/// All rebalances of one worker: one per shard.
#[derive(Debug, Default)]
pub(crate) struct Rebalances {
    running: BTreeMap<(SaleId, u32), RunningRebalance>,
}

#[derive(Debug)]
struct RunningRebalance {
    rebalance: Rebalance,
    /// The probed shards, while probes are pending.
    observed: Vec<Option<ShardProbe>>,
    /// The number of pending probes.
    probes: usize,
    /// The waiting streams and their claims.
    waiting: BTreeMap<StreamId, ClaimJob>,
}

/// The result of a step.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The next jobs.
    pub(crate) jobs: Vec<Job>,
    /// The probes of all shards of the sale, if complete.
    pub(crate) probe: Option<Vec<ShardProbe>>,
    /// How the rebalance ended, and the requests that waited for it.
    pub(crate) ended: Option<(End, Vec<(StreamId, ClaimJob)>)>,
}

impl Rebalances {
    /// The number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.running.values().map(|one| one.waiting.len()).sum()
    }

    /// Makes `stream` wait for units on its shard. Returns the first jobs of a new rebalance.
    pub(crate) fn wait(&mut self, stream: StreamId, job: ClaimJob) -> Vec<Job> {
        let key = (job.sale.clone(), job.shard);
        if let Some(running) = self.running.get_mut(&key) {
            running.waiting.insert(stream, job);
            return vec![];
        }
        let (rebalance, ask) = Rebalance::start(job.shard, job.quantity);
        let mut running = RunningRebalance {
            rebalance,
            observed: vec![None; job.shards as usize],
            probes: 0,
            waiting: BTreeMap::from([(stream, job)]),
        };
        let jobs = running.ask(&key.0, ask);
        self.running.insert(key, running);
        jobs
    }

    /// Removes a stream that has ended.
    pub(crate) fn forget(&mut self, stream: StreamId) {
        for running in self.running.values_mut() {
            running.waiting.remove(&stream);
        }
    }

    /// Handles a probe; `None` if it failed.
    pub(crate) fn probed(&mut self, job: &ProbeJob, probe: Option<ShardProbe>) -> Progress {
        let key = (job.sale.clone(), job.to_shard);
        let Some(running) = self.running.get_mut(&key) else {
            return Progress::default();
        };
        if let Some(observed) = running.observed.get_mut(index_of(job.shard) as usize) {
            *observed = probe;
        }
        running.probes = running.probes.saturating_sub(1);
        if running.probes > 0 {
            return Progress::default();
        }
        let all: Option<Vec<ShardProbe>> = running.observed.iter().copied().collect();
        let event = all
            .clone()
            .map_or(RebalanceEvent::Nothing, RebalanceEvent::Probe);
        Progress {
            probe: all,
            ..self.on_event(key, &event)
        }
    }

    /// Handles the reply to a transfer out.
    pub(crate) fn complete_lend(&mut self, job: &MoveJob, reply: Option<LendReply>) -> Progress {
        let event = match (job.step, reply) {
            (Step::Lend { from_shard, .. }, Some(reply)) => RebalanceEvent::Lend(from_shard, reply),
            _ => RebalanceEvent::Nothing,
        };
        self.on_event((job.sale.clone(), job.to_shard), &event)
    }

    /// Handles the reply to a transfer in.
    pub(crate) fn complete_deposit(
        &mut self,
        job: &MoveJob,
        reply: Option<DepositReply>,
    ) -> Progress {
        let event = match (job.step, reply) {
            (
                Step::Deposit {
                    from_shard,
                    transfer,
                },
                Some(reply),
            ) => RebalanceEvent::Deposit(from_shard, transfer, reply),
            _ => RebalanceEvent::Nothing,
        };
        self.on_event((job.sale.clone(), job.to_shard), &event)
    }

    fn on_event(&mut self, key: (SaleId, u32), event: &RebalanceEvent) -> Progress {
        let Some(running) = self.running.get_mut(&key) else {
            return Progress::default();
        };
        match running.rebalance.on_event(event) {
            RebalanceStep::Call(ask) => Progress {
                jobs: running.ask(&key.0, ask),
                ..Progress::default()
            },
            RebalanceStep::Done(end, last) => {
                let jobs = last.map_or(vec![], |ask| running.ask(&key.0, ask));
                let requested = running.rebalance.requested();
                let mut waiting: Vec<_> =
                    core::mem::take(&mut running.waiting).into_iter().collect();
                for (_, job) in &mut waiting {
                    // The result says nothing about requests for fewer units than the rebalance wanted.
                    job.is_too_many = end == End::TooFew && job.quantity >= requested;
                }
                self.running.remove(&key);
                Progress {
                    jobs,
                    probe: None,
                    ended: Some((end, waiting)),
                }
            }
        }
    }
}

impl RunningRebalance {
    /// The jobs for a call.
    fn ask(&mut self, sale: &SaleId, ask: RebalanceCall) -> Vec<Job> {
        let to_shard = self.rebalance.to_shard();
        let step = match ask {
            RebalanceCall::Probe => return self.probe_all(sale),
            RebalanceCall::Lend { from_shard, units } => Step::Lend { from_shard, units },
            RebalanceCall::Deposit {
                from_shard,
                transfer,
            } => Step::Deposit {
                from_shard,
                transfer,
            },
            RebalanceCall::SettleTransfer { from_shard, id } => Step::Settle { from_shard, id },
        };
        let sale = sale.clone();
        vec![Job::Move(MoveJob {
            sale,
            to_shard,
            step,
        })]
    }

    fn probe_all(&mut self, sale: &SaleId) -> Vec<Job> {
        self.observed.fill(None);
        self.probes = self.observed.len();
        let probe = |shard| {
            Job::Probe(ProbeJob {
                sale: sale.clone(),
                shard,
                to_shard: self.rebalance.to_shard(),
            })
        };
        let first = first_shard(fence_of(self.rebalance.to_shard()));
        (first..).take(self.observed.len()).map(probe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::job::Buyer;
    use crate::ledger::{Checks, Transfer};
    use weir_base::id::UserId;

    fn claim(shard: u32) -> ClaimJob {
        ClaimJob {
            sale: SaleId::new("s").unwrap(),
            shard,
            user: UserId::new("u").unwrap(),
            user_cap: 1,
            quantity: 1,
            is_too_many: false,
            shards: 2,
            rebalances: 0,
            checks: Checks::default(),
            path: None,
            attempt: None,
            refusal: None,
            pass: None,
            buyer: Buyer::default(),
        }
    }

    fn probes(jobs: &[Job]) -> Vec<ProbeJob> {
        let probe = |job: &Job| match job {
            Job::Probe(job) => job.clone(),
            other => panic!("{other:?}"),
        };
        jobs.iter().map(probe).collect()
    }

    fn probe(stock: i64) -> Option<ShardProbe> {
        Some(ShardProbe {
            stock: Some(stock),
            epoch: 1,
            open_claims: 0,
            moving: 0,
        })
    }

    fn streams(progress: Progress) -> (End, Vec<StreamId>) {
        let (end, waiting) = progress.ended.unwrap();
        (end, waiting.into_iter().map(|(stream, _)| stream).collect())
    }

    #[test]
    fn buyers_at_empty_shard_share_one_rebalance() {
        let mut rebalances = Rebalances::default();
        assert_eq!(rebalances.waiting(), 0);
        let requested = probes(&rebalances.wait(1, claim(0)));
        let shards: Vec<_> = requested
            .iter()
            .map(|job| (job.shard, job.to_shard))
            .collect();
        assert_eq!(shards, [(0, 0), (1, 0)]);
        assert!(rebalances.wait(2, claim(0)).is_empty(), "it is under way");
        assert_eq!(rebalances.wait(3, claim(1)).len(), 2, "another shard's");
        assert_eq!(rebalances.waiting(), 3);
        rebalances.forget(1);
        assert_eq!(rebalances.waiting(), 2);

        let first = rebalances.probed(&requested[0], probe(0));
        assert!(first.ended.is_none() && first.probe.is_none() && first.jobs.is_empty());
        let second = rebalances.probed(&requested[1], probe(0));
        assert_eq!(second.probe.as_ref().map(Vec::len), Some(2));
        assert_eq!(streams(second), (End::SoldOut, vec![2]));
        assert_eq!(rebalances.waiting(), 1);
        let late = rebalances.probed(&requested[1], probe(9));
        assert!(late.ended.is_none() && late.probe.is_none(), "it has ended");
    }

    #[test]
    fn failed_probe_ends_a_rebalance_with_unknown_outcome() {
        let mut rebalances = Rebalances::default();
        let requested = probes(&rebalances.wait(1, claim(0)));
        rebalances.probed(&requested[0], None);
        let progress = rebalances.probed(&requested[1], probe(3));
        assert_eq!(progress.probe, None);
        assert_eq!(streams(progress), (End::Unknown, vec![1]));
    }

    #[test]
    fn units_are_transferred_out_in_and_finished_at_source() {
        let mut rebalances = Rebalances::default();
        let requested = probes(&rebalances.wait(1, claim(0)));
        rebalances.probed(&requested[0], probe(0));
        let progress = rebalances.probed(&requested[1], probe(3));
        let step = |progress: &Progress| match &progress.jobs[..] {
            [Job::Move(job)] => job.clone(),
            other => panic!("{other:?}"),
        };
        let lend = step(&progress);
        assert_eq!(
            (lend.to_shard, lend.step),
            (
                0,
                Step::Lend {
                    from_shard: 1,
                    units: 1
                }
            )
        );
        let transfer = Transfer { id: 5, units: 2 };
        let progress = rebalances.complete_lend(&lend, Some(LendReply::Lent(transfer)));
        let deposit = step(&progress);
        let from_shard = 1;
        let expected = Step::Deposit {
            from_shard,
            transfer,
        };
        assert_eq!(deposit.step, expected);
        let progress = rebalances.complete_deposit(&deposit, Some(DepositReply::Deposited));
        let settle = step(&progress);
        assert_eq!(settle.step, Step::Settle { from_shard, id: 5 });
        assert_eq!(streams(progress), (End::Filled, vec![1]));
    }

    #[test]
    fn transfer_step_without_a_reply_ends_the_rebalance() {
        let lending = || {
            let mut rebalances = Rebalances::default();
            let requested = probes(&rebalances.wait(1, claim(0)));
            rebalances.probed(&requested[0], probe(0));
            let progress = rebalances.probed(&requested[1], probe(3));
            let lend = match &progress.jobs[..] {
                [Job::Move(job)] => job.clone(),
                other => panic!("{other:?}"),
            };
            (rebalances, lend)
        };
        let (mut rebalances, lend) = lending();
        assert_eq!(
            streams(rebalances.complete_lend(&lend, None)).0,
            End::Unknown
        );
        let (mut rebalances, lend) = lending();
        assert_eq!(
            streams(rebalances.complete_deposit(&lend, None)).0,
            End::Unknown
        );
    }
}
