//! Calls a handler with a time limit and isolates its failures: the group continues if the handler hangs, panics or
//! omits events.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use weir_event::envelope::Envelope;

use super::{Delivery, Handler, Outcome, Unit};

/// Returns one outcome per event. If the handler panics on several events, each is handled alone, because one of them
/// may be the cause.
pub(super) async fn call(
    handler: &Arc<dyn Handler>,
    events: Vec<Delivery>,
    limit: Duration,
) -> Vec<Outcome> {
    let events = Arc::new(events);
    match try_call(handler, &events, limit).await {
        Ok(outcomes) => outcomes,
        Err(error) if !error.is_panic || events.len() == 1 => {
            vec![Outcome::Failed(error.message); events.len()]
        }
        Err(_) => {
            let mut outcomes = Vec::with_capacity(events.len());
            for event in events.iter() {
                let alone = Arc::new(vec![event.clone()]);
                let reply = try_call(handler, &alone, limit).await;
                let reply = reply.unwrap_or_else(|error| vec![Outcome::Failed(error.message)]);
                outcomes.extend(reply);
            }
            outcomes
        }
    }
}

struct CallError {
    is_panic: bool,
    message: String,
}

async fn try_call(
    handler: &Arc<dyn Handler>,
    events: &Arc<Vec<Delivery>>,
    limit: Duration,
) -> Result<Vec<Outcome>, CallError> {
    let (handler, input) = (handler.clone(), events.clone());
    let outcomes = within(limit, async move { handler.handle(&input).await }).await?;
    match outcomes.len() == events.len() {
        true => Ok(outcomes),
        false => Err(CallError {
            is_panic: false,
            message: format!(
                "the handler returned {} outcomes for {} events",
                outcomes.len(),
                events.len()
            ),
        }),
    }
}

/// Returns the error message, if the call failed.
pub(super) async fn recompute(
    handler: &Arc<dyn Handler>,
    unit: Unit,
    events: Vec<Envelope>,
    limit: Duration,
) -> Option<String> {
    let handler = handler.clone();
    let recomputed = within(limit, async move {
        match handler.recompute(&unit, &events) {
            Some(recomputed) => recomputed.await,
            None => Ok(()),
        }
    });
    match recomputed.await {
        Ok(recomputed) => recomputed.err(),
        Err(error) => Some(error.message),
    }
}

/// Runs the future in its own task. The task ends at the time limit, or when the caller stops waiting.
async fn within<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, CallError> {
    let mut tasks = JoinSet::new();
    tasks.spawn(work);
    match tokio::time::timeout(limit, tasks.join_next()).await {
        Ok(Some(Ok(done))) => Ok(done),
        Ok(_) => Err(CallError {
            is_panic: true,
            message: "the handler panicked".to_owned(),
        }),
        Err(_) => Err(CallError {
            is_panic: false,
            message: format!("the handler did not finish within {limit:?}"),
        }),
    }
}
