//! Targeting rules: alternative targets for some visits.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_base::hash::seeded_hash_of;

use super::agent::{Agent, Language};
use super::answer::{QUERY_LEN_MAX, Visit};
use super::click::client_address;
use super::record::{LISTED_MAX, Link};

/// Maximum countries of one rule.
pub const COUNTRIES_MAX: usize = 64;

/// Maximum query parameters of one rule.
pub const PARAMETERS_MAX: usize = 8;

/// Maximum length of a parameter's name or value, in bytes.
pub const PARAMETER_LEN_MAX: usize = 128;

/// The number of buckets for visitors; a percentage is a number of buckets.
const POINTS: u64 = 100;

/// An alternative target for some clients. Omitted conditions match every client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Any of these platforms; empty: all.
    #[serde(rename = "p", default, skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<Platform>,
    /// Any of these languages, such as `zh` or `zh-TW`, preferred over those of other rules; empty: all.
    #[serde(rename = "l", default, skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<String>,
    /// Any of these countries; empty: all. A client with an unknown country is in none of them.
    #[serde(rename = "c", default, skip_serializing_if = "Vec::is_empty")]
    pub countries: Vec<Country>,
    /// All of these query parameters.
    #[serde(rename = "q", default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<Parameter>,
    /// Percentage of matching visitors; 0: all. Each rule takes the buckets after those of the preceding rules.
    #[serde(rename = "w", default, skip_serializing_if = "is_zero")]
    pub percent: u8,
    /// The target.
    #[serde(rename = "t")]
    pub target: String,
}

words! {
    /// A kind of client.
    pub enum Platform {
        /// iPhones, iPads and iPods.
        Ios = "ios",
        /// Android devices of all kinds.
        Android = "android",
        /// The browser within WeChat, on any system.
        Wechat = "wechat",
        /// Phones.
        Mobile = "mobile",
        /// Tablets.
        Tablet = "tablet",
        /// Neither phone nor tablet.
        Desktop = "desktop",
        /// All clients.
        Any = "any",
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Platform {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some("Clients of a kind."))
            .enum_values(Some(Self::ALL.map(Self::label)))
            .into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Platform {}

/// A query parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its name, decoded.
    #[serde(rename = "n")]
    pub name: String,
    /// Its value, decoded; `None`: any value.
    #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A country code: two capital letters (ISO 3166-1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Country([u8; 2]);

/// The text is not a country code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a two-letter country code such as DE")]
pub struct NoCountry;

fn is_zero(percent: &u8) -> bool {
    *percent == 0
}

impl Country {
    /// Parses a country's two letters, in any case. Codes for «unknown» (`XX`, `T1`) give `None`.
    pub fn read(text: &[u8]) -> Option<Self> {
        match text.trim_ascii() {
            [a, b] if a.is_ascii_alphabetic() && b.is_ascii_alphabetic() => {
                let letters = [a.to_ascii_uppercase(), b.to_ascii_uppercase()];
                (letters != *b"XX").then_some(Self(letters))
            }
            _ => None,
        }
    }

    /// Its two letters.
    pub fn as_str(&self) -> &str {
        // Two ASCII letters.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for Country {
    type Error = NoCountry;

    fn try_from(text: String) -> Result<Self, NoCountry> {
        Self::read(text.as_bytes()).ok_or(NoCountry)
    }
}

impl From<Country> for String {
    fn from(country: Country) -> Self {
        country.as_str().into()
    }
}

/// The bucket, 0 to 99, of a visitor of the link named `link`. It depends on the address (of IPv6, the first 64 bits)
/// and the `User-Agent`. The same visitor therefore gets the same target at every gateway, without a cookie. It also
/// depends on the link, so that each test has other visitors.
pub fn point_of(link: &[u8], address: &[u8], user_agent: &[u8]) -> u8 {
    let hash = match client_address(address) {
        Some(IpAddr::V4(address)) => seeded_hash_of(0, [link, &address.octets()[..], user_agent]),
        Some(IpAddr::V6(address)) => {
            let octets = address.octets();
            let network = octets.get(..8).unwrap_or_default();
            seeded_hash_of(0, [link, network, user_agent])
        }
        None => seeded_hash_of(0, [link, b"", user_agent]),
    };
    u8::try_from(hash % POINTS).unwrap_or_default()
}

/// The first matching rule of `link`. Among consecutive rules with languages, the best match wins: the client's most
/// preferred language, then the most exact tag. None of them wins if the target's own language matches as well.
pub(crate) fn rule_for<'a>(link: &'a Link, agent: Agent, visit: &Visit<'_>) -> Option<&'a Rule> {
    let mut best = None;
    let mut best_suits = suits(core::slice::from_ref(&link.language), visit.accept_language);
    // The buckets of the preceding rules.
    let mut used = 0_u32;
    for rule in link.rules.iter().filter(|rule| rule.fits(agent, visit)) {
        let suits = suits(&rule.languages, visit.accept_language);
        if !rule.languages.is_empty() && suits.1 == 0 {
            continue;
        }
        if rule.percent > 0 {
            let from = used;
            used += u32::from(rule.percent);
            if !(from..used).contains(&u32::from(visit.point)) {
                continue;
            }
        }
        if rule.languages.is_empty() {
            return best.or(Some(rule));
        }
        if suits > best_suits {
            (best, best_suits) = (Some(rule), suits);
        }
    }
    best
}

/// The best weight of these languages for a client, in thousandths, and how exactly that language matches; (0, 0) if
/// none does.
fn suits(languages: &[String], accept_language: &[u8]) -> (u32, usize) {
    let offered = languages.iter();
    let offered = offered.filter_map(|tag| Language::new(tag.as_bytes()));
    let suits = offered.flat_map(|language| {
        let accepted = Language::accepted(accept_language);
        accepted.map(move |(client, weight)| (weight, language.suits(&client)))
    });
    let suits = suits.filter(|(_, exactness)| *exactness > 0);
    suits.max().unwrap_or_default()
}

impl Rule {
    /// Whether it is within the limits of a rule.
    pub(crate) fn is_small(&self) -> bool {
        let is_short = |part: &Parameter| {
            let value = part.value.as_ref().map_or(0, String::len);
            part.name.len().max(value) <= PARAMETER_LEN_MAX
        };
        self.platforms.len() <= LISTED_MAX
            && self.languages.len() <= LISTED_MAX
            && self.countries.len() <= COUNTRIES_MAX
            && self.query.len() <= PARAMETERS_MAX
            && self.query.iter().all(is_short)
            && u64::from(self.percent) <= POINTS
    }

    /// Approximate size in memory besides its target, in bytes.
    pub(crate) fn size(&self) -> usize {
        let length =
            |part: &Parameter| part.name.len() + part.value.as_ref().map_or(0, String::len);
        let query = self.query.iter().map(|part| 64 + length(part));
        self.languages.len() * 32 + self.countries.len() * 2 + query.sum::<usize>()
    }

    /// Whether it matches the client, without its languages and percentage.
    fn fits(&self, agent: Agent, visit: &Visit<'_>) -> bool {
        let platforms = &self.platforms;
        let has_platform =
            platforms.is_empty() || platforms.iter().any(|platform| agent.is(*platform));
        let in_country = self.countries.is_empty()
            || (visit.country).is_some_and(|country| self.countries.contains(&country));
        has_platform && in_country && self.query.iter().all(|part| part.is_in(visit.query))
    }
}

impl Parameter {
    /// Whether a query string contains it. A string longer than the limit for passing on contains nothing.
    fn is_in(&self, query: &[u8]) -> bool {
        query.len() <= QUERY_LEN_MAX
            && query.split(|byte| *byte == b'&').any(|pair| {
                let mut halves = pair.splitn(2, |byte| *byte == b'=');
                let name = halves.next().unwrap_or_default();
                let value = halves.next().unwrap_or_default();
                let has_value =
                    |requested: &String| decoded(value).as_ref() == requested.as_bytes();
                decoded(name).as_ref() == self.name.as_bytes()
                    && self.value.as_ref().is_none_or(has_value)
            })
    }
}

/// Decodes a part of a query string as forms encode it: `+` is a space, `%41` is `A`. An invalid escape stays
/// unchanged.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, next) = match (first, escaped(behind)) {
            (b'%', Some((byte, next))) => (byte, next),
            (b'+', _) => (b' ', behind),
            _ => (first, behind),
        };
        plain.push(byte);
        rest = next;
    }
    Cow::Owned(plain)
}

/// The byte for two hexadecimal digits, and the text after them.
fn escaped(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, behind) = text.split_at_checked(2)?;
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    match digits {
        [high, low] => Some((digit(*high)? * 16 + digit(*low)?, behind)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Answer, answer};
    use alloc::format;
    use alloc::vec;

    fn chosen(link: &Link, visit: &Visit<'_>) -> String {
        match answer(link, visit) {
            Answer::Redirect { location, .. } => location.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn rule(target: &str) -> Rule {
        Rule {
            target: target.into(),
            ..Rule::default()
        }
    }

    fn with_rules(rules: Vec<Rule>) -> Link {
        Link {
            rules,
            ..Link::to("https://t.example/")
        }
    }

    #[test]
    fn country_is_two_letters_and_unknown_countries_are_none() {
        let read = |text: &str| Country::read(text.as_bytes()).map(String::from);
        assert_eq!(read("DE").as_deref(), Some("DE"));
        assert_eq!(read(" de ").as_deref(), Some("DE"));
        for none in ["", "D", "DEU", "T1", "XX", "D\u{e4}", "d,e"] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[test]
    fn country_rule_ignores_clients_of_unknown_country() {
        let link = with_rules(vec![Rule {
            countries: ["DE", "AT"]
                .map(|text| Country::read(text.as_bytes()).unwrap())
                .into(),
            ..rule("https://de.example/")
        }]);
        let from = |country: &str| {
            let country = Country::read(country.as_bytes());
            chosen(
                &link,
                &Visit {
                    country,
                    ..Visit::default()
                },
            )
        };
        assert_eq!(from("AT"), "https://de.example/");
        assert_eq!(from("FR"), "https://t.example/");
        assert_eq!(from(""), "https://t.example/");
    }

    #[test]
    fn rule_matches_only_with_all_its_decoded_parameters() {
        let part = |name: &str, value: Option<&str>| Parameter {
            name: name.into(),
            value: value.map(Into::into),
        };
        let link = with_rules(vec![Rule {
            query: vec![part("ref", Some("a b")), part("x", None)],
            ..rule("https://q.example/")
        }]);
        let check = |query: &str, fits: bool| {
            let visit = Visit {
                query: query.as_bytes(),
                ..Visit::default()
            };
            let expected = if fits {
                "https://q.example/"
            } else {
                "https://t.example/"
            };
            assert_eq!(chosen(&link, &visit), expected, "{query}");
        };
        check("ref=a+b&x", true);
        check("y=1&x=2&re%66=a%20b", true);
        check("ref=a&ref=a%20b&x=", true);
        check("ref=a+b", false);
        check("ref=A+b&x", false);
        check("ref=a%2&x", false);
        check("", false);
        check(&format!("ref=a+b&x={}", "y".repeat(QUERY_LEN_MAX)), false);
    }

    #[test]
    fn shares_apply_in_order_and_remainder_goes_to_target() {
        let share = |percent, target: &str| Rule {
            percent,
            ..rule(target)
        };
        let link = with_rules(vec![
            share(30, "https://a.example/"),
            share(20, "https://b.example/"),
        ]);
        let at = |point| {
            chosen(
                &link,
                &Visit {
                    point,
                    ..Visit::default()
                },
            )
        };
        for (point, target) in [
            (0, "a"),
            (29, "a"),
            (30, "b"),
            (49, "b"),
            (50, "t"),
            (99, "t"),
        ] {
            assert_eq!(at(point), format!("https://{target}.example/"), "{point}");
        }
        // More than 100 percent: the excess of the last rules is unused.
        let link = with_rules(vec![
            share(80, "https://a.example/"),
            share(80, "https://b.example/"),
        ]);
        assert_eq!(
            chosen(
                &link,
                &Visit {
                    point: 99,
                    ..Visit::default()
                }
            ),
            "https://b.example/"
        );
    }

    #[test]
    fn share_applies_only_to_matching_visitors() {
        let link = with_rules(vec![
            Rule {
                percent: 100,
                countries: vec![Country::read(b"DE").unwrap()],
                ..rule("https://de.example/")
            },
            Rule {
                percent: 10,
                ..rule("https://new.example/")
            },
        ]);
        let visit = Visit {
            point: 9,
            ..Visit::default()
        };
        assert_eq!(chosen(&link, &visit), "https://new.example/");
    }

    #[test]
    fn visitor_keeps_its_share_and_visitors_spread_evenly() {
        let point = |link: &str, address: &str, agent: &str| {
            point_of(link.as_bytes(), address.as_bytes(), agent.as_bytes())
        };
        assert_eq!(
            point("s/a", "192.0.2.7:1", "x"),
            point("s/a", "192.0.2.7:2", "x")
        );
        let (one, other) = ("[2001:db8::1]:5", "[2001:db8::2]:5");
        assert_eq!(point("s/a", one, "x"), point("s/a", other, "x"));
        // A change would switch visitors to other targets during a test.
        assert_eq!(point("s/aZ3k9Qx", "192.0.2.7", "curl/8"), 3);
        for link in ["s/a", "s/b"] {
            let mut counts = [0_u32; 100];
            for n in 0..100_000_u32 {
                let address = format!("10.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255);
                counts[usize::from(point(link, &address, "Mozilla/5.0"))] += 1;
            }
            // 1,000 each, with a standard deviation of 31: five of them.
            assert!(
                counts.iter().all(|count| (843..=1_157).contains(count)),
                "{counts:?}"
            );
        }
        let both = |agent: &str| {
            (
                point("s/a", "192.0.2.7", agent) < 50,
                point("s/b", "192.0.2.7", agent) < 50,
            )
        };
        let agree = (0..1_000)
            .filter(|n| {
                let (a, b) = both(&format!("{n}"));
                a == b
            })
            .count();
        assert!((420..=580).contains(&agree), "{agree}");
    }
}
