//! Counters, gauges and histograms. Ids belong to each VM; values belong to the process, by name.

use std::collections::HashMap;

use wasmtime::Linker;

use super::{Guest, Outcome, VmData, call, read_text, world, write, write_word};
use crate::abi::Status;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One VM's ids. As in Envoy, the two low bits are the kind, and every definition gets a new id, even for an existing
/// name.
#[derive(Debug, Default)]
pub(crate) struct MetricIds {
    names: HashMap<u32, (Kind, String)>,
}

/// All values, by name.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    numbers: HashMap<String, u64>,
    samples: HashMap<String, Vec<u64>>,
}

impl Metrics {
    /// The value of the counter or gauge `name`, if any VM defined it.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }

    pub fn samples(&self, name: &str) -> &[u64] {
        self.samples.get(name).map_or(&[], Vec::as_slice)
    }

    pub fn all(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.numbers.clone().into_iter().collect();
        all.sort();
        all
    }
}

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_define_metric",
        |g: Guest<'_>, kind: u32, name: u32, size: u32, id_at: u32| {
            call(g, "proxy_define_metric", |g| {
                let name = read_text(g, name, size)?;
                let id = define(g, kind, name)?;
                write_word(g, id_at, id)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_increment_metric",
        |g: Guest<'_>, id: u32, offset: i64| {
            call(g, "proxy_increment_metric", |g| increment(g, id, offset))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_record_metric",
        |g: Guest<'_>, id: u32, value: u64| {
            call(g, "proxy_record_metric", |g| record(g, id, value))
        },
    )?;
    linker.func_wrap("env", "proxy_get_metric", |g: Guest<'_>, id, at| {
        call(g, "proxy_get_metric", |g| get(g, id, at))
    })?;
    Ok(())
}

fn define(guest: &Guest<'_>, kind: u32, name: String) -> Outcome<u32> {
    let kind = match kind {
        0 => Kind::Counter,
        1 => Kind::Gauge,
        2 => Kind::Histogram,
        _ => return Err(Status::BadArgument.into()),
    };
    let uid = guest.data().uid;
    let mut world = world(guest);
    if kind == Kind::Histogram {
        world.metrics.samples.entry(name.clone()).or_default();
    } else {
        world.metrics.numbers.entry(name.clone()).or_default();
    }
    let names = &mut world.vm(uid).metric_ids.names;
    let id = (names.len() as u32 + 1) * 4 + kind as u32;
    names.insert(id, (kind, name));
    Ok(id)
}

fn find(guest: &Guest<'_>, id: u32) -> Outcome<(Kind, String)> {
    let uid = guest.data().uid;
    let mut world = world(guest);
    let found = world.vm(uid).metric_ids.names.get(&id);
    Ok(found.cloned().ok_or(Status::NotFound)?)
}

/// A counter only accepts positive increments; Envoy returns `BadArgument` for 0 as well.
fn increment(guest: &Guest<'_>, id: u32, offset: i64) -> Outcome {
    let (kind, name) = find(guest, id)?;
    let mut world = world(guest);
    let value = world.metrics.numbers.entry(name).or_default();
    match kind {
        Kind::Counter if offset > 0 => *value = value.wrapping_add_signed(offset),
        Kind::Gauge => *value = value.wrapping_add_signed(offset),
        Kind::Counter | Kind::Histogram => return Err(Status::BadArgument.into()),
    }
    Ok(())
}

/// Sets a gauge, samples a histogram or, as in Envoy, adds to a counter.
fn record(guest: &Guest<'_>, id: u32, value: u64) -> Outcome {
    let (kind, name) = find(guest, id)?;
    let metrics = &mut world(guest).metrics;
    match kind {
        Kind::Counter => *metrics.numbers.entry(name).or_default() += value,
        Kind::Gauge => *metrics.numbers.entry(name).or_default() = value,
        Kind::Histogram => metrics.samples.entry(name).or_default().push(value),
    }
    Ok(())
}

fn get(guest: &mut Guest<'_>, id: u32, at: u32) -> Outcome {
    let (kind, name) = find(guest, id)?;
    if kind == Kind::Histogram {
        return Err(Status::BadArgument.into());
    }
    let value = world(guest).metrics.number(&name).unwrap_or(0);
    write(guest, at, &value.to_le_bytes())
}
