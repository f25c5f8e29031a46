//! Reads and checks a filter's configuration, and builds the engine.
//!
//! ```
//! use weir_registry::{FITMENT, engines};
//!
//! let json = br#"{"redis":{"key_prefix":"shop"}}"#;
//! let settings = engines::read(&FITMENT, json, false, &|_| None).unwrap();
//! assert_eq!(settings.redis()[0].0, "weir_redis");
//! ```

use std::any::Any;

use serde::de::DeserializeOwned;
use weir_base::FieldError;
use weir_engine::config::{Environment, RedisConfig, parse};
use weir_engine::setup::{ConfiguredEngine, Host};
use weir_engine::{EarlyDecision, Effects, Engine, Event, Metrics, Reporting, Request};

use crate::{EVENTS, FITMENT, Filter, GATE, LIMITER, LINKS, ROOM};

/// A filter's configuration of any type. To check one filter's own settings, downcast it:
/// `(settings as &dyn Any).downcast_ref()`.
pub trait Settings: Any {
    /// The filter's Redis connections: the cluster name in the configuration, and the connection's settings.
    fn redis(&self) -> Vec<(&str, &RedisConfig)>;
}

/// Connects a configuration type to its filter's engine.
trait EngineRegistration: DeserializeOwned + Clone + 'static {
    /// The filter.
    const FILTER: &'static Filter;

    /// Checks the configuration as the engine does. `sees_responses`: whether the host passes responses to the engine.
    fn check(self, sees_responses: bool, environment: Environment<'_>) -> Result<(), FieldError>;

    /// As [`Settings::redis`].
    fn redis(&self) -> Vec<(&str, &RedisConfig)>;

    /// Builds the engine.
    fn make<H: AnyHost>(
        json: &[u8],
        host: &H,
        sees_responses: bool,
    ) -> Result<AnyConfigured, FieldError>;

    /// As [`later_metrics`].
    fn later_metrics() -> Metrics {
        Metrics::new()
    }
}

impl<C: EngineRegistration> Settings for C {
    fn redis(&self) -> Vec<(&str, &RedisConfig)> {
        EngineRegistration::redis(self)
    }
}

/// A host whose engines may run on any thread.
pub trait AnyHost: Host<Data: Send + Sync + 'static> {}

impl<H: Host<Data: Send + Sync + 'static>> AnyHost for H {}

/// An engine of any filter that may run on any thread.
pub trait AnyEngine: Send {
    /// As [`Engine::NAME`].
    fn name(&self) -> &'static str;

    /// As [`Engine::handle`].
    fn handle(&mut self, event: Event<'_>, effects: &mut Effects);

    /// As [`Engine::decide_early`].
    fn decide_early(&mut self, request: &dyn Request, trusts_user: bool) -> EarlyDecision;

    /// As [`Engine::tick_ms`].
    fn tick_ms(&self) -> Option<u64>;

    /// As [`Engine::metrics`].
    fn metrics(&mut self) -> &mut Metrics;
}

impl<E: Engine + Send> AnyEngine for E {
    fn name(&self) -> &'static str {
        E::NAME
    }

    fn handle(&mut self, event: Event<'_>, effects: &mut Effects) {
        Engine::handle(self, event, effects);
    }

    fn decide_early(&mut self, request: &dyn Request, trusts_user: bool) -> EarlyDecision {
        Engine::decide_early(self, request, trusts_user)
    }

    fn tick_ms(&self) -> Option<u64> {
        Engine::tick_ms(self)
    }

    fn metrics(&mut self) -> &mut Metrics {
        Engine::metrics(self)
    }
}

/// An engine of any filter with its host requirements.
pub type AnyConfigured = ConfiguredEngine<Box<dyn AnyEngine>>;

type Read = fn(&[u8], bool, Environment<'_>) -> Result<Box<dyn Settings>, FieldError>;
type Make<H> = fn(&[u8], &H, bool) -> Result<AnyConfigured, FieldError>;

/// Defines the list of engines by their configuration types.
macro_rules! engines {
    ($($config:ty),+ $(,)?) => {
        static READERS: &[(&Filter, Read)] = &[$((<$config>::FILTER, read_as::<$config>)),+];

        static LATER_METRICS: &[(&Filter, fn() -> Metrics)] =
            &[$((<$config>::FILTER, <$config>::later_metrics)),+];

        fn makers<H: AnyHost>() -> Vec<(&'static Filter, Make<H>)> {
            vec![$((<$config>::FILTER, <$config>::make::<H>)),+]
        }
    };
}

engines!(
    weir_sale::engine::Config,
    weir_limit::engine::config::Config,
    weir_link::engine::config::Config,
    weir_event::engine::config::Config,
    weir_fitment::engine::config::Config,
    weir_room::engine::config::Config,
);

impl EngineRegistration for weir_sale::engine::Config {
    const FILTER: &'static Filter = &GATE;

    fn check(self, _: bool, environment: Environment<'_>) -> Result<(), FieldError> {
        self.checked(environment).map(drop)
    }

    fn redis(&self) -> Vec<(&str, &RedisConfig)> {
        each([&self.redis])
    }

    fn make<H: AnyHost>(json: &[u8], host: &H, _: bool) -> Result<AnyConfigured, FieldError> {
        weir_sale::engine::configure(json, host).map(|engine| any(engine, json, host))
    }
}

impl EngineRegistration for weir_limit::engine::config::Config {
    const FILTER: &'static Filter = &LIMITER;

    fn check(self, sees_responses: bool, environment: Environment<'_>) -> Result<(), FieldError> {
        self.checked(sees_responses, environment).map(drop)
    }

    fn redis(&self) -> Vec<(&str, &RedisConfig)> {
        each(&self.redis)
    }

    fn make<H: AnyHost>(
        json: &[u8],
        host: &H,
        sees_responses: bool,
    ) -> Result<AnyConfigured, FieldError> {
        weir_limit::engine::configure(json, host, sees_responses)
            .map(|engine| any(engine, json, host))
    }

    fn later_metrics() -> Metrics {
        weir_limit::engine::metrics_of_any_rule()
    }
}

impl EngineRegistration for weir_link::engine::config::Config {
    const FILTER: &'static Filter = &LINKS;

    fn check(self, _: bool, _: Environment<'_>) -> Result<(), FieldError> {
        self.checked().map(drop)
    }

    fn redis(&self) -> Vec<(&str, &RedisConfig)> {
        each([&self.redis])
    }

    fn make<H: AnyHost>(json: &[u8], host: &H, _: bool) -> Result<AnyConfigured, FieldError> {
        weir_link::engine::configure(json, host).map(|engine| any(engine, json, host))
    }
}

impl EngineRegistration for weir_event::engine::config::Config {
    const FILTER: &'static Filter = &EVENTS;

    fn check(self, _: bool, environment: Environment<'_>) -> Result<(), FieldError> {
        self.checked(environment).map(drop)
    }

    fn redis(&self) -> Vec<(&str, &RedisConfig)> {
        each(&self.limits.redis)
    }

    fn make<H: AnyHost>(json: &[u8], host: &H, _: bool) -> Result<AnyConfigured, FieldError> {
        weir_event::engine::configure(json, host).map(|engine| any(engine, json, host))
    }

    /// Includes the limiter's metrics.
    fn later_metrics() -> Metrics {
        weir_limit::engine::metrics_of_any_rule()
    }
}

impl EngineRegistration for weir_fitment::engine::config::Config {
    const FILTER: &'static Filter = &FITMENT;

    fn check(self, _: bool, _: Environment<'_>) -> Result<(), FieldError> {
        self.checked().map(drop)
    }

    fn redis(&self) -> Vec<(&str, &RedisConfig)> {
        let further = self.clusters.values();
        let further = further.map(|cluster| (cluster.as_str(), &self.redis));
        each([&self.redis]).into_iter().chain(further).collect()
    }

    fn make<H: AnyHost>(json: &[u8], host: &H, _: bool) -> Result<AnyConfigured, FieldError> {
        weir_fitment::engine::configure(json).map(|engine| any(engine, json, host))
    }
}

impl EngineRegistration for weir_room::engine::config::Config {
    const FILTER: &'static Filter = &ROOM;

    fn check(self, _: bool, environment: Environment<'_>) -> Result<(), FieldError> {
        self.checked(environment).map(drop)
    }

    fn redis(&self) -> Vec<(&str, &RedisConfig)> {
        each([&self.redis])
    }

    fn make<H: AnyHost>(json: &[u8], host: &H, _: bool) -> Result<AnyConfigured, FieldError> {
        weir_room::engine::configure(json, host).map(|engine| any(engine, json, host))
    }
}

/// Reads and checks a filter's configuration. `sees_responses`: whether the host passes responses to the engine;
/// `environment` contains the secrets.
///
/// # Errors
/// When the engine rejects the configuration.
pub fn read(
    filter: &Filter,
    json: &[u8],
    sees_responses: bool,
    environment: Environment<'_>,
) -> Result<Box<dyn Settings>, FieldError> {
    found(READERS, filter)?(json, sees_responses, environment)
}

/// Builds a filter's engine from its configuration. `sees_responses`: whether the host passes responses to the engine.
///
/// # Errors
/// When the engine rejects the configuration.
pub fn make<H: AnyHost>(
    filter: &Filter,
    json: &[u8],
    host: &H,
    sees_responses: bool,
) -> Result<AnyConfigured, FieldError> {
    found(&makers::<H>(), filter)?(json, host, sees_responses)
}

/// Metrics that an engine may add after its start. A host that can define metrics only at startup needs their labels.
pub fn later_metrics(filter: &Filter) -> Metrics {
    found(LATER_METRICS, filter).map_or_else(|_| Metrics::new(), |metrics| metrics())
}

fn found<T: Copy>(all: &[(&Filter, T)], filter: &Filter) -> Result<T, FieldError> {
    let found = all
        .iter()
        .find(|(existing, _)| existing.name == filter.name);
    let missing = || FieldError::new("", format!("{} has no engine in the registry", filter.name));
    found.map(|(_, of)| *of).ok_or_else(missing)
}

fn read_as<C: EngineRegistration>(
    json: &[u8],
    sees_responses: bool,
    environment: Environment<'_>,
) -> Result<Box<dyn Settings>, FieldError> {
    let config: C = parse(json)?;
    config.clone().check(sees_responses, environment)?;
    Ok(Box::new(config))
}

fn any<E: Engine + Send + 'static>(
    configured: ConfiguredEngine<E>,
    json: &[u8],
    host: &impl Host,
) -> AnyConfigured {
    let configured = Reporting::wrap(configured, json, host);
    ConfiguredEngine {
        engine: Box::new(configured.engine),
        redis_clusters: configured.redis_clusters,
        rules: configured.rules,
    }
}

fn each<'a>(redis: impl IntoIterator<Item = &'a RedisConfig>) -> Vec<(&'a str, &'a RedisConfig)> {
    let pair = |redis: &'a RedisConfig| (redis.cluster.as_str(), redis);
    redis.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FILTERS;

    #[test]
    fn each_filter_has_an_engine() {
        let existing: Vec<_> = READERS.iter().map(|(filter, _)| filter.name).collect();
        let listed: Vec<_> = FILTERS.iter().map(|filter| filter.name).collect();
        assert_eq!(existing, listed);
    }

    #[test]
    fn unknown_field_is_refused_with_its_name() {
        for filter in FILTERS {
            let json = br#"{"no_such_field":1}"#;
            let refusal = read(filter, json, true, &|_| None).err();
            let refusal = refusal.expect("it is refused").to_string();
            assert!(refusal.contains("no_such_field"), "{refusal}");
        }
    }
}
