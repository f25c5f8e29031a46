//! Calls to Redis with their faults.

use std::rc::Rc;

use weir_engine::BatchId;
use weir_engine::redis::{DefiniteFailure, Reply, UnknownFailure};

use super::commands::commands_in;
use super::{ScheduledEvent, Simulation, Stage};
use crate::host::{TracksStreams, WorkerLife};
use crate::mutation::Mutation;
use crate::network::Link;
use crate::plan::RedisFate;

/// Commands in flight to Redis.
#[derive(Clone, Debug)]
pub(crate) struct RedisCall {
    pub(super) place: WorkerLife,
    batch: BatchId,
    pub(super) bytes: Rc<[u8]>,
    /// The number of commands to run; if not all, the connection breaks.
    most: u64,
    is_heard: bool,
    /// Whether it is the second copy of a call.
    is_repeat: bool,
}

fn link_of(place: WorkerLife) -> Link {
    Link::Gateway(place.gateway * 8 + place.worker)
}

impl<E: TracksStreams, H> Stage<E, H> {
    pub(super) fn call_redis(
        &mut self,
        place: WorkerLife,
        batch: BatchId,
        bytes: Rc<[u8]>,
        timeout_ms: u64,
        fate: Option<RedisFate>,
    ) {
        let link = link_of(place);
        let late_us = self.network.borrow_mut().rng(link).below(10_000);
        if !self.has(Mutation::TimeoutForgotten) {
            let reply = Err(UnknownFailure::Timeout.into());
            let timeout = ScheduledEvent::GatewayHears {
                place,
                batch,
                reply,
            };
            self.queue.after(timeout_ms * 1_000 + late_us, timeout);
        }
        let delay_us = self.network.borrow_mut().delay_us(link);
        let call = RedisCall {
            place,
            batch,
            bytes,
            most: u64::MAX,
            is_heard: true,
            is_repeat: false,
        };
        self.send(call, fate, delay_us);
    }

    fn send(&mut self, call: RedisCall, fate: Option<RedisFate>, delay_us: u64) {
        let mut arrives = |after_us, call| {
            self.queue
                .after(after_us, ScheduledEvent::RedisArrives(call))
        };
        match fate {
            None if self.mutation == Some(Mutation::CallsRetriedBlindly) => {
                arrives(delay_us, call.clone());
                let repeat = RedisCall {
                    is_repeat: true,
                    is_heard: false,
                    ..call
                };
                arrives(delay_us + 1, repeat);
            }
            None => arrives(delay_us, call),
            Some(RedisFate::LoseRequest | RedisFate::Defer) => {}
            Some(RedisFate::LoseReply) => {
                let is_heard = false;
                arrives(delay_us, RedisCall { is_heard, ..call });
            }
            Some(RedisFate::Double { after_us }) => {
                // The caller gets one of two replies: the first or the second.
                let is_heard = after_us % 2 == 0;
                let is_repeat = true;
                let first = RedisCall {
                    is_heard,
                    ..call.clone()
                };
                let second = RedisCall {
                    is_heard: !is_heard,
                    is_repeat,
                    ..call
                };
                arrives(delay_us, first);
                arrives(delay_us + after_us, second);
            }
            Some(RedisFate::Late { by_ms }) => arrives(delay_us + by_ms * 1_000, call),
            Some(RedisFate::Cut { commands }) => {
                let most = commands;
                arrives(delay_us, RedisCall { most, ..call });
            }
            Some(RedisFate::Refuse) => self.refuse(&call, delay_us),
            Some(RedisFate::Loading) => {
                let error = b"-LOADING Redis is loading the dataset in memory\r\n";
                let replies = error.repeat(commands_in(&call.bytes));
                self.reply(&call, delay_us, Ok(replies));
            }
        }
    }

    fn refuse(&mut self, call: &RedisCall, delay_us: u64) {
        let definite = DefiniteFailure::Refused("no healthy upstream".into());
        self.reply(call, delay_us, Err(definite.into()));
    }

    fn reply(&mut self, call: &RedisCall, delay_us: u64, reply: Reply) {
        let hears = ScheduledEvent::GatewayHears {
            place: call.place,
            batch: call.batch,
            reply,
        };
        self.queue.after(delay_us, hears);
    }

    pub(super) fn stall_redis(&mut self, for_ms: u64) {
        let until_us = self.queue.now_us() + for_ms * 1_000;
        self.redis_stalls_until_us = self.redis_stalls_until_us.max(until_us);
        self.queue.at(until_us, ScheduledEvent::RedisGoesOn);
    }

    pub(super) fn stop_redis(&mut self, for_ms: u64) {
        self.is_redis_up = false;
        // Unread calls are lost with the connections.
        self.before_redis.clear();
        self.queue
            .after(for_ms * 1_000, ScheduledEvent::RedisStarts);
    }

    /// Ends all waiting faults, and corrects all clocks.
    pub(crate) fn end_faults(&mut self) {
        self.network.borrow_mut().disarm();
        for gateway in &mut self.gateways {
            gateway.clock_off_ms = 0;
        }
    }
}

/// Redis processes a call.
pub(super) fn arrives<P: Simulation>(play: &mut P, call: RedisCall) {
    let stage = play.stage();
    let now_us = stage.queue.now_us();
    let delay_us = stage.network.borrow_mut().delay_us(link_of(call.place));
    if !stage.is_redis_up {
        return stage.refuse(&call, delay_us);
    }
    if stage.redis_stalls_until_us > now_us {
        return stage.before_redis.push_back(call);
    }
    let replies = play.run_redis(call.place, &call.bytes, call.most, call.is_repeat);
    let stage = play.stage();
    stage.trace.mix_bytes(&call.bytes);
    stage.trace.mix_bytes(&replies);
    let is_cut = call.most < u64::MAX && (call.most as usize) < commands_in(&call.bytes);
    if is_cut {
        stage.reply(&call, delay_us, Err(UnknownFailure::Lost.into()));
    } else if call.is_heard {
        stage.reply(&call, delay_us, Ok(replies));
    }
}

/// Redis resumes after a stall and processes the queued calls.
pub(super) fn goes_on<P: Simulation>(play: &mut P) {
    let stage = play.stage();
    if stage.redis_stalls_until_us <= stage.queue.now_us() {
        for call in std::mem::take(&mut stage.before_redis) {
            arrives(play, call);
        }
    }
}
