//! Limits with one shared counter, for platforms that have one.
//!
//! The unchanged limiter runs there, on durable memory. Everywhere else, a [`Probe`] determines which requests need it.

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;

use weir_base::FieldError;
use weir_base::shared_data::SharedData;
use weir_engine::Answer;
use weir_engine::event::PlainRequest;
use weir_limit::engine::Limiter;

use crate::config::Config;
use crate::edge::{Data, EdgeSetup, Host, limiter, within};
use crate::engine_slot::{EngineSlot, EngineVerdict};
use crate::knowledge::Knowledge;
use crate::store::MemoryStore;

/// The limits in `exact_limits`.
pub struct ExactLimits {
    part: EngineSlot<Limiter<Data>>,
    /// Empty: these rules read nothing from feeds.
    knowledge: Knowledge<MemoryStore>,
}

impl ExactLimits {
    /// The exact limits of a configuration, if it has any. They count in [`EdgeSetup::data`].
    ///
    /// # Errors
    /// If a field is invalid, with its path.
    pub fn new(json: &[u8], setup: EdgeSetup) -> Result<Option<Self>, FieldError> {
        let config = Config::read(json, &setup.variable)?;
        let Some(limits) = &config.exact_limits else {
            return Ok(None);
        };
        let host = Rc::new(Host::new(setup, &config));
        Ok(Some(Self {
            part: limiter(limits, &host).map_err(within("exact_limits"))?,
            knowledge: Knowledge::new(&config, MemoryStore::default()),
        }))
    }

    /// The refusal of a request; `None` if it passes.
    pub fn ask(&mut self, request: &PlainRequest) -> Option<Arc<Answer>> {
        match self.part.ask(request, &self.knowledge, true, |_| ()) {
            EngineVerdict::Answer(answer) => Some(answer),
            EngineVerdict::GoesOn | EngineVerdict::Undecided => None,
        }
    }
}

/// Determines whether exact limits apply to a request.
pub struct Probe {
    limits: ExactLimits,
    data: Rc<ReadProbe>,
}

/// Memory without content that records whether it was read.
#[derive(Default)]
struct ReadProbe(Cell<bool>);

impl SharedData for ReadProbe {
    fn get(&self, _key: &str) -> Option<(Vec<u8>, u32)> {
        self.0.set(true);
        None
    }

    fn set(&self, _key: &str, _value: &[u8], _version: u32) -> bool {
        self.0.set(true);
        true
    }
}

impl Probe {
    /// Like [`ExactLimits::new`].
    ///
    /// # Errors
    /// If a field is invalid, with its path.
    pub fn new(
        json: &[u8],
        variable: Box<crate::edge::Variable>,
    ) -> Result<Option<Self>, FieldError> {
        let data = Rc::new(ReadProbe::default());
        let setup = EdgeSetup {
            variable,
            seed: 0,
            data: Rc::clone(&data) as Data,
            counts_exactly: true,
        };
        let limits = ExactLimits::new(json, setup)?;
        Ok(limits.map(|limits| Self { limits, data }))
    }

    /// Whether a rule counts this request, or refuses it regardless of counters.
    pub fn concerns(&mut self, request: &PlainRequest) -> bool {
        self.data.0.set(false);
        let is_refused = self.limits.ask(request).is_some();
        is_refused || self.data.0.get()
    }
}
