//! Funnels: how many customers do one thing, then another, and then perhaps a third, within a time.
//!
//! A page reads the customers of about 10,000 events of the first type. Every customer is on one page, so the counts of
//! pages add up.

use std::collections::BTreeMap;

use weir_event::window::{Occurrence, steps_within};

use super::store::{CustomerRange, EventTimes, FunnelStore};
use weir_origin_core::sql::SqlError;

/// Maximum number of steps.
pub const STEPS_MAX: usize = 3;

/// Number of chunks on a page.
const CHUNKS: usize = 10;

/// Selects a funnel.
#[derive(Clone, Copy, Debug)]
pub struct Funnel<'a> {
    /// The types of the steps, which differ.
    pub steps: &'a [&'a str],
    /// The first step is from this time on, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// The first step is before this time, in milliseconds since the Unix epoch.
    pub to_ms: u64,
    /// Maximum time from the first to the last step, in milliseconds.
    pub within_ms: u64,
}

/// A page of a funnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunnelPage {
    /// Number of customers who completed each step.
    pub customers: Vec<u64>,
    /// Whether all events of these customers were read.
    pub is_complete: bool,
    /// The last customer of the page; `None`: no customer follows.
    pub next: Option<String>,
}

/// An event of a step.
struct StepEvent<'a> {
    step: &'a str,
    at_ms: u64,
}

impl Occurrence for StepEvent<'_> {
    fn event_type(&self) -> &str {
        self.step
    }

    fn at_ms(&self) -> u64 {
        self.at_ms
    }
}

impl Funnel<'_> {
    /// Counts the next customers after this one.
    ///
    /// # Errors
    /// If SQL fails.
    pub async fn page(&self, store: FunnelStore<'_>, after: &str) -> Result<FunnelPage, SqlError> {
        let mut page = FunnelPage {
            customers: vec![0; self.steps.len()],
            is_complete: true,
            next: Some(after.to_owned()),
        };
        let Some((first, later)) = self.steps.split_first() else {
            page.next = None;
            return Ok(page);
        };
        for _ in 0..CHUNKS {
            let Some(after) = &page.next else {
                break;
            };
            let range = store.customer_range(first, after).await?;
            self.count(store, &range, first, later, &mut page).await?;
            page.next = (!range.is_last).then_some(range.to);
        }
        Ok(page)
    }

    async fn count(
        &self,
        store: FunnelStore<'_>,
        range: &CustomerRange,
        first: &str,
        later: &[&str],
        page: &mut FunnelPage,
    ) -> Result<(), SqlError> {
        let times = (self.from_ms, self.to_ms);
        let starts = store.times_in(first, range, times).await?;
        page.is_complete &= starts.is_complete;
        let mut courses: BTreeMap<String, Vec<StepEvent<'_>>> = BTreeMap::new();
        let add = |courses: &mut BTreeMap<String, Vec<_>>, times: EventTimes, step| {
            for (customer, at_ms) in times.events {
                let course = courses.entry(customer).or_default();
                course.push(StepEvent { step, at_ms });
            }
        };
        add(&mut courses, starts, first);
        let customers: Vec<String> = courses.keys().cloned().collect();
        let customers: Vec<&str> = customers.iter().map(String::as_str).collect();
        let until_ms = self.to_ms.saturating_add(self.within_ms);
        for step in later {
            let times = (self.from_ms, until_ms);
            let found = store.times_of(step, &customers, times).await?;
            page.is_complete &= found.is_complete;
            add(&mut courses, found, step);
        }
        for course in courses.values_mut() {
            // Steps of the same millisecond keep their order in the funnel.
            course.sort_by_key(StepEvent::at_ms);
            let reached = self.reached(course);
            for count in page.customers.iter_mut().take(reached) {
                *count += 1;
            }
        }
        Ok(())
    }

    fn reached(&self, course: &[StepEvent<'_>]) -> usize {
        match *self.steps {
            [a, b] => steps_within(course, [a, b], self.within_ms),
            [a, b, c] => steps_within(course, [a, b, c], self.within_ms),
            _ => 0,
        }
    }
}
