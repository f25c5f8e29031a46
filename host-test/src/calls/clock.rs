//! Time, ticks and the log.

use wasmtime::Linker;

use super::{Guest, Outcome, VmData, call, read, target, world, write, write_word};
use crate::abi::{LogLevel, Status};
use crate::world::Tick;

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "proxy_log", |g: Guest<'_>, level, at, size| {
        call(g, "proxy_log", |g| log(g, level, at, size))
    })?;
    linker.func_wrap("env", "proxy_get_log_level", |g: Guest<'_>, at: u32| {
        // Everything is captured, so all levels are enabled.
        call(g, "proxy_get_log_level", |g| {
            write_word(g, at, LogLevel::Trace as u32)
        })
    })?;
    let name = "proxy_get_current_time_nanoseconds";
    linker.func_wrap("env", name, |g: Guest<'_>, at: u32| {
        call(g, "proxy_get_current_time_nanoseconds", |g| {
            let now = world(g).now_ns;
            write(g, at, &now.to_le_bytes())
        })
    })?;
    let name = "proxy_set_tick_period_milliseconds";
    linker.func_wrap("env", name, |g: Guest<'_>, period_ms: u32| {
        call(g, "proxy_set_tick_period_milliseconds", |g| {
            set_tick(g, period_ms)
        })
    })?;
    Ok(())
}

fn log(guest: &mut Guest<'_>, level: u32, at: u32, size: u32) -> Outcome {
    let level = LogLevel::from_abi(level).ok_or(Status::BadArgument)?;
    let message = read(guest, at, size)?;
    let message = String::from_utf8_lossy(&message).into_owned();
    let uid = guest.data().uid;
    world(guest).log(uid, level, message);
    Ok(())
}

/// Ticks belong to the root context. 0 stops them; any other period restarts from now.
fn set_tick(guest: &mut Guest<'_>, period_ms: u32) -> Outcome {
    let Some((_, context)) = target(guest) else {
        return Ok(());
    };
    let uid = guest.data().uid;
    let mut world = world(guest);
    let period_ns = u64::from(period_ms) * 1_000_000;
    let due_ns = world.now_ns + period_ns;
    let ticks = &mut world.vm(uid).ticks;
    if period_ms == 0 {
        ticks.remove(&context.root);
    } else {
        ticks.insert(context.root, Tick { period_ns, due_ns });
    }
    Ok(())
}
