//! Ingests events: validates each, appends accepted and refused events to the log, and only then acknowledges them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::body::Bytes;
use weir_event::answer::{Answer, Reason, Rejection, Verdict};
use weir_event::batch::{Batch, BatchError};
use weir_event::clock::occurred_ms;
use weir_event::envelope::{Envelope, EventAttribution};
use weir_event::event::Event;
use weir_event::fingerprint::Fingerprint;
use weir_event::name::{CustomerId, EventId};
use weir_event::pixel;
use weir_event::stamps::Stamps;

use super::Clock;
use super::log::{AppendError, EventLog};
use super::metrics::EventMetrics;
use super::registry::Registry;
use crate::model::recent_events::{IdStatus, RecentEvents};
use crate::model::record::{LogRecord, RefusedEvent, SentEvent};
use crate::model::types::Types;

/// Bodies of at least this many bytes are validated in a blocking thread, so that they do not delay other requests.
const LONG: usize = 32 << 10;

/// Ingests events.
pub struct Collector {
    /// Registered event types.
    pub registry: Arc<Registry>,
    /// The log that events are appended to.
    pub log: Arc<dyn EventLog>,
    /// Recent event ids, for deduplication.
    pub observed: RecentEvents,
    /// Metrics of events.
    pub metrics: EventMetrics,
    /// Number of partitions that customers are spread over.
    pub partitions: u16,
    /// Reads the clock.
    pub clock: Clock,
    /// Whether the last append failed.
    pub is_failing: AtomicBool,
}

/// The sender of events.
#[derive(Clone, Debug)]
pub struct Sender {
    /// Gateway metadata of the request.
    pub stamps: Stamps,
    /// The signed-in customer.
    pub user: Option<CustomerId>,
}

/// Nothing was accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectError {
    /// The body does not contain events.
    #[error(transparent)]
    Body(#[from] BatchError),
    /// The log did not accept the events; a resend is safe.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// The verdict on an event.
enum Judgement {
    Accept(Box<Envelope>),
    Known(EventId),
    Reject {
        id: Option<EventId>,
        rejection: Rejection,
        sent: Box<SentEvent>,
    },
}

impl Collector {
    /// Ingests the events of a body.
    ///
    /// # Errors
    /// See [`CollectError`].
    pub async fn collect(
        self: &Arc<Self>,
        sender: Sender,
        body: Bytes,
    ) -> Result<Answer, CollectError> {
        let assessed = if body.len() < LONG {
            self.judge_body(&sender, &body)?
        } else {
            let collector = self.clone();
            let judge = move || collector.judge_body(&sender, &body);
            let assessed = tokio::task::spawn_blocking(judge).await;
            // The validation panicked. Nothing was appended, so refuse the whole body.
            assessed.map_err(|_| AppendError::Refused)??
        };
        self.append(assessed).await
    }

    /// Ingests the event in a tracking pixel's query.
    ///
    /// # Errors
    /// See [`CollectError`].
    pub async fn collect_pixel(
        &self,
        sender: &Sender,
        query: &[u8],
    ) -> Result<Answer, CollectError> {
        let types = self.registry.types();
        let judge = EventJudge::new(self, &types, sender, None);
        let read = pixel::read(query);
        let text = || String::from_utf8_lossy(&pixel::without(query, pixel::KEY)).into_owned();
        let assessed = judge.judge(read, None, text);
        self.append(vec![assessed]).await
    }

    /// Validates a refused event again. A second refusal writes nothing, because the dead letter already exists.
    ///
    /// # Errors
    /// See [`CollectError`].
    pub async fn collect_again(&self, sent: &SentEvent) -> Result<Answer, CollectError> {
        let unreadable = |message: &str| {
            let mut answer = Answer::default();
            answer.reject(None, Rejection::new(Reason::Invalid, message));
            answer
        };
        let Some(stamps) = sent.stamps() else {
            return Ok(unreadable("its gateway metadata is invalid"));
        };
        if sent.is_cut {
            return Ok(unreadable("only its beginning was stored: edit it first"));
        }
        let user = sent
            .user
            .as_ref()
            .and_then(|user| CustomerId::new(user).ok());
        let sender = Sender { stamps, user };
        let types = self.registry.types();
        let judge = EventJudge::new(self, &types, &sender, sent.sent_at_ms);
        let read = Event::read(&sent.event);
        match judge.judge(read, None, || sent.event.clone()) {
            Judgement::Reject { id, rejection, .. } => {
                let mut answer = Answer::default();
                answer.reject(id.map(|id| id.to_string()), rejection);
                Ok(answer)
            }
            assessed => self.append(vec![assessed]).await,
        }
    }

    /// Appends the origin's own events. Skips events that it has appended before.
    ///
    /// # Errors
    /// If the log does not accept them; a repetition is safe.
    pub async fn record(&self, envelopes: Vec<Envelope>) -> Result<(), CollectError> {
        let is_new = |envelope: &Envelope| {
            let id = envelope.id.as_str();
            matches!(self.observed.look(id, envelope.fingerprint), IdStatus::New)
        };
        let new = envelopes.into_iter().filter(is_new);
        let accepted = new.map(|envelope| Judgement::Accept(Box::new(envelope)));
        self.append(accepted.collect()).await.map(|_| ())
    }

    /// Returns one verdict per event. The whole body is validated against one snapshot of the types.
    fn judge_body(&self, sender: &Sender, body: &[u8]) -> Result<Vec<Judgement>, CollectError> {
        let batch = Batch::read(body)?;
        let types = self.registry.types();
        let judge = EventJudge::new(self, &types, sender, batch.sent_at_ms);
        let mut first: HashMap<EventId, Fingerprint> = HashMap::new();
        let mut assessed = Vec::with_capacity(batch.events.len());
        for sent in &batch.events {
            let one = judge.judge(sent.read(), sent.id(), || sent.json.to_owned());
            assessed.push(match one {
                Judgement::Accept(envelope) => match first.get(&envelope.id) {
                    None => {
                        first.insert(envelope.id.clone(), envelope.fingerprint);
                        Judgement::Accept(envelope)
                    }
                    Some(existing) if *existing == envelope.fingerprint => {
                        Judgement::Known(envelope.id)
                    }
                    Some(_) => judge.reused(envelope.id, sent.json),
                },
                other => other,
            });
        }
        Ok(assessed)
    }

    /// Appends all records in one call, then builds the answer.
    async fn append(&self, judgements: Vec<Judgement>) -> Result<Answer, CollectError> {
        let mut records = Vec::new();
        let mut answer = Answer::default();
        let mut accepted = Vec::new();
        for one in judgements {
            match one {
                Judgement::Known(id) => answer.take(id, true),
                Judgement::Accept(envelope) => {
                    answer.take(envelope.id.as_str(), false);
                    accepted.push((envelope.id.clone(), envelope.fingerprint));
                    records.push(LogRecord::Event(envelope).encode(self.partitions));
                }
                Judgement::Reject {
                    id,
                    rejection,
                    sent,
                } => {
                    let refused = RefusedEvent {
                        reason: rejection.reason.label().to_owned(),
                        message: rejection.message.clone(),
                        sent: *sent,
                    };
                    let record = LogRecord::Refused(Box::new(refused));
                    records.push(record.encode(self.partitions));
                    answer.reject(id.map(|id| id.to_string()), rejection);
                }
            }
        }
        if !records.is_empty() {
            self.write(records).await?;
        }
        for (id, fingerprint) in accepted {
            self.observed.note(id.as_str(), fingerprint);
        }
        for one in &answer.verdicts {
            let reason = one.reason.map_or("", Reason::label);
            self.metrics.event(one.verdict.label(), reason);
        }
        Ok(answer)
    }

    async fn write(&self, records: Vec<super::log::NewRecord>) -> Result<(), AppendError> {
        let start = Instant::now();
        let written = self.log.append(records, (self.clock)()).await;
        self.is_failing.store(written.is_err(), Ordering::Relaxed);
        match &written {
            Ok(()) => self.metrics.appended(start.elapsed()),
            Err(error) => self.metrics.not_appended(*error),
        }
        written
    }
}

/// Validates the events of one request.
struct EventJudge<'a> {
    observed: &'a RecentEvents,
    types: &'a Types,
    sender: &'a Sender,
    sent_at_ms: Option<u64>,
}

impl<'a> EventJudge<'a> {
    fn new(
        collector: &'a Collector,
        types: &'a Types,
        sender: &'a Sender,
        sent_at_ms: Option<u64>,
    ) -> Self {
        Self {
            observed: &collector.observed,
            types,
            sender,
            sent_at_ms,
        }
    }

    fn judge(
        &self,
        read: Result<Event, Rejection>,
        id: Option<EventId>,
        text: impl FnOnce() -> String,
    ) -> Judgement {
        let id = read.as_ref().map_or(id, |event| event.id.clone());
        let envelope = read.and_then(|event| self.envelope(event));
        let envelope = envelope.and_then(|envelope| {
            match self
                .observed
                .look(envelope.id.as_str(), envelope.fingerprint)
            {
                IdStatus::New => Ok((envelope, false)),
                IdStatus::Same => Ok((envelope, true)),
                IdStatus::Other => Err(id_reused(&envelope.id)),
            }
        });
        match envelope {
            Ok((envelope, false)) => Judgement::Accept(Box::new(envelope)),
            Ok((envelope, true)) => Judgement::Known(envelope.id),
            Err(rejection) => self.reject(id, rejection, &text()),
        }
    }

    fn envelope(&self, event: Event) -> Result<Envelope, Rejection> {
        let stamps = &self.sender.stamps;
        let name = event.event_type.as_str();
        let registered = self.types.get(name).ok_or_else(|| {
            let message = format!("type: \"{name}\" is not registered");
            Rejection::new(Reason::UnknownType, message)
        })?;
        let place = registered.spec.customer.as_ref();
        let customer = event.customer_for(stamps.kind, self.sender.user.as_ref(), place)?;
        registered.check(&event)?;
        let (received_ms, back_ms) = (stamps.received_ms, registered.retention_ms);
        let at_ms = occurred_ms(event.at_ms, self.sent_at_ms, received_ms, back_ms)
            .map_err(|error| Rejection::new(Reason::Clock, format!("at_ms: {error}")))?;
        let decided = EventAttribution {
            customer,
            at_ms,
            topics: registered.spec.routes.topics(&event),
        };
        Ok(Envelope::new(event, stamps, decided))
    }

    fn reused(&self, id: EventId, text: &str) -> Judgement {
        let rejection = id_reused(&id);
        self.reject(Some(id), rejection, text)
    }

    fn reject(&self, id: Option<EventId>, rejection: Rejection, text: &str) -> Judgement {
        let user = self.sender.user.as_ref().map(CustomerId::as_str);
        let sent = SentEvent::new(text, &self.sender.stamps, user, self.sent_at_ms);
        Judgement::Reject {
            id,
            rejection,
            sent: Box::new(sent),
        }
    }
}

fn id_reused(id: &EventId) -> Rejection {
    let message = format!("id: another event has the id \"{id}\"; use a unique id");
    Rejection::new(Reason::IdReused, message)
}

/// Whether the log contains all events of an answer.
pub fn is_taken(answer: &Answer) -> bool {
    let is_rejected = |verdict: Verdict| verdict == Verdict::Rejected;
    !answer.verdicts.iter().any(|one| is_rejected(one.verdict))
}
