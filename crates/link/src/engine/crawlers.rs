//! A cache of which user agents are crawlers.

use alloc::collections::BTreeMap;

use weir_base::hash::seeded_hash;

use crate::engine::request::Fields;

/// Maximum cached user agents, with about 20 bytes each. A client that varies its user agent has each one parsed.
const REMEMBERED_MAX: usize = 1_000;

/// Classified user agents. Classification searches the text for dozens of words, which costs more than the rest of a
/// request.
#[derive(Debug)]
pub(crate) struct Crawlers {
    seed: u64,
    /// By hash: whether the user agent is a crawler.
    cached: BTreeMap<u64, bool>,
}

impl Crawlers {
    /// `seed` must be unknown to clients.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            cached: BTreeMap::new(),
        }
    }

    /// See [`Fields::is_click`].
    pub(crate) fn is_click(&mut self, fields: &Fields<'_>) -> bool {
        if !fields.is_visit() {
            return false;
        }
        let key = seeded_hash(self.seed, fields.user_agent);
        if let Some(is_crawler) = self.cached.get(&key) {
            return !is_crawler;
        }
        if self.cached.len() >= REMEMBERED_MAX {
            self.cached.clear();
        }
        let is_click = fields.is_click();
        self.cached.insert(key, !is_click);
        is_click
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Method;
    use alloc::format;

    #[test]
    fn recent_user_agents_are_cached() {
        let mut crawlers = Crawlers::new(7);
        for user_agent in [b"one", b"two", b"one"] {
            let user_agent = user_agent.as_slice();
            let fields = Fields {
                user_agent,
                ..Fields::default()
            };
            assert!(crawlers.is_click(&fields));
        }
        assert_eq!(crawlers.cached.len(), 2);
    }

    #[test]
    fn cached_classification_of_a_user_agent_equals_a_fresh_one() {
        let mut crawlers = Crawlers::new(7);
        for n in 0..3 * REMEMBERED_MAX {
            let name = match n % 3 {
                0 => "Googlebot/2.1".into(),
                1 => format!("Mozilla/5.0 (number {n})"),
                _ => format!("crawler {n}"),
            };
            let mut fields = Fields {
                user_agent: name.as_bytes(),
                ..Fields::default()
            };
            assert_eq!(crawlers.is_click(&fields), n % 3 == 1, "{name}");
            fields.method = Method::Head;
            assert!(!crawlers.is_click(&fields));
            assert!(crawlers.cached.len() <= REMEMBERED_MAX);
        }
    }
}
