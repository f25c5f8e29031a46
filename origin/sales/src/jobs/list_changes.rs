//! Changes of the lists of reserved and blocked users that are written to Redis once more.
//!
//! Redis may lose its last writes: a failover takes what the replica had not heard of, a power cut what was not on the
//! disk yet. Nothing tells of a user who is then missing in a list, or still there. So each change is repeated from SQL
//! after a while, when the write itself must have become safe.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use weir_base::id::{SaleId, UserId};

use crate::ledger::UserList;

/// How long after a change it is written again: soon, since most losses are of the last second, and once more.
const AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// The most changes that wait. Beyond it the oldest are left out, so that memory is bounded.
const WAITING_MAX: usize = 200_000;

/// A user of whom a list of a sale has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChange {
    /// When.
    pub at: Instant,
    /// The sale.
    pub sale: SaleId,
    /// The list.
    pub list: UserList,
    /// The user.
    pub user: UserId,
}

/// Changes that wait, the oldest first: a line for each time that they are written again.
#[derive(Debug, Default)]
pub struct ListChanges {
    waiting: [VecDeque<ListChange>; AGAIN.len()],
}

impl ListChanges {
    /// Notes a change.
    pub fn note(&mut self, change: ListChange) {
        for line in &mut self.waiting {
            if line.len() == WAITING_MAX {
                line.pop_front();
            }
            line.push_back(change.clone());
        }
    }

    /// Takes the changes that are to be written again now.
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
    fn a_change_comes_again_twice_and_no_more_than_fit_are_kept() {
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
