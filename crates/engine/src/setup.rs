//! Builds engines from their configurations, on any host.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::shared_data::{MISSING, SharedData};

/// The number of attempts of [`shared_seed`].
const TRIES_MAX: usize = 8;

/// What an engine needs from its host, besides its configuration.
pub trait Host {
    /// The shared memory of one gateway's workers.
    type Data: SharedData + Clone;

    /// The shared memory.
    fn data(&self) -> Self::Data;

    /// A variable of the environment, for secrets.
    fn variable(&self, name: &str) -> Option<Vec<u8>>;

    /// A name that is unique among all engines, in all processes, now and later.
    fn unique_name(&self) -> String;

    /// An unpredictable number: at least the clock in nanoseconds.
    fn unguessable(&self) -> u64;

    /// The gateway's name for operators; empty if it has none.
    fn gateway_name(&self) -> String {
        String::new()
    }

    /// Whether its requests provide their [route names](crate::Request::route_name).
    fn tells_routes(&self) -> bool {
        false
    }
}

/// An engine and its host requirements.
#[derive(Debug)]
pub struct ConfiguredEngine<E> {
    /// The engine.
    pub engine: E,
    /// The name of each Redis of the engine. In Envoy with Proxy-Wasm, the cluster of its bridge's internal listener.
    pub redis_clusters: Vec<String>,
    /// The names of its initial rules, if any, for the log line at startup.
    pub rules: Vec<String>,
}

/// The maximum number of rule names in one log line.
const RULES_NAMED_MAX: usize = 20;

/// The log line at the start of the engine `name`. `reaches` describes the connection to Redis: "through cluster" of a
/// name, or "at" an address.
pub fn started(name: &str, redis: &[String], reaches: &str, rules: &[String]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let asks = match redis {
        [] => "uses no Redis".into(),
        redis => format!(
            "uses Redis {reaches} {}",
            redis.join(&format!(" and {reaches} "))
        ),
    };
    let named = rules.get(..RULES_NAMED_MAX).unwrap_or(rules).join(", ");
    let more = match rules.len().saturating_sub(RULES_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let rules = match rules {
        [] => String::new(),
        _ => format!(", rules {named}{more}"),
    };
    format!("{name} {version}: configured, {asks}{rules}")
}

/// A seed for hash tables of a filter without a secret. All workers of this gateway share it, and it changes with each
/// process. The first worker creates it.
pub fn shared_seed(host: &impl Host, filter: &str) -> u64 {
    let key = alloc::format!("weir.{filter}.seed");
    let data = host.data();
    for _ in 0..TRIES_MAX {
        if let Some((bytes, _)) = data.get(&key)
            && let Ok(bytes) = bytes.try_into()
        {
            return u64::from_le_bytes(bytes);
        }
        data.set(&key, &host.unguessable().to_le_bytes(), MISSING);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use core::cell::Cell;
    use weir_base::shared_data::LocalData;

    #[test]
    fn startup_message_lists_redis_and_rules() {
        let version = env!("CARGO_PKG_VERSION");
        let names = |list: &[&str]| -> Vec<String> { list.iter().map(|s| (*s).into()).collect() };
        assert_eq!(
            started("a", &[], "through cluster", &[]),
            format!("a {version}: configured, uses no Redis")
        );
        assert_eq!(
            started(
                "a",
                &names(&["r", "s"]),
                "through cluster",
                &names(&["x", "y"])
            ),
            format!(
                "a {version}: configured, uses Redis through cluster r and through cluster s, rules x, y"
            )
        );
        let many: Vec<String> = (0..23).map(|n| format!("r{n}")).collect();
        assert!(started("a", &[], "", &many).ends_with(", r19 and 3 more"));
    }

    #[derive(Default)]
    struct Worker {
        data: Rc<LocalData>,
        next: Cell<u64>,
    }

    impl Host for Worker {
        type Data = Rc<LocalData>;

        fn data(&self) -> Self::Data {
            Rc::clone(&self.data)
        }

        fn variable(&self, _name: &str) -> Option<Vec<u8>> {
            None
        }

        fn unique_name(&self) -> String {
            String::new()
        }

        fn unguessable(&self) -> u64 {
            self.next.set(self.next.get() + 7);
            self.next.get()
        }
    }

    #[test]
    fn all_workers_of_a_gateway_share_one_seed() {
        let first = Worker::default();
        let second = Worker {
            data: Rc::clone(&first.data),
            next: Cell::new(100),
        };
        assert_eq!(shared_seed(&first, "a"), 7);
        assert_eq!(shared_seed(&second, "a"), 7);
        assert_ne!(shared_seed(&second, "b"), 7);
    }
}
