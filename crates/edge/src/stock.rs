//! Sales whose stock is in objects: the gate decides here, as at a gateway, and calls the shards.
//!
//! The edge's data answers the gate's polls of the catalogue; each other call needs one shard. If a reply is missing,
//! the client must retry, and then gets its existing claim.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weir_base::FieldError;
use weir_base::resp::decode;
use weir_engine::Request;
use weir_sale::engine::Gate;
use weir_sale::engine::route::{Route, RouteKind};
use weir_sale::redis::keys::{self, ShardKeys};

use crate::edge::Data;
use crate::engine_slot::Make;
use crate::knowledge::{Knowledge, words};
use crate::object_calls::{CallPart, CallRouter, Pool, Run};
use crate::shard::{ObjectCommands, ShardCommand};
use crate::store::Store;

/// The origin's route for claims; gateways route to it, too.
pub const ORDERS: &str = "/orders";

/// The gate of sales in objects.
pub(crate) struct Stock {
    pool: Pool<Gate<Data>>,
    routes: Vec<Route>,
    key_prefix: String,
}

impl Stock {
    /// # Errors
    /// If the configuration is invalid.
    pub(crate) fn new(
        make: Make<Gate<Data>>,
        routes: Vec<Route>,
        key_prefix: String,
    ) -> Result<Self, FieldError> {
        Ok(Self {
            pool: Pool::new(make)?,
            routes,
            key_prefix,
        })
    }

    /// The key prefix of its shards.
    pub(crate) fn key_prefix(&self) -> &str {
        &self.key_prefix
    }

    /// Whether a request buys.
    pub(crate) fn is_asked(&self, method: &[u8], path: &[u8]) -> bool {
        let sale = |route: &Route| route.sale(method, path).map(RouteKind::Buy);
        self.routes.iter().find_map(sale).is_some()
    }

    /// Starts a request; `None` if there is no engine for it.
    pub(crate) fn begin<S: Store>(
        &mut self,
        request: &dyn Request,
        knowledge: &Knowledge<S>,
    ) -> Option<Run<Gate<Data>>> {
        let of = SaleCallRouter {
            knowledge,
            key_prefix: &self.key_prefix,
        };
        self.pool.begin(request, &of)
    }

    /// Answers the calls that need no shard.
    pub(crate) fn call_router<'a, S: Store>(
        &'a self,
        knowledge: &'a Knowledge<S>,
    ) -> impl CallRouter + 'a {
        SaleCallRouter {
            knowledge,
            key_prefix: &self.key_prefix,
        }
    }

    pub(crate) fn finish(&mut self, run: Run<Gate<Data>>) {
        self.pool.finish(run, |engine| engine.open_streams() > 0);
    }
}

struct SaleCallRouter<'a, S> {
    knowledge: &'a Knowledge<S>,
    key_prefix: &'a str,
}

impl<S: Store> CallRouter for SaleCallRouter<'_, S> {
    fn parts(&self, body: &[u8], now_ms: u64) -> Option<Vec<CallPart>> {
        let catalogue = keys::catalogue(self.key_prefix);
        let (mut rest, mut parts) = (body, Vec::new());
        while !rest.is_empty() {
            let (command, used) = decode(rest).ok()?;
            rest = rest.get(used..)?;
            let words = words(&command)?;
            if words.get(1).is_some_and(|key| *key == catalogue) {
                parts.push(CallPart::Known(self.knowledge.catalogue_reply(now_ms)?));
                continue;
            }
            let shard = ShardKeys::of_command(self.key_prefix, &words)?;
            let command = ShardCommand::from_redis(&words, shard.as_bytes()).ok()?;
            match parts.last_mut() {
                Some(CallPart::Of {
                    object,
                    commands: ObjectCommands::Shard(commands),
                }) if object == shard => commands.push(command),
                _ => parts.push(CallPart::Of {
                    object: shard.into(),
                    commands: ObjectCommands::Shard(vec![command]),
                }),
            }
        }
        Some(parts)
    }
}
