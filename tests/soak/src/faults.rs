//! The faults.

use anyhow::{Context, Result};
use std::time::Duration;
use tokio::time::sleep;
use weir_stack::Stack;
use weir_stack::fault::Fault as Wire;

/// The fault of one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Redis is killed and restarted with its append-only file.
    RedisKilled,
    /// The origin is killed and restarted.
    OriginKilled,
    /// The second gateway is killed and restarted.
    GatewayKilled,
    /// Redis loses all data.
    RedisEmptied,
    /// Redis is paused.
    RedisFrozen,
    /// The origin is paused.
    OriginFrozen,
    /// Redis' replies to gateways are delayed.
    RepliesDelayed,
    /// Redis' replies to gateways are lost.
    RepliesLost,
    /// Gateways' calls to the origin are lost.
    OrdersLost,
    /// The origin's answers to gateways are lost.
    AnswersLost,
    /// The origin's connections to Redis break.
    OriginCutOff,
}

/// Faults that restart a process.
const KILLS: [Fault; 3] = [
    Fault::RedisKilled,
    Fault::OriginKilled,
    Fault::GatewayKilled,
];

/// Faults without a restart.
const LIVED_THROUGH: [Fault; 8] = [
    Fault::RedisEmptied,
    Fault::RedisFrozen,
    Fault::OriginFrozen,
    Fault::RepliesDelayed,
    Fault::RepliesLost,
    Fault::OrdersLost,
    Fault::AnswersLost,
    Fault::OriginCutOff,
];

/// A delay within most deadlines.
const DELAY: Duration = Duration::from_millis(50);

impl Fault {
    /// The fault of each of `periods`: kills only in the first half, and each kind once before any repeats.
    pub fn schedule(periods: u32, seed: u64) -> Vec<Self> {
        let early: Vec<Self> = KILLS.into_iter().chain(LIVED_THROUGH).collect();
        let mut random = Random(seed);
        let half = periods / 2;
        let mut faults = random.rounds(&early, half as usize);
        faults.extend(random.rounds(&LIVED_THROUGH, (periods - half) as usize));
        faults
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::RedisKilled => "Redis killed",
            Self::OriginKilled => "origin killed",
            Self::GatewayKilled => "gateway killed",
            Self::RedisEmptied => "Redis emptied",
            Self::RedisFrozen => "Redis frozen",
            Self::OriginFrozen => "origin frozen",
            Self::RepliesDelayed => "Redis' replies delayed",
            Self::RepliesLost => "Redis' replies lost",
            Self::OrdersLost => "orders lost",
            Self::AnswersLost => "origin's answers lost",
            Self::OriginCutOff => "origin cut off from Redis",
        }
    }

    /// Applies the fault for `length`, and repairs it.
    pub(crate) async fn strike(self, stack: &mut Stack, length: Duration) -> Result<()> {
        match self {
            Self::RedisKilled => {
                let redis = stack.redis.server.as_mut().context("no Redis of its own")?;
                redis.kill();
                sleep(length).await;
                redis.start_again().await
            }
            Self::OriginKilled => {
                stack.origin.process().kill();
                sleep(length).await;
                stack.origin.start_again().await
            }
            Self::GatewayKilled => {
                let gateway = stack.gateways.first_mut().context("no second gateway")?;
                gateway.process().kill();
                sleep(length).await;
                gateway.start_again().await
            }
            Self::RedisEmptied => {
                let mut redis = stack.redis.access.connect().await?;
                let flush = redis::cmd("FLUSHALL");
                flush
                    .exec_async(&mut redis)
                    .await
                    .context("cannot empty Redis")
            }
            Self::RedisFrozen => {
                let redis = stack.redis.server.as_mut().context("no Redis of its own")?;
                redis.process().freeze();
                sleep(length).await;
                redis.process().thaw();
                Ok(())
            }
            Self::OriginFrozen => {
                stack.origin.process().freeze();
                sleep(length).await;
                stack.origin.process().thaw();
                Ok(())
            }
            Self::RepliesDelayed => {
                on_wire(stack, Wire::Delay(DELAY), length, FaultLocation::Redis).await
            }
            Self::RepliesLost => on_wire(stack, Wire::Swallow, length, FaultLocation::Redis).await,
            Self::OrdersLost => on_wire(stack, Wire::Lose, length, FaultLocation::Origin).await,
            Self::AnswersLost => on_wire(stack, Wire::Swallow, length, FaultLocation::Origin).await,
            Self::OriginCutOff => {
                on_wire(stack, Wire::Cut, length, FaultLocation::BehindOrigin).await
            }
        }
    }
}

/// A fault proxy's location.
enum FaultLocation {
    Redis,
    Origin,
    BehindOrigin,
}

async fn on_wire(stack: &Stack, fault: Wire, length: Duration, place: FaultLocation) -> Result<()> {
    let faults = &stack.faults;
    let proxy = match place {
        FaultLocation::Redis => &faults.before_redis,
        FaultLocation::Origin => &faults.before_origin,
        FaultLocation::BehindOrigin => &faults.behind_origin,
    };
    let proxy = proxy.as_ref().context("no proxy there")?;
    proxy.set(fault);
    sleep(length).await;
    proxy.set(Wire::Pass);
    Ok(())
}

/// SplitMix64: small and portable.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `count` of the faults, each once before any repeats.
    fn rounds(&mut self, faults: &[Fault], count: usize) -> Vec<Fault> {
        let mut all = Vec::new();
        while all.len() < count {
            let mut round = faults.to_vec();
            while !round.is_empty() {
                let at = (self.next() % round.len() as u64) as usize;
                all.push(round.swap_remove(at));
            }
        }
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_kind_occurs_before_repeats_and_kills_occur_early() {
        let faults = Fault::schedule(60, 7);
        assert_eq!(faults.len(), 60);
        assert_eq!(faults, Fault::schedule(60, 7));
        assert_ne!(faults, Fault::schedule(60, 8));
        let (first, second) = faults.split_at(30);
        for fault in KILLS.into_iter().chain(LIVED_THROUGH) {
            assert!(first.contains(&fault), "{fault:?}");
        }
        assert!(!second.iter().any(|fault| KILLS.contains(fault)));
        assert!(LIVED_THROUGH.iter().all(|fault| second.contains(fault)));
    }
}
