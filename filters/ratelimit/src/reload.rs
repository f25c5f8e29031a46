//! Rules that are read from Redis take the place of those before.

use std::rc::Rc;

use weir_filter_kit::link::Link;
use weir_filter_kit::redis::{Reply, read};
use weir_limit::rules::Rules;

use crate::NAME;
use crate::limiter::Limiter;
use crate::poll::{self, Found, Needs};
use crate::ruleset::Ruleset;

impl Limiter {
    /// Sends a poll if one is due.
    pub(crate) fn poll(&mut self, now_ms: u64) {
        let Some(redis) = &mut self.redis else { return };
        let Some(poller) = &mut redis.poller else {
            return;
        };
        if !poller.schedule.is_due(now_ms) {
            return;
        }
        let body = poll::command(&redis.config.key_prefix);
        match redis
            .pump
            .link()
            .send(&body, poller.schedule.interval_ms(), now_ms)
        {
            Ok(token) => poller.schedule.sent(token),
            Err(definite) => self.poll_failed(&definite.to_string()),
        }
    }

    /// A poll has ended.
    pub(crate) fn read_poll(&mut self, reply: Reply) {
        let needs = Needs {
            one_slot_a_call: self.config.one_slot_a_call,
            has_user: self.config.user_header.is_some(),
        };
        let Some(poller) = self.redis.as_mut().and_then(|redis| redis.poller.as_mut()) else {
            return;
        };
        let replies = read(reply, 1).map_err(|failure| failure.to_string());
        let found = replies.and_then(|replies| match replies.first() {
            Some(reply) => poller.read(reply, needs),
            None => Err("no reply".into()),
        });
        match found {
            Ok(found) => self.found(found),
            Err(reason) => self.poll_failed(&reason),
        }
    }

    fn found(&mut self, found: Found) {
        if std::mem::take(&mut self.is_poll_failing) {
            log::info!("{NAME}: rules can be read again");
        }
        match found {
            Found::Nothing => {}
            Found::Gone => {
                log::warn!("{NAME}: there are no rules in Redis any more, the last ones stay")
            }
            Found::Rules(rules) => self.load(rules),
            Found::Bad(error) => {
                self.metrics.rules_refused.increment();
                log::error!("{NAME}: rules in Redis refused, the last ones stay: {error}");
            }
        }
    }

    /// From the next request on other rules count. What waits is decided by those it came under.
    fn load(&mut self, rules: Rules) {
        let count = rules.iter().count();
        self.ruleset = Rc::new(Ruleset::new(rules, self.seed));
        self.metrics.rules_loaded.increment();
        log::info!("{NAME}: {count} rules were read from Redis");
    }

    /// What is known stays; the log says so once, not with every poll.
    fn poll_failed(&mut self, reason: &str) {
        if !self.is_serving {
            return;
        }
        self.metrics.polls_failed.increment();
        if !std::mem::replace(&mut self.is_poll_failing, true) {
            log::warn!("{NAME}: rules could not be read, the last ones stay: {reason}");
        }
    }
}
