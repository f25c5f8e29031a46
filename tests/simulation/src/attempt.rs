//! Attempts that clients identify with a key. The invariants: one key never results in two orders, whatever is lost. A
//! client that was told of an order gets the same one again.

use std::collections::BTreeMap;

use weir_base::id::UserId;
use weir_sale::idempotency::{AttemptTag, IdempotencyKey};

use crate::sql::ClaimName;

/// A client's attempt: a key of its user, and a body, which matters only as equal or different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attempt {
    pub(crate) key: u32,
    pub(crate) body: u32,
}

impl Attempt {
    /// The key in the request header.
    pub(crate) fn header(self) -> String {
        format!("\"key-{}\"", self.key)
    }

    /// The key as stored in Redis.
    pub(crate) fn tag(self) -> AttemptTag {
        let key = IdempotencyKey::read(self.header().as_bytes());
        key.expect("it is a key").tag()
    }
}

/// A client's answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptOutcome {
    pub(crate) order: ClaimName,
    /// The body of the order.
    pub(crate) body: u32,
}

/// Observations of attempts by user and key.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    made: BTreeMap<(UserId, u32), ClaimName>,
    reported: BTreeMap<(UserId, u32), AttemptOutcome>,
}

impl Attempts {
    /// SQL has made an order for an attempt. Returns the violation, if any.
    pub(crate) fn note_made(
        &mut self,
        user: &UserId,
        attempt: Attempt,
        order: ClaimName,
    ) -> Option<String> {
        let before = self.made.insert((user.clone(), attempt.key), order)?;
        let key = attempt.key;
        Some(format!(
            "key {key} of {user} gave two orders: {before:?}, {order:?}"
        ))
    }

    /// A client was told that its attempt is an order. Returns the violation, if any.
    pub(crate) fn note_told(
        &mut self,
        user: &UserId,
        attempt: Attempt,
        order: ClaimName,
    ) -> Option<String> {
        let Attempt { key, body } = attempt;
        let now = AttemptOutcome { order, body };
        let acknowledged = self.reported.entry((user.clone(), key));
        let before = *acknowledged.or_insert(now);
        (before != now)
            .then(|| format!("key {key} of {user} was told {before:?}, and then {now:?}"))
    }

    /// The first answer of each attempt that became an order.
    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = (&UserId, u32, AttemptOutcome)> {
        let acknowledged = self.reported.iter();
        acknowledged.map(|((user, key), acknowledged)| (user, *key, *acknowledged))
    }
}
