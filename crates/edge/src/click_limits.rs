//! Links with a click limit, counted in one object per link. The engine of links decides here, as at a gateway, and
//! calls the link's object.
//!
//! The object's record is authoritative: an edit reaches it before the edit is acknowledged, even if this edge has not
//! read it yet. If it is uncertain whether a click was counted, the click is not redirected, and is returned by its ID,
//! as at a gateway.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weir_base::FieldError;
use weir_base::resp::decode;
use weir_engine::Request;
use weir_link::engine::Links;
use weir_link::redis::keys::LinkKeys;

use crate::engine_slot::Make;
use crate::knowledge::{Knowledge, words};
use crate::object_calls::{CallPart, CallRouter, Pool, Run};
use crate::shard::{LinkCommand, ObjectCommands};
use crate::store::Store;

/// The engine of links with a click limit.
pub(crate) struct ClickLimits {
    pool: Pool<Links>,
    key_prefix: String,
    /// The version of the edge's knowledge that idle engines have read.
    changes: u64,
}

impl ClickLimits {
    /// # Errors
    /// If the configuration is invalid.
    pub(crate) fn new(make: Make<Links>, key_prefix: String) -> Result<Self, FieldError> {
        Ok(Self {
            pool: Pool::new(make)?,
            key_prefix,
            changes: 0,
        })
    }

    /// The key prefix of its links.
    pub(crate) fn key_prefix(&self) -> &str {
        &self.key_prefix
    }

    /// Starts a request; `None` if there is no engine for it.
    pub(crate) fn begin<S: Store>(
        &mut self,
        request: &dyn Request,
        knowledge: &Knowledge<S>,
    ) -> Option<Run<Links>> {
        if self.changes != knowledge.changes() {
            self.pool.clear();
            self.changes = knowledge.changes();
        }
        let of = LinkCallRouter {
            knowledge,
            key_prefix: &self.key_prefix,
        };
        self.pool.begin(request, &of)
    }

    /// Answers the calls that need no object.
    pub(crate) fn call_router<'a, S: Store>(
        &'a self,
        knowledge: &'a Knowledge<S>,
    ) -> impl CallRouter + 'a {
        LinkCallRouter {
            knowledge,
            key_prefix: &self.key_prefix,
        }
    }

    pub(crate) fn finish(&mut self, run: Run<Links>) {
        // An engine whose object failed caches that, and would call the origin next time.
        let is_unsure = run.is_unsure();
        let waits = |engine: &Links| is_unsure || engine.waiting() + engine.unused() > 0;
        self.pool.finish(run, waits);
    }
}

struct LinkCallRouter<'a, S> {
    knowledge: &'a Knowledge<S>,
    key_prefix: &'a str,
}

impl<S: Store> CallRouter for LinkCallRouter<'_, S> {
    fn parts(&self, body: &[u8], now_ms: u64) -> Option<Vec<CallPart>> {
        let (mut rest, mut parts) = (body, Vec::new());
        while !rest.is_empty() {
            let (command, used) = decode(rest).ok()?;
            rest = rest.get(used..)?;
            let words = words(&command)?;
            if let Some(link) = LinkKeys::of_command(self.key_prefix, &words) {
                let command = LinkCommand::from_redis(&words, link.as_bytes()).ok()?;
                parts.push(CallPart::Of {
                    object: link.into(),
                    commands: ObjectCommands::Link(vec![command]),
                });
            } else {
                let reply = self.knowledge.reply_to(self.key_prefix, &words, now_ms);
                parts.push(CallPart::Known(reply?));
            }
        }
        Some(parts)
    }
}
