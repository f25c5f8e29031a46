//! Kubernetes' API server accepts the chart, and its hook creates secrets there.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_dist::chart::values::ACCEPTED;
use weir_dist::chart::{self, Tools};
use weir_stack::command::{self, CommandOutput};
use weir_stack::kubernetes::ApiServer;
use weir_stack::origin;
use weir_stack::report::Console;
use weir_stack::tools::ApiServerTools;

use super::{KUBERNETES, Manifests};

const LIMIT: Duration = Duration::from_secs(60);

/// The hook's account, with a token in place of the one that a node would mount.
const ACCOUNT: &str = "system:serviceaccount:default:shop-weir-secrets";
const TOKEN: &str = "weir-test-hook";

async fn server(dir: &Path, skipped: &str) -> Result<Option<(ApiServer, ApiServerTools, Tools)>> {
    let Some(charts) = super::tools(skipped) else {
        return Ok(None);
    };
    let Some(tools) = crate::found(ApiServerTools::find_or_get(&mut Console), skipped) else {
        return Ok(None);
    };
    let server = ApiServer::start(&tools, dir, &[(ACCOUNT, TOKEN)]).await?;
    Ok(Some((server, tools, charts)))
}

fn succeeded(output: CommandOutput) -> Result<String> {
    ensure!(
        output.status.success(),
        "{}{}",
        output.stdout,
        output.stderr
    );
    Ok(output.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_accepts_every_rendered_manifest() -> Result<()> {
    let temp = tempfile::tempdir()?;
    let skipped = "1 test of the chart on an API server";
    let Some((server, tools, charts)) = server(&temp.path().join("api"), skipped).await? else {
        return Ok(());
    };
    for file in &tools.definitions {
        let file = file.display().to_string();
        succeeded(server.kubectl(&["apply", "--server-side", "--filename", &file])?)?;
    }
    let wait = ["wait", "--for", "condition=Established", "crd", "--all"];
    succeeded(server.kubectl(&wait)?)?;
    let folder = chart::only(&temp.path().join("dist"))?;
    let file = temp.path().join("rendered.yaml");
    for (name, values) in ACCEPTED {
        let rendered = charts.render(&folder, KUBERNETES, values)?;
        let count = Manifests::parse(&rendered)?.0.len();
        std::fs::write(&file, &rendered)?;
        let said = succeeded(dry_run(&server, &file)?).context(name)?;
        assert_eq!(said.lines().count(), count, "{name}: {said}");
        // The check can fail: the server knows all fields.
        let misspelled = rendered.replace("terminationGracePeriodSeconds:", "terminationGrace:");
        std::fs::write(&file, misspelled)?;
        let refused = dry_run(&server, &file)?;
        assert!(!refused.status.success(), "{name}");
        assert!(
            refused.stderr.contains("terminationGrace"),
            "{name}: {}",
            refused.stderr
        );
    }
    Ok(())
}

fn dry_run(server: &ApiServer, file: &Path) -> Result<CommandOutput> {
    let file = file.display().to_string();
    let apply = ["apply", "--server-side", "--dry-run=server"];
    server.kubectl(&[&apply[..], &["--validate=strict", "--filename", &file]].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_hook_creates_keys_once_with_few_permissions() -> Result<()> {
    let temp = tempfile::tempdir()?;
    let skipped = "1 test of the chart's secret hook";
    let Some((server, _, charts)) = server(&temp.path().join("api"), skipped).await? else {
        return Ok(());
    };
    let folder = chart::only(&temp.path().join("dist"))?;
    let manifests = Manifests::parse(&charts.render(&folder, KUBERNETES, "")?)?;
    let hook = Hook::new(&server, &manifests, temp.path())?;

    // Without the chart's role, the account may do nothing.
    let refused = hook.run()?;
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("403"), "{}", refused.stderr);
    for kind in ["ServiceAccount", "Role", "RoleBinding"] {
        let file = temp.path().join("role.yaml");
        let manifest = manifests.of(kind, "shop-weir-secrets")?;
        std::fs::write(&file, manifest.to_string())?;
        let file = file.display().to_string();
        succeeded(server.kubectl(&["apply", "--namespace", "default", "--filename", &file])?)?;
    }

    succeeded(hook.run()?)?;
    let first = secret(&server)?;
    assert_eq!(first.as_object().context("no data")?.len(), 7);
    succeeded(hook.run()?)?;
    assert_eq!(secret(&server)?, first);

    // A later version needs a further key.
    let remove = r#"[{"op":"remove","path":"/data/WEIR_ROOM_SECRET"}]"#;
    let patch = ["patch", "secret", "shop-weir", "--type", "json", "--patch"];
    succeeded(server.kubectl(&[&patch[..], &[remove]].concat())?)?;
    succeeded(hook.run()?)?;
    let mut second = secret(&server)?;
    assert_ne!(second["WEIR_ROOM_SECRET"], first["WEIR_ROOM_SECRET"]);
    second["WEIR_ROOM_SECRET"] = first["WEIR_ROOM_SECRET"].clone();
    assert_eq!(second, first);

    for (verb, what, may) in [
        ("get", "secret/shop-weir", true),
        ("get", "secret/other", false),
        ("list", "secrets", false),
        ("delete", "secret/shop-weir", false),
        ("get", "configmap/shop-weir", false),
    ] {
        let asked = server.kubectl_as(TOKEN, &["auth", "can-i", verb, what])?;
        assert_eq!(asked.stdout.trim() == "yes", may, "{verb} {what}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_secret_replaces_pods_and_notes_warn() -> Result<()> {
    let temp = tempfile::tempdir()?;
    let skipped = "1 test of the chart on a cluster";
    let Some((server, _, charts)) = server(&temp.path().join("api"), skipped).await? else {
        return Ok(());
    };
    let folder = chart::only(&temp.path().join("dist"))?;
    let checksums = || -> Result<Vec<String>> {
        let rendered = charts.render_on(&folder, &server.config(), "existingSecret: own")?;
        let lines = rendered.lines().map(str::trim);
        let sums = lines.filter(|line| line.starts_with("checksum/secrets:"));
        Ok(sums.map(str::to_owned).collect())
    };
    let create = ["create", "secret", "generic", "own", "--from-literal=A=1"];
    succeeded(server.kubectl(&create)?)?;
    let first = checksums()?;
    assert_eq!(first.len(), 2, "gateways and origins");
    assert_eq!(checksums()?, first);
    let change = r#"{"stringData":{"A":"2"}}"#;
    succeeded(server.kubectl(&["patch", "secret", "own", "--patch", change])?)?;
    let second = checksums()?;
    assert!(
        first
            .iter()
            .zip(&second)
            .all(|(first, second)| first != second)
    );

    let notes = charts.render_on(&folder, &server.config(), "")?;
    let (_, notes) = notes.split_once("NOTES:").context("no notes")?;
    for warning in [
        "without gateway.jwt",
        "Redis is for evaluation",
        "uses SQLite",
    ] {
        assert!(notes.contains(warning), "{warning}: {notes}");
    }
    Ok(())
}

fn secret(server: &ApiServer) -> Result<Value> {
    let get = ["get", "secret", "shop-weir", "--output", "json"];
    let secret: Value = serde_json::from_str(&succeeded(server.kubectl(&get)?)?)?;
    Ok(secret["data"].clone())
}

/// The process of the hook's job.
struct Hook {
    arguments: Vec<String>,
}

impl Hook {
    fn new(server: &ApiServer, manifests: &Manifests, dir: &Path) -> Result<Self> {
        let account = dir.join("account");
        std::fs::create_dir_all(&account)?;
        std::fs::copy(server.ca(), account.join("ca.crt"))?;
        std::fs::write(account.join("namespace"), "default")?;
        std::fs::write(account.join("token"), TOKEN)?;
        let job = super::container(manifests.of("Job", "shop-weir-secrets")?);
        let arguments = job["args"].as_array().context("no arguments")?.iter();
        let arguments = arguments.map(|argument| argument.as_str().map(str::to_owned));
        let mut arguments: Vec<_> = arguments.collect::<Option<_>>().context("not text")?;
        arguments.push(format!("--account={}", account.display()));
        arguments.push(format!("--api-url={}", server.url()));
        Ok(Self { arguments })
    }

    fn run(&self) -> Result<CommandOutput> {
        let mut hook = Command::new(origin::ensure_built()?);
        command::run(hook.env_clear().args(&self.arguments), LIMIT)
    }
}
