//! What reads OpenAPI documents as users do: a generator of clients, and a tester, from PyPI.

use std::path::PathBuf;

use anyhow::Result;

use super::pip;
use crate::report::Reporter;

/// The version of openapi-python-client that tests run on.
pub const CLIENT_GENERATOR_VERSION: &str = "0.29.1";

/// The version of schemathesis that tests run on.
pub const SCHEMATHESIS_VERSION: &str = "4.32.5";

/// The programs.
#[derive(Debug, Clone)]
pub struct OpenApiTools {
    /// `openapi-python-client`: makes a client from a document.
    pub client_generator: PathBuf,
    /// `st`: asks a server all that its document allows, and more.
    pub schemathesis: PathBuf,
    /// The Python that has what a generated client needs.
    pub python: PathBuf,
}

impl OpenApiTools {
    /// Finds them among Weir's own tools, or has pip put them there.
    ///
    /// # Errors
    /// When there is no Python 3 with venv, or pip cannot get them.
    pub fn find_or_get(reporter: &mut dyn Reporter) -> Result<Self> {
        let name = format!("openapi-{CLIENT_GENERATOR_VERSION}-{SCHEMATHESIS_VERSION}");
        let requirements = [
            format!("openapi-python-client=={CLIENT_GENERATOR_VERSION}"),
            format!("schemathesis=={SCHEMATHESIS_VERSION}"),
        ];
        let binaries = pip::environment(&name, &requirements, reporter)?;
        Ok(Self {
            client_generator: binaries.join("openapi-python-client"),
            schemathesis: binaries.join("st"),
            python: binaries.join("python"),
        })
    }
}
