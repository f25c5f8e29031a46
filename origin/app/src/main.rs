//! The origin's program: flags in, logs out, exit code 0 only after an orderly shutdown.

use std::process::ExitCode;

use clap::Parser;
use weir_origin::config::Config;

fn main() -> ExitCode {
    weir_version::set_commit(weir_version::commit!());
    match weir_origin::run::run(&Config::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weir-origin: {}", weir_origin::failure::one_line(&error));
            ExitCode::FAILURE
        }
    }
}
