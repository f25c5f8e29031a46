//! A certificate authority for one run, and its certificate for 127.0.0.1.

use crate::command;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A run lives for minutes.
const DAYS: &str = "2";

/// PEM files.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The authority that clients trust.
    pub ca: PathBuf,
    /// The server's certificate, for `localhost` and 127.0.0.1.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
}

impl Certificates {
    /// Returns the files in `dir`; `openssl` creates them if missing. The authority's private key is deleted.
    pub fn kept_in(dir: &Path) -> Result<Self> {
        let created = Self {
            ca: dir.join("ca.pem"),
            certificate: dir.join("server.pem"),
            key: dir.join("server.key"),
        };
        if !created.certificate.is_file() {
            std::fs::create_dir_all(dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
            make(dir)?;
        }
        Ok(created)
    }
}

fn make(dir: &Path) -> Result<()> {
    let authority = [
        "-subj",
        "/CN=Weir test authority",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-addext",
        "basicConstraints=critical,CA:TRUE",
    ];
    request(dir, &authority)?;
    let server = [
        "-subj",
        "/CN=localhost",
        "-keyout",
        "server.key",
        "-out",
        "server.pem",
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
    ];
    request(dir, &server)?;
    std::fs::remove_file(dir.join("ca.key")).context("cannot remove the authority's key")
}

/// Uses elliptic curves, because generating an RSA key takes up to a second.
fn request(dir: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("openssl");
    command
        .args(["req", "-x509", "-nodes", "-days", DAYS])
        .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(arguments)
        .current_dir(dir);
    command::succeed(&mut command, LIMIT)
        .context("cannot run openssl, which creates the test certificates: install it")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_signed_by_the_authority_and_made_once() {
        let temp = tempfile::tempdir().unwrap();
        let certificates = Certificates::kept_in(temp.path()).unwrap();
        let mut verify = Command::new("openssl");
        verify.args(["verify", "-verify_ip", "127.0.0.1", "-CAfile"]);
        verify.args([&certificates.ca, &certificates.certificate]);
        command::succeed(&mut verify, LIMIT).unwrap();
        let first = std::fs::read(&certificates.certificate).unwrap();
        Certificates::kept_in(temp.path()).unwrap();
        assert_eq!(std::fs::read(&certificates.certificate).unwrap(), first);
        assert!(!temp.path().join("ca.key").exists());
    }
}
