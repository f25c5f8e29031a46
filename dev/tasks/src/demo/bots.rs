//! The actions of bots, which try to be faster than people.

use super::acts::{self, Paths};
use super::cast::{Bot, BotTactic};
use super::client::Line;
use super::crowd::CrowdAction;
use anyhow::{Context, Result};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, SigningKey};
use weir_sale::token;

/// The number of attempts per bot.
const TRIES: u32 = 10;

/// The number of requests of a flood, without pauses.
const FLOOD: u32 = 200;

/// The public ID of the gateway's key in `envoy/weir.yaml`, with a different secret.
const KEY_ID: &str = "t1";
const GUESSED_SECRET: [u8; 32] = *b"a secret that bots have made up!";

/// Forges plausible tokens.
pub(super) struct Forge {
    sale: SaleId,
    keys: KeyRing,
}

impl Forge {
    pub(super) fn new(sale: &str) -> Result<Self> {
        let sale = SaleId::new(sale).ok().context("no sale's name")?;
        let keys = KeyRing::new(vec![SigningKey::new(KEY_ID, &GUESSED_SECRET)?])?;
        Ok(Self { sale, keys })
    }

    /// A token issued ten seconds ago.
    fn token(&self, user: &str) -> Option<String> {
        let user = UserId::new(user).ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let now_ms = u64::try_from(now.as_millis()).ok()?;
        Some(token::mint(&self.keys, &self.sale, &user, now_ms - 10_000))
    }
}

/// Bots at the checkout, while people are there. Nothing is sold yet, so a successful bot would get all units.
pub(super) struct CheckoutBots {
    pub(super) paths: Arc<Paths>,
    pub(super) forge: Arc<Forge>,
}

impl CrowdAction for CheckoutBots {
    type Who = Bot;
    type Outcome = Bot;

    async fn play(&self, line: &mut Line, mut bot: Bot) -> Bot {
        match bot.trick {
            BotTactic::NoToken => self.order(line, &bot.name, None).await,
            BotTactic::Forged => {
                let token = self.forge.token(&bot.name);
                self.order(line, &bot.name, token.as_deref()).await;
            }
            BotTactic::TooYoung => self.buy_early(line, &bot.name).await,
            BotTactic::Flood if bot.token.is_none() => {
                bot.token = self.flood_checkout(line, &bot).await
            }
            BotTactic::Flood => self.flood(line, &bot).await,
        }
        bot
    }
}

impl CheckoutBots {
    async fn order(&self, line: &mut Line, user: &str, token: Option<&str>) {
        for _ in 0..TRIES {
            line.ask_once(&acts::order(&self.paths, user, token)).await;
        }
    }

    async fn buy_early(&self, line: &mut Line, user: &str) {
        let Some(token) = self.check_out(line, user).await else {
            return;
        };
        self.order(line, user, Some(&token)).await;
    }

    /// The first token that the bot got.
    async fn flood_checkout(&self, line: &mut Line, bot: &Bot) -> Option<String> {
        let mut token = None;
        for _ in 0..FLOOD {
            let actual = self.check_out(line, &bot.name).await;
            token = token.or(actual);
        }
        token
    }

    async fn flood(&self, line: &mut Line, bot: &Bot) {
        let ask = acts::order(&self.paths, &bot.name, bot.token.as_deref());
        for _ in 0..FLOOD {
            line.ask_once(&ask).await;
        }
    }

    async fn check_out(&self, line: &mut Line, user: &str) -> Option<String> {
        let ask = acts::check_out(&self.paths, user);
        let answer = line.ask_once(&ask).await?;
        acts::minted(&answer).map(|(token, _)| token)
    }
}
