//! Lookups in flight, and the origin's tasks with their requests.

use std::rc::Rc;
use std::task::{Context, Waker};

use weir_engine::FetchId;
use weir_link::redis::link_read::Purpose;
use weir_link::routes::link_purpose;

use super::io::{Done, Io, OpId, TaskId, TaskOperation, Transaction, Work};
use super::origin::Origin;
use super::world::{LinksEvent, World};
use crate::host::WorkerLife;
use crate::mutation::Mutation;
use crate::network::Link;
use crate::stage::fault::FetchFate;
use crate::stage::{RedisState, ScheduledEvent};

/// The origin's timeout for Redis.
const ORIGIN_CALL_LIMIT_MS: u64 = 1_000;

impl World {
    // --- lookups

    pub(super) fn send_fetch(&mut self, place: WorkerLife, fetch: FetchId, path: String) {
        let fate = self.fetch_fates.pop_front();
        let delay_us = self.delay_us(Link::Origin(place.gateway));
        let late_us = match fate {
            Some(FetchFate::Late { by_ms }) => by_ms * 1_000,
            _ => 0,
        };
        let is_mute = fate == Some(FetchFate::LoseReply);
        match fate {
            Some(FetchFate::LoseRequest) => {}
            Some(FetchFate::Fail) => self.after_us(
                delay_us,
                LinksEvent::Fetched {
                    place,
                    fetch,
                    response: None,
                },
            ),
            _ => self.after_us(
                delay_us + late_us,
                LinksEvent::OriginArrives {
                    place,
                    fetch,
                    path,
                    is_mute,
                },
            ),
        }
    }

    pub(super) fn origin_arrives(
        &mut self,
        place: WorkerLife,
        fetch: FetchId,
        path: &str,
        is_mute: bool,
    ) {
        if !self.is_origin_up {
            let response = None;
            let delay_us = self.delay_us(Link::Origin(place.gateway));
            return self.after_us(
                delay_us,
                LinksEvent::Fetched {
                    place,
                    fetch,
                    response,
                },
            );
        }
        let (path, query) = path.split_once('?').expect("it says what for");
        let code = path.rsplit("code").next();
        let code = code.and_then(|code| code.parse().ok()).expect("a code");
        let mut purpose = link_purpose(query).expect("it says what for");
        if self.stage.has(Mutation::ClickRenamedAtOrigin)
            && let Purpose::Click(click) = &mut purpose
        {
            click.counter ^= 1;
        }
        // A lost reply goes to an unused fetch ID.
        let fetch = if is_mute { FetchId(u32::MAX) } else { fetch };
        let work = self.origin.serve(place, fetch, code, purpose);
        self.start_task(work);
    }

    // --- the origin's tasks

    pub(super) fn start_origin(&mut self) {
        self.is_origin_up = true;
        let io = Io {
            bus: Rc::clone(&self.bus),
            mutation: self.stage.mutation,
        };
        self.origin = Origin::new(io);
        for work in self.origin.background() {
            self.start_task(work);
        }
    }

    pub(super) fn start_task(&mut self, work: Work) {
        let task = self.next_task;
        self.next_task += 1;
        self.tasks.insert(task, work);
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
        {
            let mut bus = self.bus.borrow_mut();
            bus.running = id;
            bus.now_ms = self.stage.now_ms();
        }
        let Some(work) = self.tasks.get_mut(&id) else {
            return;
        };
        let mut context = Context::from_waker(Waker::noop());
        if work.as_mut().poll(&mut context).is_ready() {
            self.tasks.remove(&id);
        }
        let requested = std::mem::take(&mut self.bus.borrow_mut().requested);
        for (task, op, subject) in requested {
            self.asked_by(task, op, subject);
        }
    }

    fn asked_by(&mut self, task: TaskId, op: OpId, operation: TaskOperation) {
        let delay_us = self.delay_us(Link::Origin(task as usize));
        self.waited_for.insert(op);
        match operation {
            TaskOperation::Answer(place, fetch, response) => {
                self.waited_for.remove(&op);
                self.after_us(
                    delay_us,
                    LinksEvent::Fetched {
                        place,
                        fetch,
                        response,
                    },
                );
            }
            TaskOperation::Sleep { ms } => {
                let done = Done::Over;
                self.after_us(ms * 1_000, LinksEvent::TaskHears { task, op, done });
            }
            TaskOperation::Redis(bytes) => {
                self.after_us(delay_us, LinksEvent::OriginCalls { task, op, bytes });
                let done = Done::Failed;
                let limit_us = ORIGIN_CALL_LIMIT_MS * 1_000;
                self.after_us(limit_us, LinksEvent::TaskHears { task, op, done });
            }
            TaskOperation::Sql(transaction) => self.after_us(
                delay_us,
                LinksEvent::SqlArrives {
                    task,
                    op,
                    transaction,
                },
            ),
        }
    }

    pub(super) fn origin_calls(&mut self, task: TaskId, op: OpId, bytes: &[u8]) {
        let delay_us = self.delay_us(Link::Origin(task as usize));
        let done = match self.stage.redis_state() {
            RedisState::Down => Done::Failed,
            RedisState::StallsUntil(until_us) => {
                let bytes = bytes.to_vec();
                let calls = LinksEvent::OriginCalls { task, op, bytes };
                return self.stage.queue.at(until_us, ScheduledEvent::Own(calls));
            }
            RedisState::Up => {
                let now_us = self.stage.queue.now_us();
                Done::Replied(self.redis.run(bytes, u64::MAX, now_us))
            }
        };
        self.after_us(delay_us, LinksEvent::TaskHears { task, op, done });
    }

    pub(super) fn sql_arrives(&mut self, task: TaskId, op: OpId, transaction: Transaction) {
        let is_away = self.sql_away_until_us > self.stage.queue.now_us();
        let done = if is_away {
            Done::Failed
        } else {
            transaction(&mut self.sql);
            Done::Over
        };
        let delay_us = self.delay_us(Link::Origin(task as usize));
        self.after_us(delay_us, LinksEvent::TaskHears { task, op, done });
    }
}
