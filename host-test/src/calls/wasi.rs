//! The part of WASI preview 1 that Envoy implements. Modules built for `wasm32-wasip1` import some of it, and Envoy
//! passes environment variables through `environ_get`.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the host, and must stop the test"
)]

use wasmtime::Linker;

use super::{Failure, Guest, Outcome, VmData, enter, read, world, write, write_word};
use crate::abi::{LogLevel, u32_of};

const MODULE: &str = "wasi_snapshot_preview1";
const OK: u32 = 0;
const EBADF: u32 = 8;
const EFAULT: u32 = 21;
const ENOTSUP: u32 = 58;

/// Modules need no more; the limit bounds memory for a wrong length.
const RANDOM_MAX: usize = 64 << 10;

fn wasi(
    mut guest: Guest<'_>,
    name: &'static str,
    work: impl FnOnce(&mut Guest<'_>) -> Outcome<u32>,
) -> wasmtime::Result<u32> {
    // WASI has its own status numbers, so only injected traps apply.
    enter(&guest, name)?;
    match work(&mut guest) {
        Ok(errno) => Ok(errno),
        Err(Failure::Status(_)) => Ok(EFAULT),
        Err(Failure::Trap(error)) => Err(error),
    }
}

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    link_environment(linker)?;
    link_files(linker)?;
    linker.func_wrap(
        MODULE,
        "clock_time_get",
        |g: Guest<'_>, clock: u32, _precision: u64, at: u32| {
            wasi(g, "clock_time_get", |g| clock_time_get(g, clock, at))
        },
    )?;
    linker.func_wrap(MODULE, "random_get", |g: Guest<'_>, at, size| {
        wasi(g, "random_get", |g| random_get(g, at, size))
    })?;
    linker.func_wrap(MODULE, "proc_exit", |g: Guest<'_>, code: u32| {
        enter(&g, "proc_exit")?;
        Err::<(), _>(wasmtime::Error::msg(format!("proc_exit({code})")))
    })?;
    linker.func_wrap(MODULE, "sched_yield", |g: Guest<'_>| {
        wasi(g, "sched_yield", |_| Ok(OK))
    })?;
    Ok(())
}

fn link_environment(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        MODULE,
        "environ_sizes_get",
        |g: Guest<'_>, count_at: u32, size_at: u32| {
            wasi(g, "environ_sizes_get", |g| {
                let variables = environment(g);
                let size = variables.iter().map(Vec::len).sum();
                write_word(g, count_at, u32_of(variables.len()))?;
                write_word(g, size_at, u32_of(size))?;
                Ok(OK)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "environ_get",
        |g: Guest<'_>, pointers_at: u32, text_at: u32| {
            wasi(g, "environ_get", |g| environ_get(g, pointers_at, text_at))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "args_sizes_get",
        |g: Guest<'_>, count_at: u32, size_at: u32| {
            wasi(g, "args_sizes_get", |g| {
                write_word(g, count_at, 0)?;
                write_word(g, size_at, 0)?;
                Ok(OK)
            })
        },
    )?;
    linker.func_wrap(MODULE, "args_get", |g: Guest<'_>, _: u32, _: u32| {
        wasi(g, "args_get", |_| Ok(OK))
    })?;
    Ok(())
}

fn link_files(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        MODULE,
        "fd_write",
        |g: Guest<'_>, fd: u32, parts: u32, count: u32, written_at: u32| {
            wasi(g, "fd_write", |g| fd_write(g, fd, parts, count, written_at))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_seek",
        |g: Guest<'_>, _: u32, _: i64, _: u32, _: u32| wasi(g, "fd_seek", |_| Ok(OK)),
    )?;
    linker.func_wrap(MODULE, "fd_close", |g: Guest<'_>, _: u32| {
        wasi(g, "fd_close", |_| Ok(OK))
    })?;
    linker.func_wrap(
        MODULE,
        "fd_fdstat_get",
        |g: Guest<'_>, fd: u32, stat_at: u32| {
            wasi(g, "fd_fdstat_get", |g| {
                if fd != 1 && fd != 2 {
                    return Ok(EBADF);
                }
                // Only the right to write (64), as in Envoy.
                let mut stat = [0; 24];
                stat[8] = 64;
                write(g, stat_at, &stat)?;
                Ok(OK)
            })
        },
    )?;
    Ok(())
}

/// Each variable as `KEY=VALUE` with a zero byte.
fn environment(guest: &Guest<'_>) -> Vec<Vec<u8>> {
    let uid = guest.data().uid;
    let mut world = world(guest);
    (world.vm(uid).env.iter())
        .map(|(key, value)| format!("{key}={value}\0").into_bytes())
        .collect()
}

fn environ_get(guest: &mut Guest<'_>, mut pointer_at: u32, mut text_at: u32) -> Outcome<u32> {
    for variable in environment(guest) {
        write_word(guest, pointer_at, text_at)?;
        write(guest, text_at, &variable)?;
        pointer_at += 4;
        text_at += u32_of(variable.len());
    }
    Ok(OK)
}

/// Standard output is logged at `info`, standard error at `error`.
fn fd_write(guest: &mut Guest<'_>, fd: u32, parts: u32, count: u32, at: u32) -> Outcome<u32> {
    let level = match fd {
        1 => LogLevel::Info,
        2 => LogLevel::Error,
        _ => return Ok(EBADF),
    };
    let mut text = Vec::new();
    for part in 0..count {
        let part = read(guest, parts.saturating_add(part.saturating_mul(8)), 8)?;
        let [a, b, c, d, e, f, g, h] = part[..] else {
            return Ok(EFAULT);
        };
        let (pointer, size) = ([a, b, c, d], [e, f, g, h]);
        text.extend(read(
            guest,
            u32::from_le_bytes(pointer),
            u32::from_le_bytes(size),
        )?);
    }
    write_word(guest, at, u32_of(text.len()))?;
    let message = String::from_utf8_lossy(&text);
    let message = message.strip_suffix('\n').unwrap_or(&message).to_owned();
    let uid = guest.data().uid;
    world(guest).log(uid, level, message);
    Ok(OK)
}

/// Both clocks return the virtual time.
fn clock_time_get(guest: &mut Guest<'_>, clock: u32, at: u32) -> Outcome<u32> {
    if clock > 1 {
        return Ok(ENOTSUP);
    }
    let now = world(guest).now_ns;
    write(guest, at, &now.to_le_bytes())?;
    Ok(OK)
}

fn random_get(guest: &mut Guest<'_>, at: u32, size: u32) -> Outcome<u32> {
    let size = size as usize;
    if size > RANDOM_MAX {
        return Ok(EFAULT);
    }
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        bytes.extend(world(guest).random().to_le_bytes());
    }
    write(guest, at, &bytes[..size])?;
    Ok(OK)
}
