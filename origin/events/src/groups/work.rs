//! The work of a group with a [`Handler`]: handles events, retries failures, and creates dead letters after the last
//! retry.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tracing::error;

use super::health::Health;
use super::marks::Watch;
use super::runner::{DueRetries, StepResult, Work, WorkError};
use super::{Delivery, GroupTimes, Handler, NewGroup, Outcome, Unit, call};
use crate::Clock;
use crate::log::{Batch, EventLog, Source};
use crate::metrics::EventMetrics;
use crate::model::dead_letter::{self, CROWDED, REFUSED, TRIES};
use crate::store::{
    CourseFilter, CourseOwner, EventStore, Move, NewRetry, Retry, SettledRetry, Settlement, Step,
};

/// Number of events in one round of retries.
const RETRIES: u32 = 100;

/// Maximum number of one customer's events that wait behind a failed one. Further events become dead letters, and the
/// customer is recomputed.
const WAITING_MAX: u64 = 1_000;

/// Maximum number of events in retry. Above it the group reports an outage.
const RETRIES_MAX: u64 = 100_000;

/// Maximum number of a customer's events in one recomputation.
const RECOMPUTED_MAX: u32 = 10_000;

/// Handles events for one group.
pub(crate) struct EventWork {
    group: NewGroup,
    store: EventStore,
    metrics: EventMetrics,
    times: GroupTimes,
    clock: Clock,
    health: Health,
    /// Number of events in retry by unit.
    waiting: HashMap<String, u64>,
    /// Outcomes so far of the batch that is retried after an outage.
    progress: Option<Progress>,
    watch: Option<Watch>,
}

struct Progress {
    source: Source,
    from: u64,
    outcomes: Vec<Option<Outcome>>,
}

impl EventWork {
    pub(crate) fn new(
        group: NewGroup,
        log: Arc<dyn EventLog>,
        store: EventStore,
        metrics: EventMetrics,
        times: GroupTimes,
        clock: Clock,
    ) -> Self {
        let marks = group.marks.clone();
        let name = || group.name.clone();
        let watch = marks.map(|marks| Watch::new(name(), marks, log, metrics.clone()));
        Self {
            watch,
            group,
            store,
            metrics,
            times,
            clock,
            health: Health::default(),
            waiting: HashMap::new(),
            progress: None,
        }
    }

    fn handler(&self) -> &Arc<dyn Handler> {
        &self.group.handler
    }

    fn is_ours(&self, delivery: &Delivery) -> bool {
        let topics = &delivery.envelope.topics;
        self.group.topics.as_ref().is_none_or(|ours| {
            let is_ours = |topic: &weir_event::name::Topic| ours.contains(topic.as_str());
            topics.iter().any(is_ours)
        })
    }

    fn read(&self, batch: &Batch) -> Vec<Delivery> {
        let events = dead_letter::events_of(&batch.records, |record, other| {
            // The group `store` stores it as a dead letter.
            if let Err(problem) = other {
                error!(%problem, group = self.group.name, position = record.position, "record is not an event");
            }
        });
        let delivery = |(record, envelope): (&crate::log::Record, Box<_>)| Delivery {
            envelope: *envelope,
            position: record.position,
            tries: 0,
        };
        let deliveries = events.into_iter().map(delivery);
        deliveries
            .filter(|delivery| self.is_ours(delivery))
            .collect()
    }

    /// Handles all events without an outcome that are not blocked: at most one per unit at a time, and none after a
    /// failed one.
    async fn handle(
        &self,
        events: &[Delivery],
        is_blocked: impl Fn(&str) -> bool + Send + Sync,
        outcomes: &mut [Option<Outcome>],
    ) {
        loop {
            let picked = self.pick(events, &is_blocked, outcomes);
            if picked.is_empty() {
                return;
            }
            let chosen = picked.iter().filter_map(|at| events.get(*at).cloned());
            let replies = call::call(self.handler(), chosen.collect(), self.times.handle_max).await;
            for (at, outcome) in picked.into_iter().zip(replies) {
                if let Some(slot) = outcomes.get_mut(at) {
                    *slot = Some(outcome);
                }
            }
        }
    }

    fn pick(
        &self,
        events: &[Delivery],
        is_blocked: &(impl Fn(&str) -> bool + Send + Sync),
        outcomes: &[Option<Outcome>],
    ) -> Vec<usize> {
        let mut busy = HashSet::new();
        let mut picked = Vec::new();
        for (at, (event, outcome)) in events.iter().zip(outcomes).enumerate() {
            let unit = self.unit(event);
            match outcome {
                Some(Outcome::Failed(_)) => drop(busy.insert(unit)),
                Some(_) => {}
                None if unit.is_empty() => picked.push(at),
                None if is_blocked(&unit) => {}
                None if busy.insert(unit) => picked.push(at),
                None => {}
            }
        }
        picked
    }

    /// The ordering key of an event; empty if it has no order.
    fn unit(&self, event: &Delivery) -> String {
        match self.handler().keeps_order() {
            true => Unit::from_envelope(&event.envelope).to_text(),
            false => String::new(),
        }
    }

    /// Keeps only successful outcomes: all other events are handled again after an outage.
    fn forget_failures(outcomes: &mut [Option<Outcome>]) {
        for outcome in outcomes {
            if *outcome != Some(Outcome::Done) {
                *outcome = None;
            }
        }
    }

    /// Splits the unhandled events of a batch into retries and dead letters.
    fn decide<'a>(
        &self,
        source: &str,
        retries: &'a [(Retry, Option<Outcome>)],
        now_ms: u64,
    ) -> (Vec<Retry>, Vec<SettledRetry<'a>>) {
        let (mut again, mut dead) = (Vec::new(), Vec::new());
        let mut added: HashMap<&str, u64> = HashMap::new();
        for (retry, outcome) in retries {
            let reason = match outcome {
                Some(Outcome::Done) => continue,
                Some(Outcome::Refused(message)) => (REFUSED, message.clone()),
                Some(Outcome::Failed(_)) | None => {
                    let waiting = self.waiting.get(&retry.unit).copied().unwrap_or(0);
                    let added = added.entry(&retry.unit).or_default();
                    if retry.unit.is_empty() || waiting + *added < WAITING_MAX {
                        *added += 1;
                        again.push(retry.clone());
                        continue;
                    }
                    let message =
                        format!("{WAITING_MAX} events of this customer are already waiting");
                    (CROWDED, message)
                }
            };
            let settlement = self.given_up(source, retry, reason.0, &reason.1, now_ms);
            dead.push(SettledRetry { retry, settlement });
        }
        (again, dead)
    }

    fn given_up(
        &self,
        source: &str,
        retry: &Retry,
        reason: &str,
        message: &str,
        now_ms: u64,
    ) -> Settlement {
        let group = &self.group.name;
        let letter = dead_letter::of_given_up(group, source, retry, reason, message, now_ms);
        let is_known = self.handler().can_recompute() && !retry.unit.is_empty();
        let at_ms = now_ms.saturating_add(self.times.recompute_after_ms);
        Settlement::Dead {
            letter: Box::new(letter),
            compensate_at_ms: is_known.then_some(at_ms),
        }
    }

    /// The next state of an event after a retry.
    fn settlement(&self, source: &str, retry: &Retry, outcome: Outcome, now_ms: u64) -> Settlement {
        match outcome {
            Outcome::Done => Settlement::Done,
            Outcome::Refused(message) => self.given_up(source, retry, REFUSED, &message, now_ms),
            Outcome::Failed(error) => {
                let after_ms = usize::try_from(retry.tries).ok();
                let after_ms = after_ms.and_then(|tries| self.times.retries_after_ms.get(tries));
                match after_ms {
                    Some(after_ms) => Settlement::Again {
                        due_ms: now_ms.saturating_add(*after_ms),
                        error,
                    },
                    None => self.given_up(source, retry, TRIES, &error, now_ms),
                }
            }
        }
    }

    async fn try_again(&mut self, source: &Source) -> Result<(), WorkError> {
        let (group, now_ms) = (self.group.name.clone(), (self.clock)());
        let due = self
            .store
            .retry_queue()
            .due(&group, source, now_ms, RETRIES)
            .await?;
        if due.is_empty() {
            return Ok(());
        }
        let mut settled = Vec::with_capacity(due.len());
        let mut events = Vec::with_capacity(due.len());
        for retry in &due {
            match weir_event::envelope::Envelope::decode(&retry.envelope) {
                Ok(envelope) => events.push((retry, delivery(retry, envelope))),
                Err(error) => settled.push(SettledRetry {
                    retry,
                    settlement: self.given_up(source, retry, REFUSED, &error.to_string(), now_ms),
                }),
            }
        }
        let deliveries: Vec<Delivery> = events.iter().map(|(_, event)| event.clone()).collect();
        let mut outcomes = vec![None; deliveries.len()];
        self.handle(&deliveries, |_| false, &mut outcomes).await;
        let now_ms = (self.clock)();
        for ((retry, _), outcome) in events.into_iter().zip(outcomes) {
            // An event behind one that just failed is due the next time.
            let Some(outcome) = outcome else { continue };
            self.metrics.tried_again(&group, outcome == Outcome::Done);
            let settlement = self.settlement(source, retry, outcome, now_ms);
            settled.push(SettledRetry { retry, settlement });
        }
        self.metrics.given_up(&group, dead_count(&settled));
        let remaining = self
            .store
            .retry_queue()
            .settle(&group, source, &settled, now_ms)
            .await?;
        for (one, remaining) in settled.iter().zip(remaining) {
            match remaining {
                0 => drop(self.waiting.remove(&one.retry.unit)),
                remaining => drop(self.waiting.insert(one.retry.unit.clone(), remaining)),
            }
        }
        Ok(())
    }

    /// Recomputes customers with a dead letter.
    async fn compensate(&self) -> Result<(), WorkError> {
        let group = &self.group.name;
        let now_ms = (self.clock)();
        for requested in self
            .store
            .replays()
            .compensations_due(group, now_ms, 1)
            .await?
        {
            let failure = self.recompute(&requested.unit).await?;
            let Some(failure) = failure else {
                self.store.replays().compensated(group, &requested).await?;
                self.metrics.recomputed(group);
                continue;
            };
            error!(
                error = failure,
                group,
                unit = requested.unit,
                "cannot recompute a customer"
            );
            let after_ms = usize::try_from(requested.tries).ok();
            let after_ms = after_ms.and_then(|tries| self.times.retries_after_ms.get(tries));
            let due_ms = after_ms.map(|after_ms| now_ms.saturating_add(*after_ms));
            let store = &self.store;
            store
                .replays()
                .postpone_compensation(group, &requested, due_ms, &failure)
                .await?;
        }
        Ok(())
    }

    /// Recomputes a unit and returns the error message, if it failed.
    async fn recompute(&self, unit: &str) -> Result<Option<String>, WorkError> {
        let unit = Unit::from_text(unit);
        let course = match &unit {
            Unit::Customer(id) => CourseOwner::Customer(id),
            Unit::Visitor(id) => CourseOwner::Visitor(id),
            Unit::Nobody => return Ok(None),
        };
        let filter = CourseFilter {
            event_type: None,
            from_ms: 0,
            to_ms: u64::MAX,
            latest_first: true,
            after: None,
            limit: RECOMPUTED_MAX,
        };
        let mut events = Vec::new();
        for (_, envelope) in self.store.course(course, filter).await?.into_iter().rev() {
            match weir_event::envelope::Envelope::decode(&envelope) {
                Ok(envelope) => events.push(envelope),
                Err(error) => return Ok(Some(error.to_string())),
            }
        }
        let limit = self.times.handle_max;
        Ok(call::recompute(self.handler(), unit, events, limit).await)
    }
}

impl Work for EventWork {
    fn keep(&mut self, sources: &[Source]) {
        if let Some(watch) = &mut self.watch {
            watch.keep(sources);
        }
    }

    async fn place(&mut self, source: &Source, position: u64) -> Result<u64, WorkError> {
        match &mut self.watch {
            Some(watch) => watch.place(source, position).await,
            None => Ok(position),
        }
    }

    async fn begin(&mut self, source: &Source, at: u64) -> Result<(), WorkError> {
        if let Some(watch) = &mut self.watch {
            watch.begin(source, at).await?;
        }
        let units = self
            .store
            .retry_queue()
            .retried_units(&self.group.name, source)
            .await?;
        self.waiting = units.into_iter().collect();
        self.progress = None;
        Ok(())
    }

    async fn take(&mut self, batch: &Batch, from: u64) -> Result<StepResult, WorkError> {
        let events = self.read(batch);
        if self.waiting.values().sum::<u64>() >= RETRIES_MAX {
            // Events in retry continue meanwhile.
            self.try_again(&batch.source).await?;
            let message = format!("{RETRIES_MAX} events are already in retry");
            return Err(WorkError::Outage(message));
        }
        let existing = self.progress.take();
        let existing =
            existing.filter(|existing| existing.source == batch.source && existing.from == from);
        let mut outcomes =
            existing.map_or_else(|| vec![None; events.len()], |existing| existing.outcomes);
        self.handle(
            &events,
            |unit| self.waiting.contains_key(unit),
            &mut outcomes,
        )
        .await;
        let attempted: Vec<bool> = outcomes
            .iter()
            .flatten()
            .map(|o| *o == Outcome::Done)
            .collect();
        if self.health.is_outage(&attempted) {
            let error = first_failure(&outcomes);
            Self::forget_failures(&mut outcomes);
            self.progress = Some(Progress {
                source: batch.source.clone(),
                from,
                outcomes,
            });
            self.metrics.outage(&self.group.name);
            return Err(WorkError::Outage(error));
        }
        let step = self.write(batch, from, &events, &outcomes).await;
        match &step {
            Ok(Step::Taken) => self.health.note(&attempted),
            // SQL is unavailable. Keep the outcomes, so that nothing is handled twice if SQL recovers before the
            // process ends.
            Err(_) => {
                self.progress = Some(Progress {
                    source: batch.source.clone(),
                    from,
                    outcomes,
                });
            }
            Ok(Step::Moved) => {}
        }
        Ok(StepResult::after_step(step?, batch.next))
    }

    async fn do_due(&mut self, source: &Source, at: u64) -> Result<DueRetries, WorkError> {
        let back = match &mut self.watch {
            Some(watch) => watch.look(source, at).await?,
            None => None,
        };
        if let Some(back) = back {
            self.go_back(source, back).await?;
            let step = Some(StepResult::Moved);
            return Ok(DueRetries { at_ms: None, step });
        }
        self.try_again(source).await?;
        if self.handler().can_recompute() {
            self.compensate().await?;
        }
        let at_ms = self
            .store
            .retry_queue()
            .next_due(&self.group.name, source)
            .await?;
        Ok(DueRetries { at_ms, step: None })
    }
}

impl EventWork {
    async fn write(
        &mut self,
        batch: &Batch,
        from: u64,
        events: &[Delivery],
        outcomes: &[Option<Outcome>],
    ) -> Result<Step, WorkError> {
        let now_ms = (self.clock)();
        let source = &batch.source;
        let retry = |(event, outcome): (&Delivery, &Option<Outcome>)| {
            (self.retry(event, outcome, now_ms), outcome.clone())
        };
        let rows = events.iter().zip(outcomes);
        let rows = rows.filter(|(_, outcome)| **outcome != Some(Outcome::Done));
        let rows: Vec<(Retry, Option<Outcome>)> = rows.map(retry).collect();
        let back = match &mut self.watch {
            Some(watch) => watch.advance(source, from, batch.next).await?,
            None => None,
        };
        if let Some(back) = back {
            self.go_back(source, back).await?;
            return Ok(Step::Moved);
        }
        let (again, dead) = self.decide(source, &rows, now_ms);
        let to = Move {
            group: &self.group.name,
            source,
            from,
            to: batch.next,
            now_ms,
        };
        let step = match rows.is_empty() {
            true => self.store.step(to).await?,
            false => {
                self.store
                    .retry_queue()
                    .step_with(to, &again, &dead)
                    .await?
            }
        };
        if step == Step::Moved {
            return Ok(step);
        }
        let name = &self.group.name;
        self.metrics
            .handled(name, (events.len() - rows.len()) as u64);
        self.metrics.failed(name, again.len() as u64);
        self.metrics.given_up(name, dead.len() as u64);
        for retry in again {
            *self.waiting.entry(retry.unit).or_default() += 1;
        }
        Ok(step)
    }

    async fn go_back(&self, source: &Source, to: u64) -> Result<(), WorkError> {
        let (group, now_ms) = (&self.group.name, (self.clock)());
        self.store.seek(group, source, to, now_ms).await?;
        Ok(())
    }

    fn retry(&self, event: &Delivery, outcome: &Option<Outcome>, now_ms: u64) -> NewRetry {
        let [first_ms, ..] = self.times.retries_after_ms;
        let (tries, due_ms, error) = match outcome {
            Some(Outcome::Failed(error)) => {
                (1, Some(now_ms.saturating_add(first_ms)), error.clone())
            }
            // It waits behind an earlier event.
            _ => (0, None, String::new()),
        };
        NewRetry {
            position: event.position,
            unit: Unit::from_envelope(&event.envelope).to_text(),
            envelope: event.envelope.encode(),
            received_ms: event.envelope.received_ms,
            tries,
            due_ms,
            error,
        }
    }
}

fn delivery(retry: &Retry, envelope: weir_event::envelope::Envelope) -> Delivery {
    Delivery {
        envelope,
        position: retry.position,
        tries: retry.tries,
    }
}

fn dead_count(settled: &[SettledRetry<'_>]) -> u64 {
    let is_dead = |one: &&SettledRetry<'_>| matches!(one.settlement, Settlement::Dead { .. });
    settled.iter().filter(is_dead).count() as u64
}

fn first_failure(outcomes: &[Option<Outcome>]) -> String {
    let failure = |outcome: &Outcome| match outcome {
        Outcome::Failed(error) | Outcome::Refused(error) => Some(error.clone()),
        Outcome::Done => None,
    };
    outcomes
        .iter()
        .flatten()
        .find_map(failure)
        .unwrap_or_default()
}

/// Parses the topics of a flag.
pub fn topics(names: &[String]) -> Option<BTreeSet<String>> {
    let names: BTreeSet<String> = names.iter().cloned().collect();
    (!names.is_empty()).then_some(names)
}
