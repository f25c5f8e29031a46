//! `weir-origin init`: writes a starter setup with new secrets, and prints how to run it.
//!
//! A test asserts that [`crate::doctor`] reports no finding for it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use ring::rand::{SecureRandom, SystemRandom};

/// Folder of the modules in the shipped files.
const WASM_DIR: &str = "target/weir/";

/// Length of a secret in bytes, before hexadecimal encoding.
const SECRET_LEN: usize = 32;

/// Only the owner may read files with secrets.
const SECRET_MODE: u32 = 0o600;
const MODE: u32 = 0o644;

/// Arguments of `init`.
#[derive(Clone, Debug, Args)]
pub struct InitCommand {
    /// Output folder, created if missing
    #[arg(default_value = "weir")]
    pub folder: PathBuf,

    /// What to set up
    #[arg(long = "for", value_enum, default_value_t = Purpose::Sales)]
    pub purpose: Purpose,

    /// Folder of the filters, as Envoy sees it
    #[arg(long, value_name = "DIR", default_value = "filters")]
    pub filters: PathBuf,
}

/// Purpose of a setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Purpose {
    /// Flash sales.
    Sales,
    /// Short links.
    Links,
    /// Rate limits within one Envoy, without Redis or an origin.
    Limits,
    /// Rate limits shared by all gateways, with Redis and without an origin.
    LimitsRedis,
    /// All filters on one listener.
    All,
}

impl Purpose {
    /// The shipped Envoy configuration for this purpose.
    fn envoy(self) -> &'static str {
        match self {
            Self::Sales => include_str!("../../../envoy/weir.yaml"),
            Self::Links => include_str!("../../../envoy/shortlink.yaml"),
            Self::Limits => include_str!("../../../envoy/ratelimit.yaml"),
            Self::LimitsRedis => include_str!("../../../envoy/ratelimit-redis.yaml"),
            Self::All => include_str!("../../../envoy/all.yaml"),
        }
    }

    fn has_origin(self) -> bool {
        !matches!(self, Self::Limits | Self::LimitsRedis)
    }

    fn has_redis(self) -> bool {
        self != Self::Limits
    }

    fn has_sales(self) -> bool {
        matches!(self, Self::Sales | Self::All)
    }

    fn has_links(self) -> bool {
        matches!(self, Self::Links | Self::All)
    }

    /// Host of the first short links. Browsers and curl resolve `*.localhost` to this machine.
    fn link_host(self) -> &'static str {
        match self {
            Self::All => "link.localhost",
            _ => "localhost",
        }
    }
}

/// A file to write.
struct File {
    name: &'static str,
    text: String,
    mode: u32,
}

/// Writes the files and prints the next commands.
///
/// # Errors
/// When a file exists already or cannot be written. It then writes none of the remaining files.
pub fn run(command: &InitCommand) -> Result<()> {
    write_files(command)?;
    print!("{}", next(command));
    Ok(())
}

/// Writes the files.
///
/// # Errors
/// As [`run`].
pub(crate) fn write_files(command: &InitCommand) -> Result<()> {
    let files = files(command)?;
    let folder = &command.folder;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create \"{}\"", folder.display()))?;
    let there = files.iter().map(|file| folder.join(file.name));
    if let Some(path) = there.into_iter().find(|path| path.exists()) {
        let path = path.display();
        anyhow::bail!("\"{path}\" already exists; choose another folder");
    }
    for file in &files {
        write(folder, file)?;
        eprintln!("wrote {}", folder.join(file.name).display());
    }
    let filters = &command.filters;
    if !folder.join(filters).is_dir() {
        let filters = filters.display();
        eprintln!(
            "warning: the folder \"{filters}\" does not exist: put the filters there, or set --filters"
        );
    }
    Ok(())
}

fn files(command: &InitCommand) -> Result<Vec<File>> {
    let purpose = command.purpose;
    let filters = command.filters.display().to_string();
    let envoy = purpose.envoy();
    ensure!(
        envoy.contains(WASM_DIR),
        "this build's Envoy files do not contain {WASM_DIR}"
    );
    let mut files = vec![File {
        name: "envoy.yaml",
        text: without_preface(envoy)
            .replace(WASM_DIR, &format!("{}/", filters.trim_end_matches('/'))),
        mode: MODE,
    }];
    if !purpose.has_origin() {
        return Ok(files);
    }
    let (mut origin, mut gateway) = (Variables::default(), Variables::default());
    origin.note("Environment of weir-origin. It contains secrets: keep it private.");
    gateway.note("Environment of Envoy. It contains secrets: keep it private.");
    origin.set("WEIR_ADMIN_TOKEN", &secret()?);
    if purpose.has_sales() {
        let claim = secret()?;
        origin.set("WEIR_CLAIM_SECRET", &claim);
        origin.set("WEIR_PAYMENT_SECRET", &secret()?);
        gateway.set("WEIR_CLAIM_SECRET", &claim);
        gateway.set("WEIR_TOKEN_SECRET", &secret()?);
    }
    if purpose.has_links() {
        origin.set("WEIR_LINK_SECRET", &secret()?);
        origin.set("WEIR_LINKS", "links.json");
        files.push(File {
            name: "links.json",
            text: domains(purpose.link_host()),
            mode: MODE,
        });
    }
    if purpose == Purpose::All {
        gateway.set("WEIR_EVENTS_KEY_SHOP", &secret()?);
        gateway.set("WEIR_ROOM_SECRET", &secret()?);
        origin.set("WEIR_EVENTS_LOG", "weir-events");
        origin.set("WEIR_HISTORY", "true");
        origin.set("WEIR_FITMENT", "weir-imports");
    }
    for (name, variables) in [("origin.env", origin), ("gateway.env", gateway)] {
        files.push(File {
            name,
            text: variables.0,
            mode: SECRET_MODE,
        });
    }
    Ok(files)
}

/// Removes the comment at the top, which explains how to run the configuration in a checkout.
fn without_preface(envoy: &str) -> &str {
    match envoy.split_once("\n\n") {
        Some((preface, rest)) if preface.lines().all(|line| line.starts_with('#')) => rest,
        _ => envoy,
    }
}

/// Lines of `NAME=VALUE`.
#[derive(Default)]
struct Variables(String);

impl Variables {
    fn note(&mut self, text: &str) {
        self.0 += &format!("# {text}\n");
    }

    fn set(&mut self, name: &str, value: &str) {
        self.0 += &format!("{name}={value}\n");
    }
}

/// A random secret.
pub(crate) fn secret() -> Result<String> {
    let mut bytes = [0; SECRET_LEN];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| anyhow::anyhow!("no random numbers from the operating system"))?;
    Ok(hex::encode(bytes))
}

fn domains(host: &str) -> String {
    let domain = serde_json::json!({
        "domains": [{ "id": "s", "hosts": [host], "scheme": "http", "port": 10_000 }]
    });
    format!("{domain:#}\n")
}

fn write(folder: &Path, file: &File) -> Result<()> {
    let path = folder.join(file.name);
    let mut options = OpenOptions::new();
    // Create with the final mode, so that secrets are never readable by others, and never overwrite a file.
    options.write(true).create_new(true).mode(file.mode);
    let written = options
        .open(&path)
        .and_then(|mut open| open.write_all(file.text.as_bytes()));
    written.with_context(|| format!("cannot write \"{}\"", path.display()))
}

/// Returns the text with the next commands.
fn next(command: &InitCommand) -> String {
    let (purpose, folder) = (command.purpose, command.folder.display());
    let filters = command.filters.display();
    let mut text = format!("\nNext, in {folder}/ (the filters are expected in {filters}/):\n\n");
    let mut line = |line: &str| text += &format!("  {line}\n");
    if purpose.has_redis() {
        line("redis-server --appendonly yes &");
    }
    if !purpose.has_origin() {
        line("envoy -c envoy.yaml");
        return text;
    }
    // The program may not be in the PATH.
    let origin = std::env::current_exe().unwrap_or_else(|_| "weir-origin".into());
    let origin = origin.display();
    line(&format!("(set -a; . ./origin.env; exec {origin}) &"));
    line("(set -a; . ./gateway.env; exec envoy -c envoy.yaml) &");
    line(&format!(
        "(set -a; . ./origin.env; {origin} doctor --envoy envoy.yaml --gateway-env gateway.env)"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;

    use weir_doctor::facts::GatewayEnvironment;
    use weir_doctor::{Envoy, Subject, examine};

    use crate::config::{Config, Secrets};

    fn written(purpose: Purpose) -> (tempfile::TempDir, InitCommand) {
        let temp = tempfile::tempdir().unwrap();
        let command = InitCommand {
            folder: temp.path().join("weir"),
            purpose,
            filters: "/opt/weir/filters".into(),
        };
        run(&command).unwrap();
        (temp, command)
    }

    fn variables(path: &Path) -> BTreeMap<String, String> {
        let text = fs::read_to_string(path).unwrap();
        GatewayEnvironment::read(&text, "").unwrap().variables
    }

    #[test]
    fn generated_files_pass_the_doctor() {
        for purpose in Purpose::value_variants() {
            let (_temp, command) = written(*purpose);
            let text = fs::read_to_string(command.folder.join("envoy.yaml")).unwrap();
            assert!(!text.contains(WASM_DIR) && text.contains("/opt/weir/filters/"));
            assert!(
                !text.contains("cargo"),
                "{purpose:?}: it is not in a checkout"
            );
            let envoy = Envoy::read(&text).unwrap();
            let (mut origin, mut gateway) = (BTreeMap::new(), BTreeMap::new());
            if purpose.has_origin() {
                origin = variables(&command.folder.join("origin.env"));
                gateway = variables(&command.folder.join("gateway.env"));
            }
            // Test the environment through flags: each variable has a flag, and tests cannot set variables.
            let flags = origin
                .iter()
                .filter_map(|(name, value)| match name.as_str() {
                    "WEIR_LINKS" => Some(format!("--links={value}")),
                    "WEIR_EVENTS_LOG" => Some(format!("--events-log={value}")),
                    "WEIR_FITMENT" => Some(format!("--fitment={value}")),
                    "WEIR_HISTORY" => Some("--history".to_owned()),
                    _ => None,
                });
            let config =
                Config::try_parse_from(["weir-origin".to_owned()].into_iter().chain(flags));
            let config = config.unwrap();
            let of = |name: &str| origin.get(name).map(OsString::from);
            let (facts, findings) = crate::doctor::settings(&config, &of);
            assert_eq!(findings, []);
            if purpose.has_origin() {
                Secrets::read(&of, &config).unwrap();
            }
            let gateway = GatewayEnvironment {
                variables: gateway,
                source: "gateway.env".into(),
            };
            let found = examine(&Subject {
                envoy: Some(&envoy),
                origin: Some(&facts),
                gateway: Some(&gateway),
                ..Subject::default()
            });
            assert_eq!(found, [], "{purpose:?}");
        }
    }

    #[test]
    fn generated_secrets_are_new_and_readable_only_by_their_owner() {
        let secrets = |command: &InitCommand| {
            let path = command.folder.join("origin.env");
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            variables(&path)
        };
        let (_one, one) = written(Purpose::All);
        let (_other, other) = written(Purpose::All);
        let (one, other) = (secrets(&one), secrets(&other));
        for name in ["WEIR_CLAIM_SECRET", "WEIR_ADMIN_TOKEN", "WEIR_LINK_SECRET"] {
            assert_eq!(one[name].len(), 2 * SECRET_LEN);
            assert_ne!(one[name], other[name], "{name}");
        }
    }

    #[test]
    fn existing_files_are_not_overwritten() {
        let (_temp, command) = written(Purpose::Links);
        let path = command.folder.join("origin.env");
        let before = fs::read_to_string(&path).unwrap();
        fs::remove_file(command.folder.join("envoy.yaml")).unwrap();
        let error = run(&command).unwrap_err().to_string();
        assert!(error.contains("already exists"), "{error}");
        assert!(!command.folder.join("envoy.yaml").exists());
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
    }

    #[test]
    fn init_output_names_the_written_files() {
        let (_temp, command) = written(Purpose::Sales);
        let next = next(&command);
        for name in ["envoy.yaml", "origin.env", "gateway.env"] {
            assert!(
                next.contains(name) && command.folder.join(name).exists(),
                "{next}"
            );
        }
        let limits = InitCommand {
            purpose: Purpose::Limits,
            ..command
        };
        let next = super::next(&limits);
        assert!(
            !next.contains("redis") && !next.contains("origin"),
            "{next}"
        );
    }
}
