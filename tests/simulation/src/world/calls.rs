//! Calls to Redis and SQL transactions, with their faults.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::rc::Rc;
use std::task::{Context, Waker};

use weir_base::resp::decode;
use weir_engine::BatchId;
use weir_engine::redis::{DefiniteFailure, Reply, UnknownFailure};

use super::{Caller, RedisCall, ScheduledEvent, Task, World};
use crate::host::WorkerLife;
use crate::mutation::Mutation;
use crate::network::Link;
use crate::origin::io::{Done, OpId, TaskId, TaskOperation, Transaction, Work};
use crate::plan::{self, Cut, RedisFate, SqlFate};

/// An origin's timeout for Redis.
const ORIGIN_CALL_LIMIT_US: u64 = 1_000_000;

/// An origin's timeout for SQL.
const SQL_LIMIT_US: u64 = 1_000_000;

impl World {
    // --- Redis

    pub(super) fn call_redis(
        &mut self,
        place: WorkerLife,
        batch: BatchId,
        bytes: Rc<[u8]>,
        timeout_ms: u64,
        fate: Option<RedisFate>,
    ) {
        let link = Link::Gateway(place.gateway * 8 + place.worker);
        let late_us = self.network.borrow_mut().rng(link).below(10_000);
        let timeout = ScheduledEvent::GatewayHears {
            place,
            batch,
            reply: Err(UnknownFailure::Timeout.into()),
        };
        if self.mutation != Some(Mutation::TimeoutForgotten) {
            self.queue.after(timeout_ms * 1_000 + late_us, timeout);
        }
        self.send_to_redis(Caller::Gateway(place, batch), bytes, fate, link);
    }

    fn send_to_redis(
        &mut self,
        caller: Caller,
        bytes: Rc<[u8]>,
        fate: Option<RedisFate>,
        link: Link,
    ) {
        let delay_us = self.network.borrow_mut().delay_us(link);
        let call = |most, is_heard| RedisCall {
            caller,
            bytes: Rc::clone(&bytes),
            most,
            is_heard,
        };
        let whole = u64::MAX;
        let mut arrives = |after_us, call| {
            self.queue
                .after(after_us, ScheduledEvent::RedisArrives(call))
        };
        match fate {
            None => arrives(delay_us, call(whole, true)),
            Some(RedisFate::LoseRequest | RedisFate::Defer) => {}
            Some(RedisFate::LoseReply) => arrives(delay_us, call(whole, false)),
            Some(RedisFate::Double { after_us }) => {
                // The caller gets one of two replies: the first or the second.
                let is_first_heard = after_us % 2 == 0;
                arrives(delay_us, call(whole, is_first_heard));
                arrives(delay_us + after_us, call(whole, !is_first_heard));
            }
            Some(RedisFate::Late { by_ms }) => {
                arrives(delay_us + by_ms * 1_000, call(whole, true));
            }
            Some(RedisFate::Cut { commands }) => arrives(delay_us, call(commands, true)),
            Some(RedisFate::Refuse) => {
                let definite = DefiniteFailure::Refused("no healthy upstream".into());
                self.reply(caller, delay_us, Err(definite.into()));
            }
            Some(RedisFate::Loading) => {
                let error = b"-LOADING Redis is loading the dataset in memory\r\n";
                let replies = error.repeat(commands_in(&bytes));
                self.reply(caller, delay_us, Ok(replies));
            }
        }
    }

    pub(super) fn redis_arrives(&mut self, call: RedisCall) {
        let now_us = self.now_us();
        let (link, site, cut) = match call.caller {
            Caller::Gateway(place, _) => {
                let cut = Cut::GatewayAndRedis(place.gateway as u32);
                let link = Link::Gateway(place.gateway * 8 + place.worker);
                (link, self.site_of(place.gateway), cut)
            }
            Caller::Task(task, _) => {
                let origin = self.origin_of_task(task);
                let cut = Cut::OriginAndRedis(origin as u32);
                (Link::Origin(task as usize), self.site_of(origin), cut)
            }
        };
        // The caller's timeout ends the call.
        if self.is_cut(cut, false) {
            return;
        }
        let delay_us = self.network.borrow_mut().delay_us(link);
        if !self.redis[site].is_up {
            let definite = DefiniteFailure::Refused("no healthy upstream".into());
            return self.reply(call.caller, delay_us, Err(definite.into()));
        }
        let mut replies = Vec::new();
        self.redis[site].run(&call.bytes, call.most, now_us, &mut replies);
        self.trace.mix_bytes(&call.bytes);
        self.trace.mix_bytes(&replies);
        self.witness
            .after_redis(&mut self.redis[site], site, &self.sql, now_us);
        if self.is_cut(cut, true) {
            return;
        }
        let is_cut = call.most < u64::MAX && (call.most as usize) < commands_in(&call.bytes);
        if is_cut {
            self.reply(call.caller, delay_us, Err(UnknownFailure::Lost.into()));
        } else if call.is_heard {
            self.reply(call.caller, delay_us, Ok(replies));
        }
    }

    fn reply(&mut self, caller: Caller, delay_us: u64, reply: Reply) {
        let event = match caller {
            Caller::Gateway(place, batch) => ScheduledEvent::GatewayHears {
                place,
                batch,
                reply,
            },
            Caller::Task(task, op) => ScheduledEvent::TaskHears {
                task,
                op,
                done: reply.map_or(Done::Broken, Done::Replied),
            },
        };
        self.queue.after(delay_us, event);
    }

    pub(super) fn gateway_hears(&mut self, place: WorkerLife, batch: BatchId, reply: Reply) {
        if self.mutation == Some(Mutation::UnknownTakenForRefused)
            && matches!(reply, Err(weir_engine::redis::Failure::Unknown(_)))
            && let Some(commands) = self.worker(place).and_then(|worker| worker.call(batch))
        {
            let site = self.site_of(place.gateway);
            self.redis[site].give_back_claims(&commands);
        }
        self.at_worker(place, |worker, now_ms, network| {
            worker.hear(batch, reply, now_ms, network)
        });
    }

    // --- tasks of origins

    /// The origin of a task. A task that has died may still have calls in flight.
    fn origin_of_task(&self, task: TaskId) -> usize {
        self.origins_of_tasks[task as usize]
    }

    pub(super) fn start_task(&mut self, origin: usize, work: Work) {
        let task = self.next_task;
        self.next_task += 1;
        self.origins_of_tasks.push(origin);
        self.tasks.insert(task, Task { origin, work });
        self.step_task(task);
    }

    pub(super) fn task_hears(&mut self, task: TaskId, op: OpId, done: Done) {
        // The first of a reply and a timeout counts.
        if self.waited_for.remove(&op) && self.tasks.contains_key(&task) {
            self.bus.borrow_mut().done.insert(op, done);
            self.step_task(task);
        }
    }

    fn step_task(&mut self, id: TaskId) {
        self.set_clocks();
        self.bus.borrow_mut().running = id;
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let mut context = Context::from_waker(Waker::noop());
        let is_over = task.work.as_mut().poll(&mut context).is_ready();
        let origin = task.origin;
        if is_over {
            self.tasks.remove(&id);
        }
        let on_request = std::mem::take(&mut self.bus.borrow_mut().requested);
        for (task, op, subject) in on_request {
            self.on_request(origin, task, op, subject);
        }
    }

    fn on_request(&mut self, origin: usize, task: TaskId, op: OpId, operation: TaskOperation) {
        // Tasks have their own delays, so that removing one changes little for the others.
        let link = Link::Origin(task as usize);
        match operation {
            TaskOperation::Answer(request, response) => {
                let delay_us = self.network.borrow_mut().delay_us(link);
                let answers = ScheduledEvent::OriginAnswers { request, response };
                return self.queue.after(delay_us, answers);
            }
            TaskOperation::Sleep { us } => {
                let late_us = self.network.borrow_mut().rng(link).below(3_000);
                let done = Done::Over;
                let hears = ScheduledEvent::TaskHears { task, op, done };
                self.queue.after(us + late_us, hears);
            }
            TaskOperation::Redis(bytes) => {
                let fate = self.network.borrow_mut().redis_fate(plan::Caller::Origin);
                let done = Done::Timeout;
                let timeout = ScheduledEvent::TaskHears { task, op, done };
                self.queue.after(ORIGIN_CALL_LIMIT_US, timeout);
                self.send_to_redis(Caller::Task(task, op), bytes.into(), fate, link);
            }
            TaskOperation::Sql(transaction) => self.call_sql(task, op, transaction, link),
        }
        self.waited_for.insert(op);
        debug_assert!(origin < self.origins.len());
    }

    // --- SQL

    fn call_sql(&mut self, task: TaskId, op: OpId, transaction: Transaction, link: Link) {
        let mut network = self.network.borrow_mut();
        let fate = network.sql_fate();
        let slow_us = match fate {
            Some(SqlFate::Slow { by_ms }) => by_ms * 1_000,
            _ => 0,
        };
        let delay_us = network.delay_us(link) + slow_us;
        let arrives = ScheduledEvent::SqlArrives {
            task,
            op,
            transaction,
            fate,
        };
        self.queue.after(delay_us, arrives);
    }

    pub(super) fn sql_arrives(
        &mut self,
        task: TaskId,
        op: OpId,
        transaction: Transaction,
        fate: Option<SqlFate>,
    ) {
        let now_us = self.now_us();
        let cut = Cut::OriginAndSql(self.origin_of_task(task) as u32);
        let is_lost = self.is_cut(cut, false);
        if fate != Some(SqlFate::Fail) && !is_lost {
            transaction(&mut self.sql);
            self.witness.after_sql(&mut self.sql, now_us);
            if self.plan.restores_lost_orders().is_some() {
                self.sql_copies.push((now_us, self.sql.clone()));
            }
        }
        if is_lost || self.is_cut(cut, true) {
            let done = Done::Failed;
            let hears = ScheduledEvent::TaskHears { task, op, done };
            return self.queue.after(SQL_LIMIT_US, hears);
        }
        let done = match fate {
            Some(SqlFate::Fail | SqlFate::LoseReply) => Done::Failed,
            Some(SqlFate::Slow { .. }) | None => Done::Over,
        };
        let link = Link::Origin(task as usize);
        let delay_us = self.network.borrow_mut().delay_us(link);
        self.queue
            .after(delay_us, ScheduledEvent::TaskHears { task, op, done });
    }
}

fn commands_in(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    let mut count = 0;
    while let Ok((_, used)) = decode(rest) {
        rest = &rest[used..];
        count += 1;
    }
    count
}
