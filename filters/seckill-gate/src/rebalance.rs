//! Rebalances under way, and the requests that wait for them.

use std::collections::BTreeMap;

use weir_base::id::SaleId;
use weir_sale::ledger::{DepositReply, LendReply, ShardProbe};
use weir_sale::rebalance::{End, Next, Rebalance, RebalanceCall, RebalanceEvent};

use crate::job::{ClaimJob, Job, MoveJob, ProbeJob, Step};

/// All rebalances of one VM: one a shard.
#[derive(Debug, Default)]
pub(crate) struct Rebalances {
    running: BTreeMap<(SaleId, u32), Running>,
}

#[derive(Debug)]
struct Running {
    rebalance: Rebalance,
    /// What is known of each shard, while looks are under way.
    seen: Vec<Option<ShardProbe>>,
    /// Looks that have not come back.
    looks: usize,
    /// The streams that wait, and what they want.
    waiting: BTreeMap<u32, ClaimJob>,
}

/// What a step has brought about.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// What is to be asked next.
    pub(crate) jobs: Vec<Job>,
    /// What is known of all shards of the sale now.
    pub(crate) probe: Option<Vec<ShardProbe>>,
    /// How it has ended, and who has waited for it.
    pub(crate) ended: Option<(End, Vec<(u32, ClaimJob)>)>,
}

impl Rebalances {
    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.running.values().map(|one| one.waiting.len()).sum()
    }

    /// Lets the stream `owner` wait for units on its shard. Returns what is to be asked, if nobody
    /// has waited yet.
    pub(crate) fn wait(&mut self, owner: u32, job: ClaimJob) -> Vec<Job> {
        let key = (job.sale.clone(), job.shard);
        if let Some(running) = self.running.get_mut(&key) {
            running.waiting.insert(owner, job);
            return vec![];
        }
        let (rebalance, ask) = Rebalance::start(job.shard);
        let mut running = Running {
            rebalance,
            seen: vec![None; job.shards as usize],
            looks: 0,
            waiting: BTreeMap::from([(owner, job)]),
        };
        let jobs = running.ask(&key.0, ask);
        self.running.insert(key, running);
        jobs
    }

    /// The stream `owner` has gone.
    pub(crate) fn forget(&mut self, owner: u32) {
        for running in self.running.values_mut() {
            running.waiting.remove(&owner);
        }
    }

    /// A look has come back; `None` without an answer.
    pub(crate) fn looked(&mut self, job: &ProbeJob, probe: Option<ShardProbe>) -> Progress {
        let key = (job.sale.clone(), job.to_shard);
        let Some(running) = self.running.get_mut(&key) else {
            return Progress::default();
        };
        if let Some(seen) = running.seen.get_mut(job.shard as usize) {
            *seen = probe;
        }
        running.looks = running.looks.saturating_sub(1);
        if running.looks > 0 {
            return Progress::default();
        }
        let all: Option<Vec<ShardProbe>> = running.seen.iter().copied().collect();
        let event = all
            .clone()
            .map_or(RebalanceEvent::Nothing, RebalanceEvent::Probe);
        Progress {
            probe: all,
            ..self.on_event(key, &event)
        }
    }

    /// A lend has come back.
    pub(crate) fn lent(&mut self, job: &MoveJob, reply: Option<LendReply>) -> Progress {
        let event = match (job.step, reply) {
            (Step::Lend { from_shard }, Some(reply)) => RebalanceEvent::Lend(from_shard, reply),
            _ => RebalanceEvent::Nothing,
        };
        self.on_event((job.sale.clone(), job.to_shard), &event)
    }

    /// A deposit has come back.
    pub(crate) fn deposited(&mut self, job: &MoveJob, reply: Option<DepositReply>) -> Progress {
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
            Next::Call(ask) => Progress {
                jobs: running.ask(&key.0, ask),
                ..Progress::default()
            },
            Next::Done(end, last) => {
                let jobs = last.map_or(vec![], |ask| running.ask(&key.0, ask));
                let waiting = std::mem::take(&mut running.waiting).into_iter().collect();
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

impl Running {
    /// The jobs that ask this.
    fn ask(&mut self, sale: &SaleId, ask: RebalanceCall) -> Vec<Job> {
        let to_shard = self.rebalance.to_shard();
        let step = match ask {
            RebalanceCall::Probe => return self.look_around(sale),
            RebalanceCall::Lend { from_shard } => Step::Lend { from_shard },
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

    fn look_around(&mut self, sale: &SaleId) -> Vec<Job> {
        self.seen.fill(None);
        self.looks = self.seen.len();
        let look = |shard| {
            Job::Probe(ProbeJob {
                sale: sale.clone(),
                shard,
                to_shard: self.rebalance.to_shard(),
            })
        };
        (0..).take(self.seen.len()).map(look).collect()
    }
}
