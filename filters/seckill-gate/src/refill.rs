//! Refills under way, and the requests that wait for them.

use std::collections::BTreeMap;

use weir_base::id::SaleId;
use weir_sale::ledger::{DepositReply, LendReply, Survey};
use weir_sale::refill::{Ask, End, Heard, Next, Refill};

use crate::job::{ClaimJob, Job, LookJob, MoveJob, Step};

/// All refills of one VM: one a shard.
#[derive(Debug, Default)]
pub(crate) struct Refills {
    running: BTreeMap<(SaleId, u32), Running>,
}

#[derive(Debug)]
struct Running {
    refill: Refill,
    /// What is known of each shard, while looks are under way.
    seen: Vec<Option<Survey>>,
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
    pub(crate) survey: Option<Vec<Survey>>,
    /// How it has ended, and who has waited for it.
    pub(crate) ended: Option<(End, Vec<(u32, ClaimJob)>)>,
}

impl Refills {
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
        let (refill, ask) = Refill::start(job.shard);
        let mut running = Running {
            refill,
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
    pub(crate) fn looked(&mut self, job: &LookJob, survey: Option<Survey>) -> Progress {
        let key = (job.sale.clone(), job.to_shard);
        let Some(running) = self.running.get_mut(&key) else {
            return Progress::default();
        };
        if let Some(seen) = running.seen.get_mut(job.shard as usize) {
            *seen = survey;
        }
        running.looks = running.looks.saturating_sub(1);
        if running.looks > 0 {
            return Progress::default();
        }
        let all: Option<Vec<Survey>> = running.seen.iter().copied().collect();
        let heard = all.clone().map_or(Heard::Nothing, Heard::Survey);
        Progress {
            survey: all,
            ..self.hear(key, &heard)
        }
    }

    /// A lend has come back.
    pub(crate) fn lent(&mut self, job: &MoveJob, reply: Option<LendReply>) -> Progress {
        let heard = match (job.step, reply) {
            (Step::Lend { from_shard }, Some(reply)) => Heard::Lend(from_shard, reply),
            _ => Heard::Nothing,
        };
        self.hear((job.sale.clone(), job.to_shard), &heard)
    }

    /// A deposit has come back.
    pub(crate) fn deposited(&mut self, job: &MoveJob, reply: Option<DepositReply>) -> Progress {
        let heard = match (job.step, reply) {
            (
                Step::Deposit {
                    from_shard,
                    transfer,
                },
                Some(reply),
            ) => Heard::Deposit(from_shard, transfer, reply),
            _ => Heard::Nothing,
        };
        self.hear((job.sale.clone(), job.to_shard), &heard)
    }

    fn hear(&mut self, key: (SaleId, u32), heard: &Heard) -> Progress {
        let Some(running) = self.running.get_mut(&key) else {
            return Progress::default();
        };
        match running.refill.hear(heard) {
            Next::Ask(ask) => Progress {
                jobs: running.ask(&key.0, ask),
                ..Progress::default()
            },
            Next::Done(end, last) => {
                let jobs = last.map_or(vec![], |ask| running.ask(&key.0, ask));
                let waiting = std::mem::take(&mut running.waiting).into_iter().collect();
                self.running.remove(&key);
                Progress {
                    jobs,
                    survey: None,
                    ended: Some((end, waiting)),
                }
            }
        }
    }
}

impl Running {
    /// The jobs that ask this.
    fn ask(&mut self, sale: &SaleId, ask: Ask) -> Vec<Job> {
        let to_shard = self.refill.to_shard();
        let step = match ask {
            Ask::Survey => return self.look_around(sale),
            Ask::Lend { from_shard } => Step::Lend { from_shard },
            Ask::Deposit {
                from_shard,
                transfer,
            } => Step::Deposit {
                from_shard,
                transfer,
            },
            Ask::SettleTransfer { from_shard, id } => Step::Settle { from_shard, id },
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
            Job::Look(LookJob {
                sale: sale.clone(),
                shard,
                to_shard: self.refill.to_shard(),
            })
        };
        (0..).take(self.seen.len()).map(look).collect()
    }
}
