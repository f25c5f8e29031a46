//! Clients, and their requests in gateways and origins.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::rc::Rc;

use weir_base::headers;
use weir_base::id::SaleId;
use weir_base::key::SigningKey;
use weir_engine::event::PlainRequest;
use weir_engine::{Answer, StreamId};
use weir_sale::claim::Ticket;
use weir_sale::shard::home_shard;
use weir_sale::site::FenceState;

use super::{Request, RequestKind, ScheduledEvent, World};
use crate::client::ClientAnswer;
use crate::gateway::{DECIDED_WITHIN_US, ORIGIN_TIMEOUT_MS};
use crate::host::{RequestId, WorkerEffect, WorkerLife};
use crate::network::Link;
use crate::origin::ArrivedRequest;
use crate::origin::io::Response;
use crate::plan::{Cut, OriginFate};
use crate::queue::START_MS;

impl World {
    // --- clients

    pub(super) fn client_acts(&mut self, client: usize, kind: RequestKind) {
        let place = self.pick_place(client);
        let until_us = self.gateways[place.gateway].paused_until_us;
        if until_us > self.now_us() {
            return self
                .queue
                .at(until_us, ScheduledEvent::ClientActs { client, kind });
        }
        let request = self.next_request;
        self.next_request += 1;
        if !self.gateways[place.gateway].is_alive {
            return self.client_hears(client, kind, ClientAnswer::nothing(0, "refused"));
        }
        self.open(request, client, kind, place);
        let pauses = self.gateways[place.gateway].pauses;
        let must = ScheduledEvent::MustBeDecided { request, pauses };
        self.queue.after(DECIDED_WITHIN_US, must);
        if kind == RequestKind::Buy
            && let Some(after_us) = self.clients[client].plan.leaves_after_us
        {
            self.queue
                .after(after_us, ScheduledEvent::ClientLeaves { request });
        }
    }

    fn pick_place(&mut self, client: usize) -> WorkerLife {
        let avoids = |gateway: usize| {
            let site = self.site_of(gateway);
            let state = self.sql.fence_at(site).state;
            self.avoids_closed_sites && state != FenceState::Live
        };
        let open = (0..self.gateways.len()).filter(|&gateway| !avoids(gateway));
        let open: Vec<usize> = open.collect();
        let mut network = self.network.borrow_mut();
        let rng = network.rng(Link::Client(client));
        let gateway = open[rng.below(open.len() as u64) as usize];
        let worker = rng.below(self.plan.setting.workers.into()) as usize;
        WorkerLife {
            gateway,
            life: self.gateways[gateway].life,
            worker,
        }
    }

    fn open(&mut self, id: RequestId, client: usize, kind: RequestKind, place: WorkerLife) {
        let headers = self.clients[client].headers(kind);
        let network = Rc::clone(&self.network);
        let now_ms = self.gateway_ms(place.gateway);
        let worker = self.worker(place).expect("the gateway is alive");
        let head = PlainRequest {
            headers,
            peer_address: b"192.0.2.1:5".to_vec(),
            now_ms,
        };
        let (stream, out) = worker.open(id, &head, &network);
        self.requests.insert(
            id,
            Request {
                client,
                kind,
                place,
                stream,
                is_over: false,
                is_mute: false,
            },
        );
        for out in out {
            self.leave(place, out);
        }
        self.mind_ticks(place);
    }

    pub(super) fn client_leaves(&mut self, id: RequestId) {
        let request = self.requests.get_mut(&id).expect("requests stay");
        if std::mem::replace(&mut request.is_over, true) {
            return;
        }
        let (place, stream) = (request.place, request.stream);
        let is_there = self
            .worker(place)
            .is_some_and(|worker| worker.client_gone(stream));
        if is_there {
            // The engine is informed later: until then, effects fail.
            let after_us = self.network.borrow_mut().rng(Link::Client(0)).below(2_000);
            let ends = ScheduledEvent::StreamEnds {
                place,
                stream,
                status: None,
            };
            self.queue.after(after_us, ends);
        }
    }

    /// A client gets its answer, and continues.
    pub(super) fn client_hears(&mut self, client: usize, kind: RequestKind, answer: ClientAnswer) {
        *self.stats.answers.entry(answer.word.clone()).or_default() += 1;
        self.trace.mix_bytes(answer.word.as_bytes());
        let now_us = self.now_us();
        self.trace
            .line(now_us, || format!("client {client} hears {answer:?}"));
        let person = &self.clients[client];
        if let (Some(attempt), Some(order)) = (person.attempt(kind), answer.order)
            && answer.is_order()
        {
            let user = &person.user;
            self.witness.after_answer(user, attempt, order, now_us);
        }
        if let Some(order) = answer.order.filter(|_| answer.is_order()) {
            self.witness.after_order(order, now_us);
        }
        if answer.word == "not_reserved" {
            let user = &self.clients[client].user;
            self.witness.on_not_reserved(user, &self.sql, now_us);
        }
        if let Some(next) = self.clients[client].hear(kind, answer) {
            let kind = next.kind;
            let acts = ScheduledEvent::ClientActs { client, kind };
            self.queue.after(next.after_us, acts);
        }
    }

    /// An unsigned claim reaches an origin.
    pub(super) fn client_forges(&mut self, client: usize) {
        let user = self.clients[client].user.clone();
        let now_ms = START_MS + self.now_us() / 1_000;
        let claim = Ticket {
            sale: SaleId::new(super::SALE).expect("it is a name"),
            shard: home_shard(&user, self.plan.setting.shards),
            generation: now_ms + 1_000_000,
            quantity: 1,
            deadline_ms: now_ms + 60_000,
            user,
        }
        .encode();
        let key =
            SigningKey::new("k1", b"another secret, as long as the right one").expect("it is one");
        let signature = key.sign(&claim);
        let request = ArrivedRequest {
            id: RequestId::MAX,
            kind: RequestKind::Buy,
            attempt: None,
            headers: vec![
                (headers::CLAIM, claim),
                (headers::CLAIM_SIGNATURE, signature),
            ],
        };
        self.queue
            .after(500, ScheduledEvent::OriginArrives { origin: 0, request });
    }

    // --- outputs of a gateway

    pub(super) fn leave(&mut self, place: WorkerLife, out: WorkerEffect) {
        match out {
            WorkerEffect::Call {
                batch,
                bytes,
                timeout_ms,
                fate,
            } => self.call_redis(place, batch, bytes, timeout_ms, fate),
            WorkerEffect::Wake => self.queue.after(10, ScheduledEvent::Wake { place }),
            WorkerEffect::Answered {
                request,
                stream,
                answer,
            } => self.answered(place, request, stream, &answer),
            WorkerEffect::WentOn {
                request, headers, ..
            } => self.went_on(request, headers),
            WorkerEffect::FedBack(kind) => *self.stats.feedback.entry(kind).or_default() += 1,
            WorkerEffect::Fetch { .. } => {
                self.witness
                    .violate(self.queue.now_us(), "the gate fetches");
            }
            WorkerEffect::Wrong(violation) => self.witness.violate(self.queue.now_us(), violation),
        }
    }

    fn answered(&mut self, place: WorkerLife, id: RequestId, stream: StreamId, answer: &Answer) {
        let status = answer.status;
        let ends = ScheduledEvent::StreamEnds {
            place,
            stream,
            status: Some(status),
        };
        self.queue.after(60, ends);
        let word = answer.headers.get(headers::VERDICT).unwrap_or_default();
        let word = String::from_utf8_lossy(&word).into_owned();
        if word == "sold_out" {
            let now_us = self.queue.now_us();
            self.witness.on_sold_out(&self.sql, now_us);
        }
        self.request_over(id, ClientAnswer::nothing(status, &word));
    }

    fn request_over(&mut self, id: RequestId, answer: ClientAnswer) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut request.is_over, true) {
            return;
        }
        let (client, kind) = (request.client, request.kind);
        self.client_hears(client, kind, answer);
    }

    fn went_on(&mut self, id: RequestId, headers: Vec<(&'static str, String)>) {
        for (_, value) in &headers {
            self.trace.mix_bytes(value.as_bytes());
        }
        let Request {
            kind,
            client,
            place,
            ..
        } = self.requests[&id];
        let sites = self.sites();
        let origins = (self.site_of(place.gateway)..self.origins.len()).step_by(sites);
        let origins: Vec<usize> = origins.collect();
        let mut network = self.network.borrow_mut();
        let (fate, link) = (network.origin_fate(), Link::Client(id as usize));
        let chosen = network.rng(link).below(origins.len() as u64) as usize;
        let origin = origins[chosen];
        let delay_us = network.delay_us(link);
        let attempt = self.clients[client].attempt(kind);
        if kind == RequestKind::Buy {
            let (user, now_us) = (&self.clients[client].user, self.queue.now_us());
            self.witness.on_claim(user, &self.sql, now_us);
        }
        self.queue.after(
            ORIGIN_TIMEOUT_MS * 1_000,
            ScheduledEvent::StreamTimesOut { request: id },
        );
        let request = ArrivedRequest {
            id,
            kind,
            attempt,
            headers,
        };
        let mut arrives = |after_us, origin, request| {
            self.queue
                .after(after_us, ScheduledEvent::OriginArrives { origin, request });
        };
        match fate {
            Some(OriginFate::LoseRequest) => {}
            Some(OriginFate::RefuseUnread) => {
                let response = Response {
                    status: 431,
                    word: "unread",
                    order: None,
                };
                let answers = ScheduledEvent::OriginAnswers {
                    request: id,
                    response,
                };
                self.queue.after(delay_us, answers);
            }
            Some(OriginFate::Late { by_ms }) => arrives(delay_us + by_ms * 1_000, origin, request),
            Some(OriginFate::Double { after_us }) => {
                let other = origins[(chosen + 1) % origins.len()];
                arrives(delay_us, origin, request.clone());
                arrives(delay_us + after_us, other, request);
            }
            Some(OriginFate::LoseReply) => {
                arrives(delay_us, origin, request);
                if let Some(request) = self.requests.get_mut(&id) {
                    request.is_mute = true;
                }
            }
            None => arrives(delay_us, origin, request),
        }
    }

    // --- at the origin

    pub(super) fn origin_arrives(&mut self, origin: usize, request: ArrivedRequest) {
        if let Some(place) = self.requests.get(&request.id).map(|request| request.place)
            && self.is_cut(Cut::GatewayAndOrigins(place.gateway as u32), false)
        {
            return;
        }
        if !self.origins[origin].is_alive {
            let response = Response {
                status: 503,
                word: "no_origin",
                order: None,
            };
            return self.origin_answers(request.id, response);
        }
        let work = self.origins[origin].origin.serve(request);
        self.start_task(origin, work);
    }

    pub(super) fn origin_answers(&mut self, id: RequestId, response: Response) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if request.is_mute || request.is_over {
            return;
        }
        let (place, stream) = (request.place, request.stream);
        if self.is_cut(Cut::GatewayAndOrigins(place.gateway as u32), true) {
            return;
        }
        let answer = ClientAnswer {
            status: response.status,
            word: response.word.into(),
            order: response.order,
        };
        self.end_stream(id, place, stream, answer);
    }

    /// The gateway passes on an answer, or sends its own.
    fn end_stream(
        &mut self,
        id: RequestId,
        place: WorkerLife,
        stream: StreamId,
        answer: ClientAnswer,
    ) {
        if !self.worker(place).is_some_and(|worker| worker.has(stream)) {
            return;
        }
        let status = Some(answer.status);
        let ends = ScheduledEvent::StreamEnds {
            place,
            stream,
            status,
        };
        self.queue.after(30, ends);
        self.request_over(id, answer);
    }

    pub(super) fn stream_times_out(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if !request.is_over {
            let (place, stream) = (request.place, request.stream);
            self.end_stream(id, place, stream, ClientAnswer::nothing(504, "timeout"));
        }
    }

    // --- the ends of streams

    pub(super) fn stream_ends(&mut self, place: WorkerLife, stream: StreamId, status: Option<u16>) {
        self.at_worker(place, |worker, now_ms, network| {
            worker.close(stream, status, now_ms, network)
        });
    }

    /// The time limit for a gateway's decision has passed.
    pub(super) fn must_be_decided(&mut self, id: RequestId, pauses: u64) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let (place, stream) = (request.place, request.stream);
        let gateway = &self.gateways[place.gateway];
        if gateway.pauses != pauses {
            let pauses = gateway.pauses;
            let must = ScheduledEvent::MustBeDecided {
                request: id,
                pauses,
            };
            return self.queue.after(DECIDED_WITHIN_US, must);
        }
        if self
            .worker(place)
            .is_some_and(|worker| worker.waits(stream))
        {
            let message = format!("request {id} waits for more than {DECIDED_WITHIN_US} us");
            self.witness.violate(self.queue.now_us(), message);
        }
    }

    /// A gateway has died with all its streams.
    pub(super) fn break_streams(&mut self, gateway: usize) {
        let on_it = |request: &&Request| !request.is_over && request.place.gateway == gateway;
        let broken = self.requests.iter();
        let broken: Vec<RequestId> = broken
            .filter(|(_, request)| on_it(request))
            .map(|(id, _)| *id)
            .collect();
        for id in broken {
            self.request_over(id, ClientAnswer::nothing(0, "reset"));
        }
    }
}
