//! Repeats writes of reserved and blocked users to Redis.
//!
//! Redis may lose its last writes: a failover loses writes that the replica had not received, a power failure those
//! that were not on disk yet. A missing or stale list entry cannot be detected. So each change is written again from
//! SQL after a while, when the write must have become durable.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weir_base::id::{SaleId, UserId};

use crate::ledger::UserList;

/// Delays after which a change is written again: soon, because most losses affect the last second, and once more later.
const AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// Maximum number of queued changes, to bound memory. Beyond it the oldest are dropped.
const WAITING_MAX: usize = 200_000;

/// A change of a user on a sale's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// Time of the change.
    pub at: Instant,
    /// The sale.
    pub sale: SaleId,
    /// The list.
    pub list: UserList,
    /// The user.
    pub user: UserId,
}

/// Queued changes, oldest first: one queue per delay.
#[derive(Debug, Default)]
pub struct ListChanges {
    waiting: [VecDeque<ListChange>; AGAIN.len()],
}

impl ListChanges {
    /// Queues a change.
    pub fn note(&mut self, change: ListChange) {
        for line in &mut self.waiting {
            if line.len() == WAITING_MAX {
                line.pop_front();
            }
            line.push_back(change.clone());
        }
    }

    /// Removes and returns the changes that are due.
    pub fn due(&mut self) -> Vec<ListChange> {
        let now = Instant::now();
        let mut due = Vec::new();
        for (line, after) in self.waiting.iter_mut().zip(AGAIN) {
            while let Some(change) = line.pop_front_if(|c| now.duration_since(c.at) >= after) {
                due.push(change);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_change_is_repeated_twice_and_the_queue_is_bounded() {
        let mut changes = ListChanges::default();
        let change = |age_s, user: &str| ListChange {
            at: Instant::now() - Duration::from_secs(age_s),
            sale: SaleId::new("s").unwrap(),
            list: UserList::Blocked,
            user: UserId::new(user).unwrap(),
        };
        for (age_s, user) in [(11, "old"), (3, "young"), (0, "new")] {
            changes.note(change(age_s, user));
        }
        let mut users = || -> Vec<String> {
            let due = changes.due().into_iter();
            due.map(|change| change.user.to_string()).collect()
        };
        assert_eq!(users(), ["old", "young", "old"]);
        assert!(users().is_empty());
        for n in 0..=WAITING_MAX {
            changes.note(change(3, &format!("u{n}")));
        }
        assert_eq!(changes.due().len(), WAITING_MAX);
    }
}
