//! Where the fuel goes: the same callback again and again, each time with a little more fuel, and each time the stack at
//! which it ran out. The host's clock and data are virtual, so every run is the same as the one before, and the samples
//! are as exact as their number allows.

use crate::redis::Redis;
use crate::{Path, RequestSpec, order};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use weir_host_test::Reply;

/// Samples of one callback.
const SAMPLES: u64 = 250;

/// Enough for every callback.
const FUEL_MAX: u64 = 1 << 33;

/// Functions that are listed.
const LISTED: usize = 14;

/// One callback's profile.
#[derive(Debug, Clone)]
pub struct Profile {
    /// What happens.
    pub title: &'static str,
    /// Fuel of the callback as a whole.
    pub fuel: u64,
    /// Share of the samples in which a function was the innermost, by name.
    pub own: BTreeMap<String, f64>,
    /// Share of the samples in which it was on the stack at all.
    pub with_callees: BTreeMap<String, f64>,
}

/// A moment, and what is looked at from there on.
struct Subject {
    title: &'static str,
    /// What has happened before.
    prepare: fn(&mut Path) -> Result<()>,
    /// The callback.
    run: fn(&mut Path) -> Result<()>,
}

const BATCH: u64 = crate::REQUESTS;

const SUBJECTS: [Subject; 4] = [
    Subject {
        title: "A request for a sale that is sold out (`proxy_on_request_headers`)",
        prepare: |_| Ok(()),
        run: |path| send(path, &order("gone", 7)),
    },
    Subject {
        title: "A request with an order token, up to where it waits for Redis (`proxy_on_request_headers`)",
        prepare: |path| {
            path.keep_busy(|user| order("open", user));
            Ok(())
        },
        run: |path| send(path, &crate::with_token(7)),
    },
    Subject {
        title: "A batch of 64 claims is written and sent (`proxy_on_queue_ready`)",
        prepare: fill_batch,
        run: |path| {
            path.gate.turn();
            Ok(())
        },
    },
    Subject {
        title: "The replies to 64 claims are read, and 64 requests go on (`proxy_on_grpc_receive`)",
        prepare: |path| {
            fill_batch(path)?;
            path.gate.run_until_idle();
            path.fetch()
        },
        run: |path| path.complete(),
    },
];

fn fill_batch(path: &mut Path) -> Result<()> {
    path.keep_busy(|user| order("open", user));
    (0..BATCH).try_for_each(|user| send(path, &order("open", user)))
}

fn send(path: &Path, ask: &RequestSpec) -> Result<()> {
    ask.send(&path.gate);
    Ok(())
}

/// All profiles.
///
/// # Errors
/// When a filter cannot be built or a Redis not started.
pub fn all() -> Result<Vec<Profile>> {
    SUBJECTS.iter().map(Subject::profile).collect()
}

impl Subject {
    fn profile(&self) -> Result<Profile> {
        let mut redis = Redis::start()?;
        let fuel;
        (fuel, redis) = self.fuel(redis)?;
        ensure!(fuel > SAMPLES, "{}: nothing ran", self.title);
        let (mut own, mut with_callees) = (BTreeMap::new(), BTreeMap::new());
        for sample in 0..SAMPLES {
            // In the middle of each of equal parts.
            let limit = fuel * (2 * sample + 1) / (2 * SAMPLES);
            let trap;
            (trap, redis) = self.trap(limit, redis)?;
            let stack = frames(&trap.context("no trap, though there was one with more fuel")?);
            let share = 1.0 / SAMPLES as f64;
            if let Some(innermost) = stack.first() {
                *own.entry(innermost.clone()).or_default() += share;
            }
            for function in stack.into_iter().collect::<BTreeSet<String>>() {
                *with_callees.entry(function).or_default() += share;
            }
        }
        Ok(Profile {
            title: self.title,
            fuel,
            own,
            with_callees,
        })
    }

    /// How much the dearest callback takes: the least limit at which none traps.
    fn fuel(&self, mut redis: Redis) -> Result<(u64, Redis)> {
        let (mut too_little, mut enough) = (0, FUEL_MAX);
        while enough - too_little > 1 {
            let middle = u64::midpoint(too_little, enough);
            let trap;
            (trap, redis) = self.trap(middle, redis)?;
            match trap {
                Some(_) => too_little = middle,
                None => enough = middle,
            }
        }
        Ok((enough, redis))
    }

    /// The trap of a callback that has no more fuel than `limit`; none if that is enough.
    fn trap(&self, limit: u64, redis: Redis) -> Result<(Option<String>, Redis)> {
        let mut path = Path::before(redis, &named_gate()?, false)?;
        (self.prepare)(&mut path)?;
        path.gate.clear_logs();
        path.gate.limit_fuel_per_callback(limit);
        (self.run)(&mut path)?;
        path.gate.limit_fuel_per_callback(FUEL_MAX);
        let logs = path.gate.logs().into_iter();
        let trap = logs
            .map(|line| line.message)
            .find(|line| line.starts_with("trap in "));
        // Requests that were paused in the dead VM hang; that is not what is looked at.
        path.gate.take_violations();
        Ok((trap, path.redis))
    }
}

/// The gate as rustc left it: the module that is shipped has no names of functions, but the same code.
fn named_gate() -> Result<PathBuf> {
    weir_stack::wasm::filter("seckill-gate")?;
    let built = "cargo/wasm32-unknown-unknown/wasm/weir_seckill_gate.wasm";
    Ok(weir_stack::workspace::out_dir().join(built))
}

/// Function names of lines like `  0: 0x1a2b - weir.wasm!_ZN9weir_sale9admission5admit17h0123456789abcdefE`,
/// innermost first.
fn frames(trap: &str) -> Vec<String> {
    let frame = |line: &str| {
        let (_, name) = line.trim_start().split_once(" - ")?;
        let name = name.rsplit('!').next().unwrap_or(name).trim();
        // `#`: without the hash that rustc adds.
        Some(format!("{:#}", rustc_demangle::demangle(name)))
    };
    trap.lines().filter_map(frame).collect()
}

impl Profile {
    /// A table in Markdown.
    pub fn table(&self) -> String {
        let mut all: Vec<_> = self.with_callees.iter().collect();
        let own = |name: &str| self.own.get(name).copied().unwrap_or(0.0);
        all.sort_by(|a, b| own(b.0).total_cmp(&own(a.0)).then(b.1.total_cmp(a.1)));
        let mut table = format!(
            "### {}\n\n{} units of fuel.\n\n| itself | with what it calls | function |\n|---|---|---|\n",
            self.title, self.fuel
        );
        for (name, with_callees) in all.into_iter().take(LISTED) {
            let (own, with_callees) = (own(name) * 100.0, with_callees * 100.0);
            table += &format!("| {own:.1} % | {with_callees:.1} % | `{name}` |\n");
        }
        table
    }
}

impl Path {
    /// Takes the calls under way to Redis, and keeps their replies.
    fn fetch(&mut self) -> Result<()> {
        for call in self.calls() {
            let reply = self.carry(&call)?;
            self.completion.push((call.id, reply));
        }
        Ok(())
    }

    /// Gives the replies to the gate.
    fn complete(&mut self) -> Result<()> {
        for (id, reply) in std::mem::take(&mut self.completion) {
            self.gate.answer(id, Reply::ok(reply));
        }
        self.gate.turn();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_without_their_hash() {
        let trap = "trap in proxy_on_request_headers: all fuel consumed\nwasm backtrace:\n    \
                    0:   0x1a2b - gate.wasm!_ZN9weir_sale9admission5admit17h0123456789abcdefE\n    \
                    1:   0x3c - gate.wasm!memcmp\n";
        assert_eq!(frames(trap), ["weir_sale::admission::admit", "memcmp"]);
    }
}
