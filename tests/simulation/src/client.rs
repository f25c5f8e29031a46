//! Clients: their requests, and their reactions to answers.

use weir_base::headers::{IDEMPOTENCY_KEY, QUANTITY};
use weir_base::id::UserId;
use weir_engine::Headers;

use crate::attempt::Attempt;
use crate::plan::{Client, FollowUp};
use crate::random::Rng;
use crate::sql::ClaimName;
use crate::world::{RequestKind, SALE};

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientAnswer {
    /// The status; 0 if the connection broke.
    pub(crate) status: u16,
    /// The gateway's verdict or the origin's code.
    pub(crate) word: String,
    pub(crate) order: Option<ClaimName>,
}

impl ClientAnswer {
    /// An outcome without an answer.
    pub(crate) fn nothing(status: u16, word: &str) -> Self {
        Self {
            status,
            word: word.into(),
            order: None,
        }
    }

    /// Whether a retry may succeed.
    pub(crate) fn may_be_retried(&self) -> bool {
        matches!(self.status, 0 | 503 | 504)
            || self.word == "all_reserved"
            || matches!(self.word.as_str(), "claim_released" | "in_progress")
    }

    /// Whether the request is an order, now or from before.
    pub(crate) fn is_order(&self) -> bool {
        matches!(self.word.as_str(), "ordered" | "ordered_before")
    }
}

/// One person.
#[derive(Debug)]
pub(crate) struct Person {
    pub(crate) plan: Client,
    pub(crate) user: UserId,
    tries_left: u32,
    rng: Rng,
    /// The last answer.
    pub(crate) last: Option<ClientAnswer>,
}

/// A client's next request, and the delay before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientStep {
    pub(crate) after_us: u64,
    pub(crate) kind: RequestKind,
}

pub(crate) fn user(number: u32) -> UserId {
    UserId::new(format!("user-{number}")).expect("it is a name")
}

impl Person {
    pub(crate) fn new(plan: Client, rng: Rng) -> Self {
        Self {
            plan,
            user: user(plan.user),
            tries_left: plan.retries,
            rng,
            last: None,
        }
    }

    /// The client's reaction to an answer.
    pub(crate) fn hear(&mut self, kind: RequestKind, answer: ClientAnswer) -> Option<ClientStep> {
        let next = match (kind, answer.order) {
            _ if answer.may_be_retried() => self.again(kind),
            (RequestKind::Buy, Some(order)) if answer.is_order() => self.then(order),
            _ => None,
        };
        self.last = Some(answer);
        next
    }

    fn again(&mut self, kind: RequestKind) -> Option<ClientStep> {
        self.tries_left = self.tries_left.checked_sub(1)?;
        Some(ClientStep {
            after_us: self.rng.between(20_000, 900_000),
            kind,
        })
    }

    fn then(&self, order: ClaimName) -> Option<ClientStep> {
        let (after_ms, kind) = match self.plan.then {
            FollowUp::Pay { after_ms } => (after_ms, RequestKind::Pay(order)),
            FollowUp::Cancel { after_ms } => (after_ms, RequestKind::Cancel(order)),
            FollowUp::Nothing | FollowUp::Forge => return None,
        };
        Some(ClientStep {
            after_us: after_ms * 1_000,
            kind,
        })
    }

    /// The attempt of a request.
    pub(crate) fn attempt(&self, kind: RequestKind) -> Option<Attempt> {
        self.plan.attempt.filter(|_| kind == RequestKind::Buy)
    }

    /// The headers of a request.
    pub(crate) fn headers(&self, kind: RequestKind) -> Headers {
        let path = match kind {
            RequestKind::Buy => format!("/sales/{SALE}/orders"),
            RequestKind::Pay((shard, generation)) => {
                format!("/orders/{SALE}.{shard}.{generation}/pay")
            }
            RequestKind::Cancel((shard, generation)) => {
                format!("/orders/{SALE}.{shard}.{generation}/cancel")
            }
        };
        let mut headers = vec![
            (":method", "POST"),
            (":path", &path),
            (":authority", "shop.example"),
            ("x-user-id", self.user.as_str()),
        ];
        let key = self.attempt(kind).map(Attempt::header);
        headers.extend(key.as_deref().map(|key| (IDEMPOTENCY_KEY, key)));
        let quantity = self.plan.quantity.to_string();
        if kind == RequestKind::Buy && self.plan.quantity > 1 {
            headers.push((QUANTITY, &quantity));
        }
        Headers::new(&headers)
    }
}
