//! Foreign functions registered by tests; stock Envoy has a handful.

use wasmtime::Linker;

use super::{Guest, Outcome, VmData, call, give, read, read_text, world, write_word};
use crate::abi::Status;

pub(crate) fn link(linker: &mut Linker<VmData>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_call_foreign_function",
        |g: Guest<'_>, name, name_size, input, input_size, result_at, size_at| {
            call(g, "proxy_call_foreign_function", |g| {
                let name = read_text(g, name, name_size)?;
                let input = read(g, input, input_size)?;
                let result = run(g, &name, &input)?;
                give_wanted(g, &result, result_at, size_at)
            })
        },
    )?;
    Ok(())
}

fn run(guest: &Guest<'_>, name: &str, input: &[u8]) -> Outcome<Vec<u8>> {
    let function = world(guest).foreign.get(name).cloned();
    let function = function.ok_or(Status::NotFound)?;
    // The world is not borrowed here: the closure may access the host.
    let result = (function.borrow_mut())(input);
    Ok(result?)
}

/// A module that does not need the result passes null pointers.
fn give_wanted(guest: &mut Guest<'_>, result: &[u8], result_at: u32, size_at: u32) -> Outcome {
    match (result_at, size_at) {
        (0, 0) => Ok(()),
        (0, _) => write_word(guest, size_at, crate::abi::u32_of(result.len())),
        _ => give(guest, result, result_at, size_at),
    }
}
