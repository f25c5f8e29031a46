//! The scenarios.

use super::request::Kind;
use super::system::System;

/// One task that all its systems perform.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scenario {
    /// The name for `--only`.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// A description in one or two sentences.
    pub(super) what: &'static str,
    /// The systems, Weir first.
    pub(super) systems: &'static [System],
    pub(super) kind: Kind,
    /// The only statuses that may occur.
    pub(super) statuses: &'static [u16],
    pub(super) connections: Connections,
    /// Additional open loop measurements.
    pub(super) open_loop: OpenLoop,
    /// Whether all systems send the same bytes, except headers that identify the server.
    pub(super) same_answers: bool,
}

/// The connection counts of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connections {
    /// All connection counts.
    All,
    /// Only [`ONE`].
    One,
    /// [`FEW`], for slow requests.
    Few,
    /// These two.
    Rush,
}

/// Systems whose latencies are measured at a fixed request rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenLoop {
    /// Empty, or at least two.
    pub(super) systems: &'static [System],
    pub(super) connections: Connections,
}

impl OpenLoop {
    const NONE: Self = Self::with_one(&[]);

    const fn with_one(systems: &'static [System]) -> Self {
        let connections = Connections::One;
        Self {
            systems,
            connections,
        }
    }
}

/// The connection count of most bars.
pub(super) const ONE: usize = 128;

/// The connection count for large requests.
pub(super) const FEW: usize = 32;

impl Connections {
    pub(super) fn of(self, all: &[usize]) -> Vec<usize> {
        match self {
            Self::All => all.to_vec(),
            Self::One => vec![ONE],
            Self::Few => vec![FEW],
            Self::Rush => vec![ONE, 512],
        }
    }
}

use System::{
    EnvoyDirect, EnvoyLeast, EnvoyLimit, EnvoyLua, EnvoyRoutes, EnvoyWebdis, NginxFair, NginxLimit,
    NginxLua, NginxReturn, Weir, WeirNative, WeirNativeHttp,
};

pub(super) const ALL: [Scenario; 14] = [
    Scenario {
        name: "sold-out",
        title: "Rejected locally: sold out",
        what: "All requests are for a sale that is known to be sold out. No request needs Redis.",
        systems: &[
            Weir,
            WeirNative,
            EnvoyDirect,
            EnvoyLeast,
            EnvoyLua,
            NginxLua,
        ],
        kind: Kind::SoldOut,
        statuses: &[409],
        connections: Connections::All,
        open_loop: OpenLoop::with_one(&[Weir, EnvoyDirect, NginxLua]),
        same_answers: true,
    },
    Scenario {
        name: "no-token",
        title: "Rejected locally: no order token",
        what: "A sale that requires order tokens; no request has one.",
        systems: &[Weir, EnvoyDirect, EnvoyLua, NginxLua],
        kind: Kind::NoToken,
        statuses: &[403],
        connections: Connections::One,
        open_loop: OpenLoop::NONE,
        same_answers: true,
    },
    Scenario {
        name: "not-started",
        title: "Rejected locally: not started",
        what: "A sale that has not started; the answer has the waiting time.",
        systems: &[Weir, EnvoyDirect, EnvoyLua, NginxLua],
        kind: Kind::NotStarted,
        statuses: &[403],
        connections: Connections::One,
        open_loop: OpenLoop::NONE,
        same_answers: true,
    },
    Scenario {
        name: "redis",
        title: "Admission in Redis",
        what: "Every request comes from another user and gets a claim from a stock that does not run out; Envoy or nginx then answers 200 instead of the origin. Redis checks blocked users, the cap of one unit and earlier claims, in 4 shards. Fair nginx uses Weir's script, returns claims of clients that left, and counts verdicts; the other nginx does not.",
        systems: &[Weir, WeirNative, NginxLua, NginxFair, EnvoyWebdis],
        kind: Kind::Claim,
        statuses: &[200],
        connections: Connections::All,
        open_loop: OpenLoop {
            systems: &[Weir, WeirNative, NginxLua, NginxFair],
            connections: Connections::All,
        },
        same_answers: true,
    },
    Scenario {
        name: "user-limit",
        title: "A local limit per user",
        what: "100,000 users in pseudo-random order, each with a token bucket; none is refused. Allowed requests get an empty 200.",
        systems: &[
            Weir,
            WeirNative,
            EnvoyDirect,
            EnvoyLimit,
            NginxLua,
            NginxLimit,
        ],
        kind: Kind::UserLimit,
        statuses: &[200],
        connections: Connections::All,
        open_loop: OpenLoop::with_one(&[Weir, EnvoyLimit, NginxLua]),
        same_answers: false,
    },
    Scenario {
        name: "token-minted",
        title: "An order token is minted",
        what: "The checkout: every user gets a token signed with HMAC-SHA256.",
        systems: &[Weir, EnvoyDirect, NginxLua],
        kind: Kind::Checkout,
        statuses: &[200],
        connections: Connections::One,
        open_loop: OpenLoop::NONE,
        same_answers: true,
    },
    Scenario {
        name: "token-checked",
        title: "An order token is checked, and a claim made",
        what: "Like the admission in Redis, but every request has its user's token, which is checked first.",
        systems: &[Weir, NginxLua],
        kind: Kind::TokenClaim,
        statuses: &[200],
        connections: Connections::One,
        open_loop: OpenLoop::NONE,
        same_answers: true,
    },
    Scenario {
        name: "sale",
        title: "A whole sale",
        what: "Of 100 requests, 5 come from people with a token, who get a claim; 35 come from bots without a token, 10 from bots with a forged one, 10 from 50 bots with a token and far too many requests; 40 are for a sold-out sale. With limits on users and addresses.",
        systems: &[Weir, WeirNative, NginxLua, NginxFair],
        kind: Kind::Sale,
        statuses: &[200, 403, 409, 429],
        connections: Connections::Rush,
        open_loop: OpenLoop::with_one(&[Weir, NginxLua]),
        same_answers: false,
    },
    Scenario {
        name: "redirect",
        title: "A redirect from memory",
        what: "1,000 short links that every system has in memory. Weir also counts each click, and sends the counts to Redis once per second. Bare Envoy and nginx' `return` redirect every request to one address; Envoy with 1,000 routes has an exact path for each link.",
        systems: &[
            Weir,
            WeirNative,
            WeirNativeHttp,
            EnvoyDirect,
            EnvoyRoutes,
            NginxLua,
            NginxReturn,
        ],
        kind: Kind::Redirect,
        statuses: &[302],
        connections: Connections::All,
        open_loop: OpenLoop::with_one(&[Weir, EnvoyDirect, NginxLua]),
        same_answers: false,
    },
    Scenario {
        name: "redirect-redis",
        title: "A redirect from Redis",
        what: "100,000 short links in turn with caches disabled: each request needs Redis. Weir's script renews the link and counts the click; nginx' is a plain GET.",
        systems: &[Weir, WeirNative, NginxLua],
        kind: Kind::RedirectRedis,
        statuses: &[302],
        connections: Connections::All,
        open_loop: OpenLoop::with_one(&[Weir, NginxLua]),
        same_answers: false,
    },
    Scenario {
        name: "make-link",
        title: "A short link is made",
        what: "The origin creates links with targets of 100 bytes, writes each to Redis and to its log before acknowledging it, and copies them to SQLite meanwhile. It logs each request, which is the default.",
        systems: &[Weir],
        kind: Kind::MakeLink,
        statuses: &[201],
        connections: Connections::Rush,
        open_loop: OpenLoop::NONE,
        same_answers: false,
    },
    Scenario {
        name: "fitment-check",
        title: "1,000 pairs of vehicle and part",
        what: "Which of 200 SKUs of four products fit which of 5 vehicles, out of 100,000 vehicles and 4,000 SKUs that fit 100 each. Both read the query as JSON, run the same Redis script, one call per product, and write the answer as JSON.",
        systems: &[Weir, NginxLua],
        kind: Kind::Fitment,
        statuses: &[200],
        connections: Connections::Few,
        open_loop: OpenLoop {
            systems: &[Weir, NginxLua],
            connections: Connections::Few,
        },
        same_answers: true,
    },
    Scenario {
        name: "room-join",
        title: "A new visitor in a waiting room",
        what: "Every request comes from another user and gets a position in the queue of a paused room, from Redis, with a signed \
               token.",
        systems: &[Weir],
        kind: Kind::Join,
        statuses: &[202],
        connections: Connections::One,
        open_loop: OpenLoop::NONE,
        same_answers: false,
    },
    Scenario {
        name: "room-position",
        title: "A position in a waiting room",
        what: "Visitors with a queue token ask for their position in a paused room. Bare Envoy answers every request with the same position.",
        systems: &[Weir, WeirNative, EnvoyDirect],
        kind: Kind::Position,
        statuses: &[202],
        connections: Connections::One,
        open_loop: OpenLoop::NONE,
        same_answers: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn scenarios_have_unique_names_and_start_with_weir() {
        let names: BTreeSet<_> = ALL.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), ALL.len());
        for scenario in ALL {
            assert_eq!(scenario.systems.first(), Some(&Weir), "{}", scenario.name);
            let requested = scenario.open_loop.systems.iter();
            assert!(
                requested
                    .clone()
                    .all(|system| scenario.systems.contains(system))
            );
        }
    }
}
