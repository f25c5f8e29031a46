//! A filter's name and configuration → its engine.

use weir_base::FieldError;
use weir_engine::setup::Configured;
use weir_engine::{Effects, Engine, Event, Metrics};

use crate::shared::ProcessHost;

/// An engine of whatever kind, which any thread may run.
pub trait AnyEngine: Send {
    /// As [`Engine::NAME`].
    fn name(&self) -> &'static str;

    /// As [`Engine::handle`].
    fn handle(&mut self, event: Event<'_>, effects: &mut Effects);

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

    fn tick_ms(&self) -> Option<u64> {
        Engine::tick_ms(self)
    }

    fn metrics(&mut self) -> &mut Metrics {
        Engine::metrics(self)
    }
}

/// An engine, and for each Redis that it asks, its name.
pub struct Made {
    /// The engine.
    pub engine: Box<dyn AnyEngine>,
    /// The names.
    pub redis: Vec<String>,
    /// The names of the rules that it begins with.
    pub rules: Vec<String>,
}

/// One of the filters in this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Flash-sale admission.
    Gate,
    /// Rate limits.
    Limiter,
    /// Short links.
    Links,
    /// Behaviour events.
    Events,
    /// Vehicle fitment.
    Fitment,
    /// Waiting rooms.
    Room,
}

impl Kind {
    /// Each, and the `filter_name` by which Envoy's configuration chooses it.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Gate, "weir.seckill_gate"),
        (Self::Limiter, "weir.ratelimit"),
        (Self::Links, "weir.shortlink_redirect"),
        (Self::Events, "weir.events"),
        (Self::Fitment, "weir.fitment"),
        (Self::Room, "weir.waiting_room"),
    ];

    /// The filter of this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &[u8]) -> Result<Self, FieldError> {
        let mut all = Self::ALL.iter();
        let found = all.find(|(_, known)| known.as_bytes() == name);
        found.map(|(kind, _)| *kind).ok_or_else(|| {
            let names = Self::ALL.map(|(_, name)| name).join(", ");
            let problem = format!(
                "there is no filter {}; there are {names}",
                String::from_utf8_lossy(name)
            );
            FieldError::new("filter_name", problem)
        })
    }

    /// Whether its engine has anything to do with responses. Envoy shows each to a native module; those of the others cost no
    /// lock.
    pub fn sees_responses(self) -> bool {
        matches!(self, Self::Limiter | Self::Events | Self::Room)
    }

    /// What an engine may count later, beside what it has from the beginning: only the tags of these matter.
    pub fn later_metrics(self) -> Metrics {
        match self {
            Self::Limiter | Self::Events => weir_limit::engine::metrics_of_any_rule(),
            Self::Gate | Self::Links | Self::Fitment | Self::Room => Metrics::new(),
        }
    }

    /// Makes an engine from its configuration.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn make(self, json: &[u8]) -> Result<Made, FieldError> {
        let host = &ProcessHost;
        match self {
            Self::Gate => weir_sale::engine::configure(json, host).map(made),
            Self::Limiter => weir_limit::engine::configure(json, host, true).map(made),
            Self::Links => weir_link::engine::configure(json, host).map(made),
            Self::Events => weir_event::engine::configure(json, host).map(made),
            Self::Fitment => weir_fitment::engine::configure(json).map(made),
            Self::Room => weir_room::engine::configure(json, host).map(made),
        }
    }
}

fn made<E: Engine + Send + 'static>(configured: Configured<E>) -> Made {
    Made {
        engine: Box::new(configured.engine),
        redis: configured.redis_clusters,
        rules: configured.rules,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_here_is_refused_with_those_that_are() {
        assert_eq!(Kind::named(b"weir.fitment"), Ok(Kind::Fitment));
        let error = Kind::named(b"weir.nothing").unwrap_err().to_string();
        assert!(error.starts_with("filter_name: "), "{error}");
        assert!(
            error.contains("weir.seckill_gate, weir.ratelimit"),
            "{error}"
        );
    }

    #[test]
    fn a_refusal_names_the_field() {
        let error = |kind: Kind, json: &str| {
            let error = kind.make(json.as_bytes()).err();
            error.map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(error(Kind::Fitment, r#"{"nothing":1}"#).contains("nothing"));
        let limits = r#"{"rules":[{"name":"r","limit":{"rate":0}}]}"#;
        assert!(error(Kind::Limiter, limits).starts_with("rules[0]"));
        for (kind, _) in Kind::ALL {
            assert!(
                !error(kind, r#"{"no_such_field":1}"#).is_empty(),
                "{kind:?}"
            );
        }
    }
}
