//! The group `store`: writes events and dead letters from the log to SQL, exactly once, in one transaction with its
//! position.

use std::sync::Arc;

use tracing::error;
use weir_event::row_key;

use super::runner::{DueRetries, StepResult, Work, WorkError};
use crate::Clock;
use crate::log::{Batch, Source};
use crate::metrics::EventMetrics;
use crate::model::dead_letter;
use crate::registry::Registry;
use crate::store::{EventStore, Move, NewEvent, STORE_GROUP, Step, StoreBatch};

/// Writes events into SQL.
pub(crate) struct StoreWork {
    pub(crate) store: EventStore,
    pub(crate) registry: Arc<Registry>,
    pub(crate) metrics: EventMetrics,
    pub(crate) clock: Clock,
}

impl StoreWork {
    fn read(&self, batch: &Batch) -> StoreBatch {
        let mut read = StoreBatch::default();
        let types = self.registry.types();
        let source = &batch.source;
        let events = dead_letter::events_of(&batch.records, |record, other| match other {
            Ok(refused) => read
                .dead
                .push(dead_letter::of_refused(source, record, refused)),
            Err(problem) => {
                error!(%problem, %source, position = record.position, "invalid record in the event log");
                let unreadable = dead_letter::of_unreadable(source, record, &problem);
                read.dead.push(unreadable);
            }
        });
        for (record, envelope) in events {
            let retention_ms = types.retention_ms(envelope.event_type.as_str());
            read.events.push(NewEvent {
                row_key: row_key::of_id(envelope.id.as_str()),
                event_type: envelope.event_type.as_str().to_owned(),
                customer: envelope.customer.as_ref().map(|id| id.as_str().to_owned()),
                visitor: envelope.visitor.as_ref().map(|id| id.as_str().to_owned()),
                at_ms: envelope.at_ms,
                received_ms: envelope.received_ms,
                position: record.position,
                fingerprint: envelope.fingerprint.to_string(),
                envelope: envelope.encode(),
                expires_at_ms: envelope.received_ms.saturating_add(retention_ms),
            });
        }
        read
    }
}

impl Work for StoreWork {
    async fn begin(&mut self, _: &Source, _: u64) -> Result<(), WorkError> {
        Ok(())
    }

    async fn take(&mut self, batch: &Batch, from: u64) -> Result<StepResult, WorkError> {
        let read = self.read(batch);
        let to = Move {
            group: STORE_GROUP,
            source: &batch.source,
            from,
            to: batch.next,
            now_ms: (self.clock)(),
        };
        let (step, stored) = self.store.store(to, &read).await?;
        if step == Step::Taken {
            self.metrics.stored(stored);
            let handled = read.events.len() as u64;
            self.metrics.handled(STORE_GROUP, handled);
        }
        Ok(StepResult::after_step(step, batch.next))
    }

    async fn do_due(&mut self, _: &Source, _: u64) -> Result<DueRetries, WorkError> {
        Ok(DueRetries::default())
    }
}
