//! Counters of Redis and Envoy for the storm.

use anyhow::Result;
use std::collections::BTreeMap;
use weir_stack::Stack;

/// Redis' counters of script calls. Commands inside a script count under their own names, so these two are the commands
/// that clients sent.
const REDIS_SCRIPT_CALLS: [&str; 2] = ["evalsha", "eval"];

/// Script calls by the gate's pump, without the origin's.
const GATEWAY_SCRIPT_CALLS: &str = "wasmcustom.weir_seckill_gate_redis_commands_total";

/// Requests in batches of the gate's pump.
const REDIS_REQUESTS: &str = "wasmcustom.weir_seckill_gate_redis_requests_total";

/// Monotonic counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Scripts that Redis ran: claims of the gateway, settles of the origin.
    pub(super) redis_commands: u64,
    /// Scripts that the gateway called.
    pub(super) redis_commands_gateway: u64,
    /// Requests that needed Redis.
    pub(super) redis_requests: u64,
}

impl Counters {
    pub(super) async fn read(stack: &Stack) -> Result<Self> {
        let redis = weir_stack::redis::command_calls(stack.redis_url()).await?;
        let envoy = stack.envoy.stats().await?;
        Ok(Self {
            redis_commands: sum(&redis, &REDIS_SCRIPT_CALLS),
            redis_commands_gateway: sum(&envoy, &[GATEWAY_SCRIPT_CALLS]),
            redis_requests: sum(&envoy, &[REDIS_REQUESTS]),
        })
    }

    pub(super) fn since(self, before: &Self) -> Self {
        Self {
            redis_commands: self.redis_commands.saturating_sub(before.redis_commands),
            redis_commands_gateway: self
                .redis_commands_gateway
                .saturating_sub(before.redis_commands_gateway),
            redis_requests: self.redis_requests.saturating_sub(before.redis_requests),
        }
    }

    /// The requests per Redis command of the gateway; `None` before the first command.
    pub(super) fn requests_per_command(&self) -> Option<f64> {
        let commands = self.redis_commands_gateway;
        (commands > 0).then(|| self.redis_requests as f64 / commands as f64)
    }
}

/// A missing counter has not counted yet.
fn sum(counts: &BTreeMap<String, u64>, names: &[&str]) -> u64 {
    names.iter().filter_map(|&name| counts.get(name)).sum()
}
