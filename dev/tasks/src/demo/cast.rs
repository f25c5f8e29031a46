//! The participants: people, of whom some may not buy and some do not pay, and bots.

/// One in this many people comes without a reservation.
const STRANGERS_ONE_IN: u32 = 20;

/// The maximum number of reservations, or twice the stock if larger: each reservation is written to the disk, which the
/// demo should not test.
const RESERVING_MAX: u32 = 4_000;

/// One in this many people with a reservation is a scalper, whose account the risk check blocks.
const SCALPERS_ONE_IN: u32 = 25;

/// One in this many people does not pay the first order.
const FORGETFUL_ONE_IN: u32 = 8;

/// One in this many people tries before the start.
const EARLY_ONE_IN: u32 = 100;

/// People per bot of each kind, and the minimum and maximum number of bots of each kind.
const PEOPLE_PER_BOT: u32 = 1_000;
const BOTS_MIN: u32 = 2;
const BOTS_MAX: u32 = 100;

/// The rules of the risk check. The threshold is the origin's default, 80: it blocks scalpers and bots, but not new
/// accounts.
pub(super) const RISK_RULES: &str = r#"{
  "rules": [
    { "glob": "scalper-*", "score": 95 },
    { "glob": "bot-*", "score": 100 },
    { "glob": "user-*1", "score": 30 }
  ]
}
"#;

/// The number of people of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    /// All people.
    pub(super) people: u32,
    /// People without a reservation.
    pub(super) strangers: u32,
    /// People whom the risk check blocks.
    pub(super) scalpers: u32,
    /// Eligible people who do not pay their first order.
    pub(super) forgetful: u32,
    /// People who try before the start.
    pub(super) early: u32,
    /// Bots of each kind.
    pub(super) bots: u32,
}

impl Shares {
    /// Divides `people` into kinds, for `stock` units. If there are at least as many people as units, at least as many
    /// are eligible: only people beyond the stock are ineligible.
    pub(super) fn for_people(people: u32, stock: u32) -> Self {
        let beyond = people.saturating_sub(stock);
        let few = (people / STRANGERS_ONE_IN).min(beyond / 2);
        let reserving_max = RESERVING_MAX.max(stock.saturating_mul(2));
        let strangers = few.max(people.saturating_sub(reserving_max));
        let reserving = people - strangers;
        let scalpers = (reserving / SCALPERS_ONE_IN).min(reserving.saturating_sub(stock) / 2);
        let eligible = reserving - scalpers;
        Self {
            people,
            strangers,
            scalpers,
            forgetful: eligible.div_ceil(FORGETFUL_ONE_IN),
            early: people.div_ceil(EARLY_ONE_IN),
            bots: (people / PEOPLE_PER_BOT).clamp(BOTS_MIN, BOTS_MAX),
        }
    }

    /// People who may buy.
    pub(super) fn eligible(&self) -> u32 {
        self.people - self.strangers - self.scalpers
    }
}

/// A person's role in the sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Has a reservation and may buy.
    Buyer,
    /// Has no reservation.
    Stranger,
    /// Has a reservation, but the risk check blocks it.
    Scalper,
}

/// One person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Person {
    /// The user ID at the gateway.
    pub(super) name: String,
    pub(super) role: Role,
    /// Whether the next order will not be paid.
    pub(super) forgets: bool,
    /// The order token, after the checkout.
    pub(super) token: Option<String>,
    /// The pass, after the waiting room.
    pub(super) pass: Option<String>,
}

/// A bot's tactic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BotTactic {
    /// Buys without a token.
    NoToken,
    /// Forges a token.
    Forged,
    /// Buys immediately after getting a token.
    TooYoung,
    /// Reserves and waits like a person, and then sends requests at full speed.
    Flood,
}

impl BotTactic {
    pub(super) const ALL: [Self; 4] = [Self::NoToken, Self::Forged, Self::TooYoung, Self::Flood];

    const fn label(self) -> &'static str {
        match self {
            Self::NoToken => "no-token",
            Self::Forged => "forger",
            Self::TooYoung => "hasty",
            Self::Flood => "flood",
        }
    }
}

/// One bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bot {
    /// The user ID at the gateway: `bot-…`.
    pub(super) name: String,
    pub(super) trick: BotTactic,
    /// The order token, if it has waited for one.
    pub(super) token: Option<String>,
}

/// All people, in an order of arrival that depends on `seed`.
pub(super) fn people(shares: &Shares, seed: u64) -> Vec<Person> {
    shuffled((0..shares.people).collect(), seed)
        .into_iter()
        .map(|number| person(shares, number))
        .collect()
}

fn person(shares: &Shares, number: u32) -> Person {
    let (role, kind) = if number < shares.scalpers {
        (Role::Scalper, "scalper")
    } else if number < shares.scalpers + shares.strangers {
        (Role::Stranger, "user")
    } else {
        (Role::Buyer, "user")
    };
    let first_buyer = shares.scalpers + shares.strangers;
    Person {
        name: format!("{kind}-{number}"),
        role,
        forgets: role == Role::Buyer && number - first_buyer < shares.forgetful,
        token: None,
        pass: None,
    }
}

/// All bots, alternating between kinds.
pub(super) fn bots(shares: &Shares) -> Vec<Bot> {
    let of = |number: u32| {
        BotTactic::ALL.map(|trick| Bot {
            name: format!("bot-{}-{number}", trick.label()),
            trick,
            token: None,
        })
    };
    (0..shares.bots).flat_map(of).collect()
}

/// Shuffles `all` depending on `seed` (Fisher and Yates).
pub(super) fn shuffled<T>(mut all: Vec<T>, seed: u64) -> Vec<T> {
    let mut state = seed;
    for last in (1..all.len()).rev() {
        let chosen = split_mix(&mut state) % (last as u64 + 1);
        all.swap(last, chosen as usize);
    }
    all
}

/// SplitMix64: sufficient randomness for an order of buyers, and portable.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn buyers_match_units_when_there_are_enough_people() {
        let sales = [
            (20_000, 500),
            (520, 500),
            (501, 500),
            (500, 500),
            (9_000, 4_400),
            (1, 1),
        ];
        for (people, stock) in sales {
            let shares = Shares::for_people(people, stock);
            assert!(shares.eligible() >= stock, "{shares:?}");
        }
        assert_eq!(Shares::for_people(300, 500).eligible(), 300);
    }

    #[test]
    fn big_sale_has_every_kind_of_person() {
        let shares = Shares::for_people(20_000, 500);
        assert_eq!((shares.strangers, shares.scalpers), (16_000, 160));
        assert_eq!(shares.forgetful, 3_840 / 8);
        assert_eq!((shares.early, shares.bots), (200, 20));
        let small = Shares::for_people(520, 500);
        assert_eq!((small.strangers, small.scalpers, small.bots), (10, 5, 2));
    }

    #[test]
    fn cast_has_the_shares_of_each_kind_and_unique_names() {
        let shares = Shares::for_people(2_000, 50);
        let people = people(&shares, 7);
        let count = |is: fn(&Person) -> bool| people.iter().filter(|user| is(user)).count() as u32;
        assert_eq!(count(|user| user.role == Role::Scalper), shares.scalpers);
        assert_eq!(count(|user| user.role == Role::Stranger), shares.strangers);
        assert_eq!(count(|user| user.forgets), shares.forgetful);
        assert_eq!(count(|user| user.forgets && user.role != Role::Buyer), 0);
        let is_scalper = |user: &Person| user.name.starts_with("scalper-");
        assert!(
            people
                .iter()
                .all(|user| is_scalper(user) == (user.role == Role::Scalper))
        );
        let mut names: BTreeSet<_> = people.iter().map(|user| &user.name).collect();
        let bots = bots(&shares);
        names.extend(bots.iter().map(|bot| &bot.name));
        assert_eq!(names.len(), 2_000 + 4 * shares.bots as usize);
    }

    #[test]
    fn seed_determines_the_shuffled_order() {
        let order = shuffled((0..1000).collect(), 7);
        assert_eq!(order, shuffled((0..1000).collect(), 7));
        assert_ne!(order, shuffled((0..1000).collect(), 8));
        let sorted: BTreeSet<_> = order.into_iter().collect();
        assert!(sorted.into_iter().eq(0..1000));
    }
}
