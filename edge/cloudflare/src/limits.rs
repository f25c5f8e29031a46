//! The object that counts exact limits: one for all isolates, with a durable table in SQLite.
//!
//! It runs the gateways' limiter. A response is sent after its charges are on disk, because workerd holds responses
//! back until then. Only requests that a rule counts come here: one object serves about a thousand per second.

use std::cell::RefCell;
use std::rc::Rc;

use weir_base::shared_data::SharedData;
use weir_edge::edge::EdgeSetup;
use weir_edge::exact::ExactLimits;
use weir_edge::host::{CONFIG, text};
use weir_engine::event::PlainRequest;
use worker::{
    DurableObject, Env, Headers, Request, RequestInit, Response, Result, SqlStorage,
    SqlStorageValue, State, durable_object,
};

use crate::client::now_ms;
use crate::host::{self, with_site};
use crate::settings::{boxed, variables};

/// The object's namespace.
const LIMITS: &str = "WEIR_LIMITS";

/// The object's status for a request that passes.
const GOES_ON: u16 = 204;

/// The refusal of exact limits, if any. If the object does not respond, the request passes, as at gateways without
/// Redis: their limits apply, too.
pub(crate) async fn refusal(
    space: &str,
    request: &Request,
    requested: &PlainRequest,
    env: &Env,
) -> Option<Response> {
    let concerns = with_site(space, |site| {
        let probe = site.exact.as_mut();
        probe.is_some_and(|probe| probe.concerns(requested))
    });
    if concerns != Some(true) {
        return None;
    }
    match ask(request, env).await {
        Ok(response) if response.status_code() == GOES_ON => None,
        Ok(response) => Some(response),
        Err(error) => {
            worker::console_error!("weir: the limits' object: {error}");
            None
        }
    }
}

/// Sends the request's head to the object, with the client address from the platform.
async fn ask(request: &Request, env: &Env) -> Result<Response> {
    let object = env.durable_object(LIMITS)?;
    let object = object.get_by_name(&host::name(request, "limits"))?;
    let headers = Headers::new();
    for (name, value) in request.headers().entries() {
        headers.append(&name, &value)?;
    }
    let mut init = RequestInit::new();
    init.with_method(request.method()).with_headers(headers);
    let head = Request::new_with_init(request.url()?.as_str(), &init)?;
    object.fetch_with_request(head).await
}

/// The object.
#[durable_object]
pub struct Limits {
    state: State,
    env: Env,
    exact: RefCell<Option<ExactLimits>>,
}

impl DurableObject for Limits {
    fn new(state: State, env: Env) -> Self {
        Self {
            state,
            env,
            exact: RefCell::default(),
        }
    }

    async fn fetch(&self, request: Request) -> Result<Response> {
        let now_ms = now_ms(&request);
        let requested = host::engine_request(&request, now_ms)?;
        self.open(&request)?;
        let mut exact = self.exact.borrow_mut();
        match exact.as_mut().and_then(|exact| exact.ask(&requested)) {
            Some(answer) => host::sent(&answer, request.method().as_ref()),
            None => Ok(Response::empty()?.with_status(GOES_ON)),
        }
    }
}

impl Limits {
    fn open(&self, request: &Request) -> Result<()> {
        let mut exact = self.exact.borrow_mut();
        if exact.is_some() {
            return Ok(());
        }
        let variable = host::variables_of(request).unwrap_or_else(|| variables(&self.env));
        let json = text(&*variable, CONFIG).map_err(worker::Error::RustError)?;
        let setup = EdgeSetup {
            variable: boxed(&variable),
            seed: 0,
            data: Rc::new(Table::open(&self.state)?),
            counts_exactly: true,
        };
        let limits = ExactLimits::new(json.as_bytes(), setup);
        *exact = limits.map_err(|error| worker::Error::RustError(error.to_string()))?;
        Ok(())
    }
}

/// The object's memory. The object is the only writer, so no compare-and-swap is needed.
struct Table(SqlStorage);

impl Table {
    fn open(state: &State) -> Result<Self> {
        let sql = state.storage().sql();
        let table =
            "CREATE TABLE IF NOT EXISTS counted (key TEXT PRIMARY KEY, value BLOB NOT NULL)";
        sql.exec(table, None)?;
        Ok(Self(sql))
    }
}

impl SharedData for Table {
    fn get(&self, key: &str) -> Option<(Vec<u8>, u32)> {
        let query = "SELECT value FROM counted WHERE key = ?";
        let rows = self.0.exec(query, vec![key.into()]).ok()?;
        let row = rows.raw().next()?.ok()?;
        match row.into_iter().next()? {
            SqlStorageValue::Blob(value) => Some((value, 1)),
            _ => None,
        }
    }

    fn set(&self, key: &str, value: &[u8], _version: u32) -> bool {
        let query = "INSERT INTO counted (key, value) VALUES (?, ?) \
                     ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        let written = self.0.exec(query, vec![key.into(), value.to_vec().into()]);
        written.is_ok()
    }
}
