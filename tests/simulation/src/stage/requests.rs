//! Clients' requests in gateways.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::rc::Rc;

use weir_engine::event::PlainRequest;
use weir_engine::redis::Reply;
use weir_engine::{BatchId, Headers, StreamId};

use super::calls::{self, RedisCall};
use super::{Decision, ScheduledEvent, Simulation};
use crate::host::{RequestId, WorkerLife};
use crate::mutation::Mutation;
use crate::network::Link;

/// A request in flight or a finished one.
#[derive(Debug)]
pub(super) struct Request {
    place: WorkerLife,
    stream: StreamId,
    is_over: bool,
}

/// Implemented for every simulation.
impl<P: Simulation> Requests for P {}

/// The life cycle of requests.
pub(crate) trait Requests: Simulation {
    /// Sends a client's request to a worker, which may be dead.
    fn open(&mut self, place: WorkerLife, headers: Headers) -> RequestId {
        let stage = self.stage();
        let id = stage.next_request;
        stage.next_request += 1;
        let head = PlainRequest {
            headers,
            peer_address: b"192.0.2.1:5".to_vec(),
            now_ms: stage.gateway_ms(place.gateway),
        };
        let upsets = stage.gateways[place.gateway].pauses;
        let network = Rc::clone(&stage.network);
        let mut request = Request {
            place,
            stream: 0,
            is_over: false,
        };
        let Some(worker) = stage.worker(place) else {
            stage.requests.insert(id, request);
            self.decide(id, Decision::Broken);
            return id;
        };
        let (stream, out) = worker.open(id, &head, &network);
        request.stream = stream;
        stage.requests.insert(id, request);
        self.after_event(place);
        for out in out {
            self.leave(place, out);
        }
        let within_us = self.decided_within_us();
        let stage = self.stage();
        stage.mind_ticks(place);
        let request = id;
        stage
            .queue
            .after(within_us, ScheduledEvent::MustBeDecided { request, upsets });
        id
    }

    /// The client of a request disconnects.
    fn hang_up(&mut self, id: RequestId) {
        let stage = self.stage();
        let Some(request) = stage.requests.get(&id).filter(|request| !request.is_over) else {
            return;
        };
        let (place, stream) = (request.place, request.stream);
        let worker = stage.worker(place);
        if worker.is_some_and(|worker| worker.client_gone(stream)) {
            // The engine is informed later: until then, effects fail.
            let after_us = stage.network.borrow_mut().rng(Link::Client(0)).below(5_000);
            let ends = ScheduledEvent::StreamEnds { place, stream };
            stage.queue.after(after_us, ends);
        }
        self.decide(id, Decision::Left);
    }

    /// Records a request's answer; a second one is a violation.
    fn decide(&mut self, id: RequestId, decision: Decision) {
        let stage = self.stage();
        // An answer during the request's own event precedes its registration.
        if let Some(request) = stage.requests.get_mut(&id)
            && std::mem::replace(&mut request.is_over, true)
        {
            return match decision {
                Decision::Answered(_) | Decision::WentOn { .. } => {
                    stage.violate(format!("request {id} is decided twice"));
                }
                Decision::Broken | Decision::Left => {}
            };
        }
        self.decided(id, decision);
    }

    fn must_be_decided(&mut self, id: RequestId, upsets: u64) {
        let within_us = self.decided_within_us();
        let stage = self.stage();
        let Some(request) = stage.requests.get(&id).filter(|request| !request.is_over) else {
            return;
        };
        let gateway = &stage.gateways[request.place.gateway];
        let until_us = gateway.paused_until_us.max(stage.queue.now_us());
        if gateway.pauses != upsets {
            let must = ScheduledEvent::MustBeDecided {
                request: id,
                upsets: gateway.pauses,
            };
            return stage.queue.at(until_us + within_us, must);
        }
        stage.violate(format!("request {id} waits for more than {within_us} us"));
    }

    fn stream_ends(&mut self, place: WorkerLife, stream: StreamId) {
        if self.stage().has(Mutation::EndsNotTold) {
            return;
        }
        self.at_worker(place, |worker, now_ms, network| {
            worker.close(stream, Some(200), now_ms, network)
        });
    }

    /// A worker, or all of a gateway, died with its streams.
    fn break_streams(&mut self, gateway: usize, worker: Option<usize>) {
        let stage = self.stage();
        let on_it = |request: &Request| {
            let place = request.place;
            !request.is_over
                && place.gateway == gateway
                && worker.is_none_or(|worker| worker == place.worker)
        };
        let broken = stage.requests.iter();
        let broken: Vec<RequestId> = broken
            .filter(|(_, request)| on_it(request))
            .map(|(id, _)| *id)
            .collect();
        for id in broken {
            self.decide(id, Decision::Broken);
        }
    }

    fn gateway_hears(&mut self, place: WorkerLife, batch: BatchId, reply: Reply) {
        self.at_worker(place, |worker, now_ms, network| {
            worker.hear(batch, reply, now_ms, network)
        });
    }

    fn redis_arrives(&mut self, call: RedisCall) {
        calls::arrives(self, call);
    }

    fn redis_goes_on(&mut self) {
        calls::goes_on(self);
    }

    /// The number of undecided requests.
    fn open_requests(&mut self) -> usize {
        let requests = self.stage().requests.values();
        requests.filter(|request| !request.is_over).count()
    }
}
