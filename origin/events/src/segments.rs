//! Evaluates segments: every hour, and soon after a change.
//!
//! An evaluation goes through the customers in chunks. For each chunk, the log gets the events of customers who entered
//! or left, then SQL gets the members and the progress. A chunk that a crash interrupted is repeated with the same ids
//! and times, so that each of these events is stored once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use weir_event::consent::Consent;
use weir_event::envelope::{Envelope, EventAttribution};
use weir_event::event::Event;
use weir_event::name::{CustomerId, KeyName, Topic};
use weir_event::row_key;
use weir_event::stamps::{Kind, Stamps};

use super::Events;
use crate::model::segments::SegmentSpec;
use crate::store::{CustomerRange, Member, MemberChanges, Progress, SegmentStore, StoredSegment};
use weir_origin_core::background::Interval;

/// The type of the event of a customer who enters a segment.
pub const ENTERED: &str = "weir.segment.entered";

/// The type of the event of a customer who leaves a segment.
pub const LEFT: &str = "weir.segment.left";

/// The key, and the topic, of both.
const SEGMENTS: &str = "segments";

/// How often to check for due segments.
const LOOK: Duration = Duration::from_secs(5);

/// Time from an evaluation to the next one, in milliseconds.
const PERIOD_MS: u64 = 60 * 60 * 1_000;

/// Time limit of a chunk, in milliseconds. Then another origin may take over.
const LEASE_MS: u64 = 60_000;

/// Maximum number of members of a segment.
const MEMBERS_MAX: u64 = 1_000_000;

/// Evaluates due segments until `stop`.
pub(super) async fn run(events: Events, stop: CancellationToken) {
    let mut interval = Interval::every(LOOK, "evaluating segments", stop.clone());
    let due = || async {
        tokio::select! {
            () = sleep(LOOK) => {}
            () = events.segment_changes().notified() => {}
        }
    };
    while interval.wait(due()).await {
        let evaluated = evaluate_due(&events, &stop).await;
        interval.ended(&evaluated);
    }
}

async fn evaluate_due(events: &Events, stop: &CancellationToken) -> Result<(), anyhow::Error> {
    let store = events.store().segments();
    let lease = || async {
        let now_ms = events.now_ms();
        store.lease_segment(now_ms, now_ms + LEASE_MS).await
    };
    while let Some(mut segment) = lease().await? {
        while !stop.is_cancelled() && !step(events, store, &mut segment).await? {}
        if stop.is_cancelled() {
            return Ok(());
        }
    }
    Ok(())
}

/// Does one chunk of a leased segment. Returns whether no chunk follows.
async fn step(
    events: &Events,
    store: SegmentStore<'_>,
    segment: &mut StoredSegment,
) -> Result<bool, anyhow::Error> {
    if segment.is_deleted {
        return Ok(store.clean_segment(&segment.name).await?);
    }
    if segment.run_ms == 0 {
        let now_ms = events.now_ms();
        if !store.begin_run(segment, now_ms).await? {
            return Ok(true);
        }
        (segment.run_ms, segment.run_members) = (now_ms, 0);
        segment.run_customer.clear();
    }
    let spec: SegmentSpec = serde_json::from_str(&segment.document)?;
    let (range, found) = evaluate_chunk(store, segment, &spec).await?;
    let before = store.members_in(&segment.name, &range).await?;
    let members = segment.run_members + found.len() as u64;
    let changes = changes(&found, &before, spec.notify);
    if spec.notify {
        let notifications = notifications(segment, &changes, &before);
        events.collector().record(notifications).await?;
    }
    let is_done = range.is_last || members >= MEMBERS_MAX;
    let progress = match is_done {
        true => Progress::Done {
            due_ms: segment.run_ms + PERIOD_MS,
            is_complete: range.is_last,
        },
        false => Progress::Chunk {
            leased_until_ms: events.now_ms() + LEASE_MS,
        },
    };
    let is_ours = store
        .settle_chunk(segment, &range, &changes, members, progress)
        .await?;
    (segment.run_customer, segment.run_members) = (range.to, members);
    Ok(is_done || !is_ours)
}

/// The next customers, and which of them meet all conditions.
async fn evaluate_chunk(
    store: SegmentStore<'_>,
    segment: &StoredSegment,
    spec: &SegmentSpec,
) -> Result<(CustomerRange, BTreeSet<String>), anyhow::Error> {
    let (first, others) = spec
        .split()
        .ok_or_else(|| anyhow::anyhow!("segment \"{}\": invalid definition", segment.name))?;
    let range = store.customer_range(segment, &first.event_type).await?;
    let window = |days: std::ops::RangeInclusive<u64>| (*days.start(), *days.end());
    let times = window(first.window(segment.run_ms));
    let counts = store.count_range(&first.event_type, &range, times).await?;
    let mut found: BTreeSet<String> = counts
        .into_iter()
        .filter_map(|(customer, count)| first.range().contains(&count).then_some(customer))
        .collect();
    for condition in others {
        let customers: Vec<&str> = found.iter().map(String::as_str).collect();
        let times = window(condition.window(segment.run_ms));
        let counts = store
            .count_customers(&condition.event_type, &customers, times)
            .await?;
        let count = |customer: &String| counts.get(customer).copied().unwrap_or(0);
        found.retain(|customer| condition.range().contains(&count(customer)));
    }
    Ok((range, found))
}

/// What changes the members from `before` to `found`.
fn changes(found: &BTreeSet<String>, before: &[Member], is_sent: bool) -> MemberChanges {
    let known: BTreeMap<&str, bool> = before
        .iter()
        .map(|member| (member.customer.as_str(), member.is_sent))
        .collect();
    let unsent = |customer: &&String| known.get(customer.as_str()) == Some(&false);
    let is_new = |customer: &&String| !known.contains_key(customer.as_str());
    let left = before.iter().map(|member| &member.customer);
    MemberChanges {
        entered: found.iter().filter(is_new).cloned().collect(),
        left: left
            .filter(|customer| !found.contains(*customer))
            .cloned()
            .collect(),
        sent: match is_sent {
            true => found.iter().filter(unsent).cloned().collect(),
            false => Vec::new(),
        },
        is_sent,
    }
}

/// The events of a chunk: of members who are not sent yet, and of sent ones who left.
fn notifications(
    segment: &StoredSegment,
    changes: &MemberChanges,
    before: &[Member],
) -> Vec<Envelope> {
    let is_sent: BTreeSet<&str> = before
        .iter()
        .filter(|member| member.is_sent)
        .map(|member| member.customer.as_str())
        .collect();
    let entered = changes.entered.iter().chain(&changes.sent);
    let entered = entered.map(|customer| (ENTERED, customer));
    let left = changes.left.iter();
    let left = left.filter(|customer| is_sent.contains(customer.as_str()));
    let all = entered.chain(left.map(|customer| (LEFT, customer)));
    all.filter_map(|(event_type, customer)| notification(segment, event_type, customer))
        .collect()
}

/// `None` if a name is invalid, which it is not in SQL.
fn notification(segment: &StoredSegment, event_type: &str, customer: &str) -> Option<Envelope> {
    let StoredSegment { name, run_ms, .. } = segment;
    let id = row_key::of_id(&format!("{event_type} {name} {run_ms} {customer}"));
    let event = json!({"id": id, "type": event_type, "attributes": {"segment": name}});
    let event = Event::read(&event.to_string()).ok()?;
    let stamps = Stamps {
        key: KeyName::new(SEGMENTS).ok()?,
        kind: Kind::Server,
        received_ms: *run_ms,
        address: None,
        consent: Consent::Full,
    };
    let decided = EventAttribution {
        customer: Some(CustomerId::new(customer).ok()?),
        at_ms: *run_ms,
        topics: vec![Topic::new(SEGMENTS).ok()?],
    };
    Some(Envelope::new(event, &stamps, decided))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn customers(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn members(members: &[(&str, bool)]) -> Vec<Member> {
        let member = |(customer, is_sent): &(&str, bool)| Member {
            customer: (*customer).to_owned(),
            since_ms: 1,
            is_sent: *is_sent,
        };
        members.iter().map(member).collect()
    }

    fn segment() -> StoredSegment {
        StoredSegment {
            name: "vip".to_owned(),
            version: 1,
            document: String::new(),
            changed_at_ms: 1,
            is_deleted: false,
            run_ms: 1_700_000_000_000,
            run_customer: String::new(),
            run_members: 0,
            evaluated_ms: None,
            members: 0,
            is_complete: true,
        }
    }

    #[test]
    fn customers_enter_and_leave_and_late_notices_are_sent() {
        let found = customers(&["ann", "bob", "dan"]);
        let before = members(&[
            ("bob", true),
            ("carl", true),
            ("dan", false),
            ("eve", false),
        ]);
        let changed = changes(&found, &before, true);
        assert_eq!(changed.entered, ["ann"]);
        assert_eq!(changed.left, ["carl", "eve"]);
        assert_eq!(changed.sent, ["dan"]);
        let sent = notifications(&segment(), &changed, &before);
        let sent: Vec<(&str, &str)> = sent
            .iter()
            .map(|one| {
                (
                    one.event_type.as_str(),
                    one.customer.as_ref().unwrap().as_str(),
                )
            })
            .collect();
        assert_eq!(sent, [(ENTERED, "ann"), (ENTERED, "dan"), (LEFT, "carl")]);
        assert!(changes(&found, &before, false).sent.is_empty());
    }

    #[test]
    fn repeated_chunk_sends_the_same_events() {
        let changed = changes(&customers(&["ann"]), &[], true);
        let first = notifications(&segment(), &changed, &[]);
        assert_eq!(first, notifications(&segment(), &changed, &[]));
        let later = StoredSegment {
            run_ms: 1_700_000_000_001,
            ..segment()
        };
        assert_ne!(first[0].id, notifications(&later, &changed, &[])[0].id);
    }
}
