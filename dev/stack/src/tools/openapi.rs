//! Tools that process OpenAPI documents as users do: a client generator and an API tester, from PyPI.

use std::path::PathBuf;

use anyhow::Result;

use super::pip;
use crate::report::Reporter;

/// The version of openapi-python-client in tests.
pub const CLIENT_GENERATOR_VERSION: &str = "0.29.1";

/// The version of schemathesis in tests.
pub const SCHEMATHESIS_VERSION: &str = "4.32.5";

/// The programs.
#[derive(Debug, Clone)]
pub struct OpenApiTools {
    /// `openapi-python-client`: generates a client from a document.
    pub client_generator: PathBuf,
    /// `st`: sends a server every kind of request in its document, valid or not.
    pub schemathesis: PathBuf,
    /// A Python with the dependencies of generated clients.
    pub python: PathBuf,
}

impl OpenApiTools {
    /// Finds them among Weir's tools, or installs them there with pip.
    ///
    /// # Errors
    /// Python 3 with venv is missing, or pip fails.
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
