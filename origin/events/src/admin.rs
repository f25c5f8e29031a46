//! Operator actions on consumer groups and dead letters: status, seek, pause, resume, edit and resend.

use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;
use weir_event::answer::Answer;

use super::collect::{CollectError, is_taken};
use super::groups::status::GroupReport;
use super::log::{EventLog, Lag, LogError, Position, Source, Target};
use super::store::{DeadFilter, DeadLetter, NewRetry, RetryCounts, STORE_GROUP};
use super::{Events, GroupHandle};
use crate::groups::Unit;
use crate::model::dead_letter::DeadLetterContent;
use weir_event::envelope::Envelope;
use weir_origin_core::sql::SqlError;

/// Maximum number of dead letters in one bulk resend.
pub const RESEND_MAX: u32 = 1_000;

/// Why an operator action failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// A SQL call failed.
    #[error(transparent)]
    Store(#[from] SqlError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log did not accept the event.
    #[error(transparent)]
    Collect(#[from] CollectError),
    /// The dead letter does not exist.
    #[error("dead letter not found")]
    Unknown,
    /// The kind of this dead letter does not allow an edit or a resend.
    #[error("{0}")]
    Kind(&'static str),
}

/// A consumer group.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    /// The runner's own report.
    pub report: GroupReport,
    /// The group's position in each source.
    pub positions: Vec<(Source, Option<Position>)>,
    /// Number of events that the group has not handled yet.
    pub lag: Lag,
    /// Number of events in retry, dead letters and pending recomputations.
    pub retries: RetryCounts,
}

/// Result of a seek or of its dry run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SeekResult)]
pub struct SeekResult {
    /// The source.
    pub source: String,
    /// Position before the seek.
    #[schema(value_type = u64)]
    pub from: Position,
    /// Position after the seek.
    #[schema(value_type = u64)]
    pub to: Position,
    /// Set if the log no longer has the requested position: the group starts at the oldest event, appended at this time
    /// in milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub begins_ms: Option<u64>,
    /// Number of replayed events; only in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub again: Option<u64>,
    /// Number of skipped events; only in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub skipped: Option<u64>,
}

/// Outcome of a resend.
#[derive(Clone, Debug)]
pub enum ResendOutcome {
    /// The event was validated again. If it was accepted, the dead letter is deleted.
    Judged(Answer),
    /// The group retries the event; the dead letter is deleted.
    Retried,
}

/// Returns the status of a group.
///
/// # Errors
/// If a SQL call or the log fails.
pub async fn group_status(events: &Events, group: &GroupHandle) -> Result<GroupStatus, AdminError> {
    let store = events.store();
    let mut status = GroupStatus {
        report: group.status.get(),
        positions: Vec::new(),
        lag: Lag::default(),
        retries: RetryCounts::default(),
    };
    // A log has fifty sources and clients poll this every few seconds: two queries cover all sources.
    let positions = store.positions(&group.name).await?;
    let retries = store.retry_queue().retry_counts(&group.name).await?;
    for source in events.log().sources() {
        let position = positions.get(&*source).copied();
        let lag = events.log().lag(&source, position.unwrap_or(0)).await?;
        status.lag.add(lag);
        if let Some(retries) = retries.get(&*source) {
            status.retries.add(*retries);
        }
        status.positions.push((source, position));
    }
    Ok(status)
}

/// Moves a group in each source of this origin, or only reports the effect (dry run).
///
/// # Errors
/// If a SQL call or the log fails.
pub async fn seek(
    events: &Events,
    group: &GroupHandle,
    target: Target,
    is_dry: bool,
) -> Result<Vec<SeekResult>, AdminError> {
    let (log, store) = (events.log(), events.store());
    let mut query = Vec::new();
    for source in log.sources() {
        let to = log.place(&source, target).await?;
        let from = match store.position(&group.name, &source).await? {
            Some(position) => position,
            None => log.place(&source, Target::Start).await?,
        };
        let mut one = SeekResult {
            source: source.to_string(),
            from,
            to,
            begins_ms: begins_ms(log, &source, target).await?,
            again: None,
            skipped: None,
        };
        if is_dry {
            let count = log.count(&source, from.min(to), from.max(to)).await?;
            let is_back = to < from;
            one.again = Some(if is_back { count } else { 0 });
            one.skipped = Some(if is_back { 0 } else { count });
        } else {
            store
                .seek(&group.name, &source, to, events.now_ms())
                .await?;
        }
        query.push(one);
    }
    group.wake();
    Ok(query)
}

/// The append time of the oldest event of a source, if the target is older than that event.
async fn begins_ms(
    log: &Arc<dyn EventLog>,
    source: &Source,
    target: Target,
) -> Result<Option<u64>, LogError> {
    let first = match target {
        Target::Start | Target::End => return Ok(None),
        Target::Time(_) | Target::Position(_) => log.place(source, Target::Start).await?,
    };
    let oldest_ms = log.lag(source, first).await?.oldest_ms;
    Ok(oldest_ms.filter(|oldest_ms| match target {
        Target::Time(time_ms) => time_ms < *oldest_ms,
        Target::Position(position) => position < first,
        Target::Start | Target::End => false,
    }))
}

/// Pauses or resumes a group in all origins.
///
/// # Errors
/// If a SQL call fails.
pub async fn set_paused(
    events: &Events,
    group: &GroupHandle,
    is_paused: bool,
) -> Result<(), AdminError> {
    let (store, now_ms) = (events.store(), events.now_ms());
    store.set_paused(&group.name, is_paused, now_ms).await?;
    group.wake();
    Ok(())
}

/// Makes all retries of a group due now and returns their number.
///
/// # Errors
/// If a SQL call fails.
pub async fn retry_now(events: &Events, group: &GroupHandle) -> Result<u64, AdminError> {
    let mut count = 0;
    for source in events.log().sources() {
        let (store, now_ms) = (events.store(), events.now_ms());
        count += store
            .retry_queue()
            .retry_now(&group.name, &source, now_ms)
            .await?;
    }
    group.wake();
    Ok(count)
}

/// Replaces the event of a dead letter that was refused on arrival.
///
/// # Errors
/// If the dead letter does not exist or is of another kind.
pub async fn replace_refused(
    events: &Events,
    id: &str,
    event: String,
) -> Result<DeadLetter, AdminError> {
    let letter = find(events, id).await?;
    let DeadLetterContent::Sent(mut sent) = content_of(&letter)? else {
        return Err(AdminError::Kind(
            "only events refused on arrival can be edited: a group gets its events unchanged from the log",
        ));
    };
    sent.event = event;
    sent.is_cut = false;
    let json = DeadLetterContent::Sent(sent).to_json();
    let (store, now_ms) = (events.store(), events.now_ms());
    match store.letters().edit_dead_letter(id, &json, now_ms).await? {
        true => find(events, id).await,
        false => Err(AdminError::Unknown),
    }
}

/// Resends a dead letter: validates it again, or returns it to its group.
///
/// # Errors
/// If the dead letter does not exist, is of another kind, or cannot be accepted now.
pub async fn resend(events: &Events, id: &str) -> Result<ResendOutcome, AdminError> {
    let letter = find(events, id).await?;
    resend_letter(events, &letter).await
}

async fn resend_letter(events: &Events, letter: &DeadLetter) -> Result<ResendOutcome, AdminError> {
    match content_of(letter)? {
        DeadLetterContent::Sent(sent) => {
            let answer = events.collector().collect_again(&sent).await?;
            if is_taken(&answer) {
                // If this fails, the event is sent twice but counts once, because it has an id.
                events
                    .store()
                    .letters()
                    .delete_dead_letter(&letter.id)
                    .await?;
            }
            Ok(ResendOutcome::Judged(answer))
        }
        DeadLetterContent::GivenUp {
            source,
            position,
            received_ms,
            envelope,
        } => {
            let unfit = AdminError::Kind("the event has an unsupported version");
            let Some((envelope, unit)) = read_envelope(&envelope) else {
                return Err(unfit);
            };
            let retry = NewRetry {
                position,
                unit,
                envelope,
                received_ms,
                tries: 0,
                due_ms: Some(events.now_ms()),
                error: String::new(),
            };
            revive(events, letter, &source, &retry).await
        }
        DeadLetterContent::Record { .. } => Err(AdminError::Kind("it is not an event")),
    }
}

async fn revive(
    events: &Events,
    letter: &DeadLetter,
    source: &str,
    retry: &NewRetry,
) -> Result<ResendOutcome, AdminError> {
    if letter.group == STORE_GROUP {
        return Err(AdminError::Kind(
            "another stored event has its id: send it again with a new id",
        ));
    }
    let group = events.group(&letter.group).ok_or(AdminError::Kind(
        "its consumer group does not run in this origin",
    ))?;
    let is_ours = |existing: &Source| **existing == *source;
    if !events.log().sources().iter().any(is_ours) {
        return Err(AdminError::Kind(
            "it came from another origin's log: send it again there",
        ));
    }
    let store = events.store();
    match store
        .retry_queue()
        .revive(&letter.group, source, retry, &letter.id)
        .await?
    {
        true => {
            group.wake();
            Ok(ResendOutcome::Retried)
        }
        false => Err(AdminError::Unknown),
    }
}

/// Resends many dead letters, newest first. Returns the number accepted and the number left.
///
/// # Errors
/// If a call fails; the letters before it were resent.
pub async fn resend_many(
    events: &Events,
    group: Option<&str>,
    reason: Option<&str>,
    limit: u32,
) -> Result<(u64, u64), AdminError> {
    let filter = DeadFilter {
        group,
        reason,
        after: None,
        limit: limit.min(RESEND_MAX),
    };
    let (mut accepted, mut remaining) = (0, 0);
    for letter in events.store().letters().dead_letters(filter).await? {
        match resend_letter(events, &letter).await {
            Ok(ResendOutcome::Retried) => accepted += 1,
            Ok(ResendOutcome::Judged(answer)) if is_taken(&answer) => accepted += 1,
            Ok(ResendOutcome::Judged(_)) | Err(AdminError::Kind(_) | AdminError::Unknown) => {
                remaining += 1
            }
            Err(error) => return Err(error),
        }
    }
    Ok((accepted, remaining))
}

/// Decodes an envelope from hexadecimal digits and returns it with the event's unit.
fn read_envelope(hex: &str) -> Option<(Vec<u8>, String)> {
    let bytes = hex::decode(hex).ok()?;
    let unit = Unit::from_envelope(&Envelope::decode(&bytes).ok()?).to_text();
    Some((bytes, unit))
}

async fn find(events: &Events, id: &str) -> Result<DeadLetter, AdminError> {
    let letter = events.store().letters().dead_letter(id).await?;
    letter.ok_or(AdminError::Unknown)
}

fn content_of(letter: &DeadLetter) -> Result<DeadLetterContent, AdminError> {
    DeadLetterContent::from_json(&letter.content)
        .map_err(|_| AdminError::Kind("unsupported version"))
}
