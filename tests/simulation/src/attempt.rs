//! Attempts that clients name by a key, and what must hold of them: one key never gives two orders, whatever is lost, and
//! whoever was told of an order is told of the same one again.

use std::collections::BTreeMap;

use weir_base::id::UserId;
use weir_sale::idempotency::{AttemptTag, IdempotencyKey};

use crate::sql::ClaimName;

/// What a client sends with its request: a key of its user's, and a body, of which all that counts is whether it is the
/// same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attempt {
    pub(crate) key: u32,
    pub(crate) body: u32,
}

impl Attempt {
    /// The key as the client writes it.
    pub(crate) fn header(self) -> String {
        format!("\"key-{}\"", self.key)
    }

    /// The key as Redis knows it.
    pub(crate) fn tag(self) -> AttemptTag {
        let key = IdempotencyKey::read(self.header().as_bytes());
        key.expect("it is a key").tag()
    }
}

/// What a client was told of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptOutcome {
    pub(crate) order: ClaimName,
    /// The body that the order was for.
    pub(crate) body: u32,
}

/// What has been seen of attempts, each a key of a user.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    made: BTreeMap<(UserId, u32), ClaimName>,
    told: BTreeMap<(UserId, u32), AttemptOutcome>,
}

impl Attempts {
    /// SQL has made an order for an attempt. What is wrong with that, if anything is.
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

    /// A client was told that its attempt has become an order. What is wrong with that, if anything is.
    pub(crate) fn note_told(
        &mut self,
        user: &UserId,
        attempt: Attempt,
        order: ClaimName,
    ) -> Option<String> {
        let Attempt { key, body } = attempt;
        let now = AttemptOutcome { order, body };
        let told = self.told.entry((user.clone(), key));
        let before = *told.or_insert(now);
        (before != now)
            .then(|| format!("key {key} of {user} was told {before:?}, and then {now:?}"))
    }

    /// What the first who heard of an order was told.
    pub(crate) fn told(&self) -> impl Iterator<Item = (&UserId, u32, AttemptOutcome)> {
        let told = self.told.iter();
        told.map(|((user, key), told)| (user, *key, *told))
    }
}
