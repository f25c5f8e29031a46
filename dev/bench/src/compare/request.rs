//! The requests as bytes, the same for every system.

use super::system::System;
use anyhow::{Context, Result};
use std::io::Write;
use weir_base::headers;
use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, SigningKey};
use weir_link::code::{Code, Length};
use weir_room::pass::Pass;
use weir_room::{RoomName, Visitor};
use weir_sale::token;

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    SoldOut,
    NoToken,
    NotStarted,
    Claim,
    UserLimit,
    Checkout,
    TokenClaim,
    Sale,
    Redirect,
    RedirectRedis,
    MakeLink,
    Fitment,
    /// A new visitor of a waiting room.
    Join,
    /// A visitor who waits, with a queue token.
    Position,
}

impl Kind {
    /// Whether requests take units of a stock. Without claims, the stock never changes. A gateway whose sold-out sale
    /// is refilled would query Redis again, which is not the subject of the measurement.
    pub(super) fn claims(self) -> bool {
        matches!(self, Self::Claim | Self::TokenClaim | Self::Sale)
    }

    /// The number of links.
    pub(super) fn links(self) -> u64 {
        match self {
            Self::Redirect => 1_000,
            Self::RedirectRedis => 100_000,
            _ => 0,
        }
    }
}

/// The catalogue of [`Kind::Fitment`].
pub(super) mod fitment {
    pub(in super::super) const VEHICLES: u32 = 100_000;
    pub(in super::super) const PRODUCTS: u32 = 80;
    pub(in super::super) const SKUS_EACH: u32 = 50;
    /// The number of vehicles that a SKU fits.
    pub(in super::super) const FITS: u32 = 100;

    /// The ID of the vehicle with offset `index` + 1.
    pub(in super::super) fn vehicle(index: u32) -> String {
        (1_000_000 + index).to_string()
    }

    /// The SKUs of a product.
    pub(in super::super) fn skus(product: u32) -> impl Iterator<Item = u64> {
        let first = 100_012_000_000 + u64::from(product * SKUS_EACH);
        first..first + u64::from(SKUS_EACH)
    }

    /// The offsets of the vehicles that a SKU fits, ascending.
    pub(in super::super) fn offsets(sku: u64) -> impl Iterator<Item = u32> {
        let step = VEHICLES / FITS;
        (0..FITS).map(move |n| 1 + n * step + (sku * 7 % u64::from(step)) as u32)
    }
}

/// The code of a link.
pub(super) fn code(n: u64) -> Option<Code> {
    // Any seven digits.
    Code::generated(Length::new(7).ok()?, 30_000_001 * (n + 1))
}

/// The host of links.
pub(super) const HOST: &str = "bench.test";

/// The secret of order tokens.
pub(super) const TOKEN_SECRET: &str = "0123456789abcdef0123456789abcdef";

/// The sale IDs: `gone` is sold out, `later` starts in 2100, `tokened` requires tokens.
pub(super) const SALES: [&str; 4] = ["open", "tokened", "later", "gone"];

/// The age of tokens. The minimum age is a second, and a run takes seconds.
const TOKEN_AGE_MS: u64 = 60_000;

/// Users of [`Kind::UserLimit`], and bots with a token of [`Kind::Sale`].
const LIMITED_USERS: u64 = 100_000;
const GREEDY_BOTS: u64 = 50;

/// Visitors of [`Kind::Position`].
pub(super) const VISITORS: u64 = 64;

/// The bearer token of the origin's admin.
pub(super) const ADMIN_TOKEN: &str = "bench-bench-bench-bench-bench-bench-bench";

/// Writes requests of one kind for one system.
pub(super) struct Writer {
    kind: Kind,
    /// A path prefix for nginx, which has one location per kind of work.
    prefix: &'static str,
    /// The first user ID: no two runs share a user.
    first: u64,
    keys: KeyRing,
    tokened: SaleId,
    issued_at_ms: u64,
    /// The queue tokens of the visitors who wait.
    passes: Vec<String>,
    chance: u64,
}

impl Writer {
    pub(super) fn new(kind: Kind, system: System, first: u64, now_ms: u64) -> Result<Self> {
        let key = SigningKey::new("t1", TOKEN_SECRET.as_bytes())?;
        Ok(Self {
            kind,
            prefix: match (system, kind) {
                (System::NginxLua, Kind::Sale) => "/limited",
                (System::NginxFair, Kind::Sale) => "/fair/limited",
                (System::NginxFair, _) => "/fair",
                (System::NginxLua, Kind::RedirectRedis) => "/uncached",
                (System::NginxLimit | System::NginxReturn, _) => "/native",
                _ => "",
            },
            first,
            keys: KeyRing::new(vec![key])?,
            tokened: SaleId::new("tokened").ok().context("a sale's name")?,
            issued_at_ms: now_ms.saturating_sub(TOKEN_AGE_MS),
            passes: match kind {
                Kind::Position => passes(now_ms)?,
                _ => Vec::new(),
            },
            chance: 1,
        })
    }

    /// Writes request number `n`.
    pub(super) fn write(&mut self, n: u64, to: &mut Vec<u8>) {
        let user = self.first + n;
        match self.kind {
            Kind::SoldOut => self.order("gone", user, None, to),
            Kind::NoToken => self.order("tokened", user, None, to),
            Kind::NotStarted => self.order("later", user, None, to),
            Kind::Claim => self.order("open", user, None, to),
            Kind::UserLimit => {
                let user = self.chance() % LIMITED_USERS;
                head(to, "GET", self.prefix, "/api/things", "", user);
                to.extend(b"\r\n");
            }
            Kind::Checkout => {
                head(to, "POST", "/sales/open/checkout", "", "", user);
                to.extend(b"content-length: 0\r\n\r\n");
            }
            Kind::TokenClaim => self.order("tokened", user, Some(user), to),
            Kind::Sale => self.rush(n, user, to),
            Kind::Redirect | Kind::RedirectRedis => self.link(to),
            Kind::MakeLink => make_link(user, to),
            Kind::Fitment => self.question(to),
            Kind::Join => {
                head(to, "GET", self.prefix, "/shop", "", user);
                to.extend(b"\r\n");
            }
            Kind::Position => {
                head(to, "GET", self.prefix, "/shop", "", n % VISITORS);
                let pass = self.passes.get((n % VISITORS) as usize);
                let pass = pass.map_or("", String::as_str);
                write!(to, "{}: {pass}\r\n\r\n", headers::ROOM).ok();
            }
        }
    }

    /// The shares that the scenario defines, in a fixed order.
    fn rush(&mut self, n: u64, user: u64, to: &mut Vec<u8>) {
        match n * 37 % 100 {
            0..5 => self.order("tokened", user, Some(user), to),
            5..40 => self.order("tokened", user, None, to),
            // Another user's token.
            40..50 => self.order("tokened", user, Some(user + 1), to),
            50..60 => {
                // IDs below those of all runs.
                let bot = n / 10 % GREEDY_BOTS;
                self.order("tokened", bot, Some(bot), to);
            }
            _ => self.order("gone", user, None, to),
        }
    }

    fn link(&mut self, to: &mut Vec<u8>) {
        let Some(code) = code(self.chance() % self.kind.links().max(1)) else {
            return;
        };
        let (prefix, code) = (self.prefix, code.as_str());
        // Writing to a Vec cannot fail.
        write!(to, "GET {prefix}/{code} HTTP/1.1\r\nhost: {HOST}\r\nuser-agent: weir-load\r\naccept: */*\r\n\r\n").ok();
    }

    /// A query about all SKUs of some products, in turn.
    fn question(&mut self, to: &mut Vec<u8>) {
        let vehicles: Vec<String> = (0..5)
            .map(|_| {
                format!(
                    "{:?}",
                    fitment::vehicle(self.chance() as u32 % fitment::VEHICLES)
                )
            })
            .collect();
        let first = self.chance() as u32 % (fitment::PRODUCTS - 4);
        let skus: Vec<String> = (first..first + 4)
            .flat_map(|product| fitment::skus(product).map(move |sku| (product, sku)))
            .map(|(product, sku)| format!(r#"{{"sku":"{sku}","spu":"P{product}"}}"#))
            .collect();
        let body = format!(
            r#"{{"vehicles":[{}],"skus":[{}]}}"#,
            vehicles.join(","),
            skus.join(",")
        );
        let length = body.len();
        // Writing to a Vec cannot fail.
        write!(
            to,
            "POST /fitment/check HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n\
            content-length: {length}\r\n\r\n{body}"
        )
        .ok();
    }

    fn order(&self, sale: &str, user: u64, token_of: Option<u64>, to: &mut Vec<u8>) {
        head(to, "POST", self.prefix, "/sales/", sale, user);
        if let Some(token) = token_of.and_then(|user| self.token(user)) {
            to.extend(b"x-weir-order-token: ");
            to.extend(token.bytes());
            to.extend(b"\r\n");
        }
        to.extend(b"content-length: 0\r\n\r\n");
    }

    fn token(&self, user: u64) -> Option<String> {
        let user = UserId::new(name(user)).ok()?;
        Some(token::mint(
            &self.keys,
            &self.tokened,
            &user,
            self.issued_at_ms,
        ))
    }

    /// A pseudo-random order, the same in every run.
    fn chance(&mut self) -> u64 {
        self.chance = self.chance.wrapping_mul(1_103_515_245).wrapping_add(12_345) % (1 << 31);
        self.chance
    }
}

/// The queue tokens of the first visitors, in the order of their positions.
fn passes(now_ms: u64) -> Result<Vec<String>> {
    let ring = KeyRing::new(vec![SigningKey::new("k1", TOKEN_SECRET.as_bytes())?])?;
    let room = RoomName::new("shop").context("a room's name")?;
    let pass = |user: u64| Pass {
        place: user + 1,
        ..Pass::newcomer(Visitor::of_user(name(user).as_bytes()), now_ms)
    };
    Ok((0..VISITORS)
        .map(|user| pass(user).mint(&ring, &room))
        .collect())
}

fn name(user: u64) -> String {
    format!("u{user:011}")
}

fn head(to: &mut Vec<u8>, method: &str, prefix: &str, path: &str, sale: &str, user: u64) {
    let order = if sale.is_empty() { "" } else { "/orders" };
    let written = write!(
        to,
        "{method} {prefix}{path}{sale}{order} HTTP/1.1\r\nhost: {HOST}\r\nuser-agent: weir-load\r\n\
         accept: application/json\r\nx-user-id: u{user:011}\r\n"
    );
    // Writing to a Vec cannot fail.
    written.ok();
}

/// Creates a link to its own 100-byte target.
fn make_link(n: u64, to: &mut Vec<u8>) {
    let target = format!("https://shop.example.com/campaigns/spring/{n:058}");
    let body = format!(r#"{{"target":"{target}"}}"#);
    let length = body.len();
    // Writing to a Vec cannot fail.
    write!(
        to,
        "POST /links HTTP/1.1\r\nhost: {HOST}\r\nauthorization: Bearer {ADMIN_TOKEN}\r\n\
        content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_763_735_000_000;

    fn written(kind: Kind, system: System, n: u64) -> String {
        let mut writer = Writer::new(kind, system, 1_000_000, NOW_MS).unwrap();
        let mut text = Vec::new();
        writer.write(n, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_claim_is_of_a_different_user() {
        let text = written(Kind::Claim, System::Weir, 7);
        assert!(
            text.starts_with("POST /sales/open/orders HTTP/1.1\r\n"),
            "{text}"
        );
        assert!(text.contains("x-user-id: u00001000007\r\n"));
        assert!(text.ends_with("\r\n\r\n"));
        let limited = written(Kind::UserLimit, System::NginxLimit, 0);
        assert!(limited.starts_with("GET /native/api/things HTTP/1.1\r\n"));
        let link = written(Kind::Redirect, System::Weir, 0);
        assert!(link.starts_with("GET /") && link.contains("host: bench.test\r\n"));
        let joining = written(Kind::Join, System::Weir, 2);
        assert!(joining.starts_with("GET /shop HTTP/1.1\r\n"));
        assert!(joining.contains("x-user-id: u00001000002\r\n"));
        let created = written(Kind::MakeLink, System::Weir, 3);
        let (_, body) = created.split_once("\r\n\r\n").unwrap();
        assert!(created.contains(&format!("content-length: {}\r\n", body.len())));
        assert_eq!(body.len(), 100 + r#"{"target":""}"#.len());
        let checkout = written(Kind::Checkout, System::Weir, 0);
        assert!(checkout.starts_with("POST /sales/open/checkout HTTP/1.1\r\n"));
    }

    #[test]
    fn sale_has_the_shares_of_its_description() {
        let texts: Vec<String> = (0..100)
            .map(|n| written(Kind::Sale, System::Weir, n))
            .collect();
        let count =
            |subject: &dyn Fn(&str) -> bool| texts.iter().filter(|text| subject(text)).count();
        assert_eq!(count(&|text| text.contains("/sales/gone/")), 40);
        let has_token = |text: &str| text.contains("x-weir-order-token: t1.");
        assert_eq!(
            count(&|text| text.contains("/sales/tokened/") && !has_token(text)),
            35
        );
        assert_eq!(count(&|text| has_token(text)), 25);
        assert_eq!(count(&|text| text.contains("x-user-id: u000000000")), 10);
    }

    #[test]
    fn tokens_are_valid_only_for_their_user() {
        let writer = Writer::new(Kind::TokenClaim, System::Weir, 0, NOW_MS).unwrap();
        let token = writer.token(5).unwrap();
        let check = |user: u64| {
            let user = UserId::new(name(user)).unwrap();
            let ages = token::Ages::default();
            token::check(
                &writer.keys,
                token.as_bytes(),
                &writer.tokened,
                &user,
                NOW_MS,
                ages,
            )
        };
        assert!(check(5).is_ok() && check(6).is_err());
    }
}
