//! The Worker's bindings.

use std::rc::Rc;

use js_sys::{Function, Reflect, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};
use weir_base::shared_data::LocalData;
use weir_edge::Edge;
use weir_edge::edge::{EdgeSetup, Variable};
use weir_edge::exact::Probe;
use weir_edge::host::{CONFIG, Upstreams, text};
use worker::Env;

use crate::front::Front;

/// An edge, and its servers.
pub(crate) struct Site {
    pub(crate) edge: Edge<Rc<Front>>,
    pub(crate) front: Rc<Front>,
    pub(crate) upstreams: Upstreams,
    pub(crate) exact: Option<Probe>,
}

impl Site {
    /// The edge for these variables, with the data in `front`.
    ///
    /// # Errors
    /// If a variable is missing, or the configuration is invalid.
    pub(crate) fn new(variable: Rc<Variable>, front: Rc<Front>) -> Result<Self, String> {
        let (json, upstreams) = (text(&*variable, CONFIG)?, Upstreams::read(&*variable)?);
        let exact = Probe::new(json.as_bytes(), boxed(&variable));
        let exact = exact.map_err(|error| format!("invalid {CONFIG}: {error}"))?;
        let variable = boxed(&variable);
        let setup = EdgeSetup {
            variable,
            seed: unguessable()?,
            data: Rc::new(LocalData::default()),
            counts_exactly: true,
        };
        let edge = Edge::new(json.as_bytes(), setup, Rc::clone(&front))
            .map_err(|error| format!("invalid {CONFIG}: {error}"))?;
        Ok(Self {
            edge,
            front,
            upstreams,
            exact,
        })
    }
}

/// A number unique to this isolate: it identifies clicks.
fn unguessable() -> Result<u64, String> {
    let filled = || {
        let crypto = Reflect::get(&js_sys::global(), &"crypto".into())?;
        let fill: Function = Reflect::get(&crypto, &"getRandomValues".into())?.dyn_into()?;
        let bytes = Uint8Array::new_with_length(8);
        fill.call1(&crypto, &bytes)?;
        Ok::<_, JsValue>(bytes.to_vec())
    };
    let bytes = filled().ok().and_then(|bytes| bytes.try_into().ok());
    let bytes: [u8; 8] = bytes.ok_or("the platform provides no random numbers")?;
    Ok(u64::from_be_bytes(bytes))
}

/// The same variables, with another owner.
pub(crate) fn boxed(variable: &Rc<Variable>) -> Box<Variable> {
    let variable = Rc::clone(variable);
    Box::new(move |name| variable(name))
}

/// A Worker's variables and secrets.
pub(crate) fn variables(env: &Env) -> Rc<Variable> {
    let env = env.clone();
    Rc::new(move |name| {
        let value = env.var(name).ok()?.to_string();
        Some(value.into_bytes())
    })
}
