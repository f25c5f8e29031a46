//! `cargo xtask book`.

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Result;
use weir_stack::report::{Console, Reporter};
use weir_stack::tools::MdBook;
use weir_stack::{command, workspace};

/// It takes a second.
const LIMIT: Duration = Duration::from_secs(60);

/// Builds the HTML book of `docs/`.
pub(crate) fn run() -> Result<ExitCode> {
    let MdBook(program) = MdBook::find_or_get(&mut Console)?;
    let mut mdbook = Command::new(program);
    mdbook.arg("build").arg(workspace::root());
    command::succeed(&mut mdbook, LIMIT)?;
    let index = workspace::out_dir().join("book/index.html");
    Console.line("book", &index.display().to_string());
    Ok(ExitCode::SUCCESS)
}
