//! Deletes expired events, and measures the lag of groups.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Events;
use super::admin::group_status;
use weir_origin_core::background::Interval;

/// Interval of deletions.
const CLEAN_PERIOD: Duration = Duration::from_secs(60);

/// Number of events deleted in one transaction.
const CLEAN_LIMIT: u32 = 1_000;

/// Retention of archive steps: longer than the log retains handled records.
const ARCHIVES_KEPT_MS: u64 = 62 * 24 * 60 * 60 * 1_000;

/// Retention of the number of events by hour: more than a year, to compare with the last one.
const COUNTS_KEPT_MS: u64 = 400 * 24 * 60 * 60 * 1_000;

/// Interval of lag measurements.
const MEASURE_PERIOD: Duration = Duration::from_secs(5);

/// Deletes expired events, dead letters and log files until `stop`.
pub(super) async fn clean(events: Events, stop: CancellationToken) {
    let mut interval = Interval::every(CLEAN_PERIOD, "deleting old events", stop);
    while interval.next().await {
        let cleaned = clean_once(&events).await;
        interval.ended(&cleaned);
        if matches!(cleaned, Ok(true)) {
            interval.next_at_once();
        }
    }
}

/// Runs one round. Returns whether more is left to delete.
async fn clean_once(events: &Events) -> Result<bool, anyhow::Error> {
    let now_ms = events.now_ms();
    let (log, store) = (events.log().clone(), events.store());
    tokio::task::spawn_blocking(move || log.retain(now_ms)).await??;
    let letters_ms = now_ms.saturating_sub(events.0.dead_letters_kept_ms);
    store.letters().clean_dead_letters(letters_ms).await?;
    let archives_ms = now_ms.saturating_sub(ARCHIVES_KEPT_MS);
    store.archives().clean_archives(archives_ms).await?;
    let counts_ms = now_ms.saturating_sub(COUNTS_KEPT_MS);
    store.counts().clean_counts(counts_ms).await?;
    let deleted = store.clean_events(now_ms, CLEAN_LIMIT).await?;
    events.metrics().expired.inc_by(deleted);
    Ok(deleted == u64::from(CLEAN_LIMIT))
}

/// Measures the lag of groups until `stop`.
pub(super) async fn measure(events: Events, stop: CancellationToken) {
    let mut interval = Interval::every(MEASURE_PERIOD, "measuring consumer groups", stop);
    while interval.next().await {
        let measured = measure_once(&events).await;
        interval.ended(&measured);
    }
}

async fn measure_once(events: &Events) -> Result<(), anyhow::Error> {
    events.metrics().fill(events.log().fill());
    for group in events.groups() {
        let current = group_status(events, group).await?;
        let metrics = events.metrics();
        metrics.group_is(
            &group.name,
            current.report.state,
            current.lag,
            current.retries,
            events.now_ms(),
        );
    }
    Ok(())
}
