//! `weir-origin links`: manages links from the command line, through the admin port of a running origin. The key comes
//! from the environment.
//!
//! Results go to stdout, progress and errors to stderr.

#![expect(clippy::indexing_slicing, reason = "members of JSON answers")]

mod api;
mod import;
mod parts;
mod show;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::import::format::Format;
use super::model::utm::encoded;
use api::{Api, query};
use weir_origin_core::secret::Variables;

/// Environment variable with the API key.
pub const API_KEY: &str = "WEIR_API_KEY";

/// Manage short links through the admin port of a running origin
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Set the API key in WEIR_API_KEY, or its file path in WEIR_API_KEY_FILE. Without either, the command uses WEIR_ADMIN_TOKEN."
)]
pub struct LinksCommand {
    /// Admin URL of an origin
    #[arg(
        long,
        env = "WEIR_ADMIN_URL",
        default_value = "http://127.0.0.1:8081",
        global = true
    )]
    url: String,

    /// PEM file with the CA of an https admin URL; unset: the system's CAs
    #[arg(long, env = "WEIR_ADMIN_CA", global = true)]
    ca: Option<PathBuf>,

    #[command(subcommand)]
    what: LinksAction,
}

#[derive(Clone, Debug, Subcommand)]
enum LinksAction {
    /// List links, newest first
    List(ListCommand),
    /// Create a link and print its URL
    Create(CreateCommand),
    /// Print a link as JSON
    Get(LinkNameArgs),
    /// Change a link; unnamed fields keep their values
    Edit(EditCommand),
    /// Delete a link
    Delete(LinkNameArgs),
    /// Import links from a file. Repeatable: existing links stay unchanged
    Import(ImportCommand),
    /// Export links to a file or to stdout
    Export(ExportCommand),
}

/// Filters for links.
#[derive(Clone, Debug, Default, Args)]
struct LinkFilterArgs {
    /// Search text in code, URLs, labels or title
    #[arg(long)]
    q: Option<String>,

    /// Only links with this tag
    #[arg(long)]
    tag: Option<String>,

    /// Only links in this folder
    #[arg(long)]
    folder: Option<String>,

    /// Only links of this domain
    #[arg(long)]
    domain: Option<String>,

    /// Search text in target URLs
    #[arg(long)]
    target: Option<String>,

    /// Created at or after this time, such as 2026-11-21 or 2026-11-21T14:00:00+01:00
    #[arg(long, value_parser = instant)]
    from: Option<u64>,

    /// Created before this time
    #[arg(long, value_parser = instant)]
    to: Option<u64>,

    /// Sort order
    #[arg(long, value_parser = ["created", "clicks"])]
    sort: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct ListCommand {
    #[command(flatten)]
    filter: LinkFilterArgs,

    /// Maximum number of links; 0: all
    #[arg(long, default_value_t = 50)]
    limit: usize,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// A link's code and domain.
#[derive(Clone, Debug, Args)]
struct LinkNameArgs {
    /// The link's code
    code: String,

    /// The link's domain; default: the first domain
    #[arg(long)]
    domain: Option<String>,
}

/// Fields of a new link or of an edit.
#[derive(Clone, Debug, Args)]
struct LinkFieldArgs {
    /// Tag; repeatable
    #[arg(long = "tag")]
    tags: Vec<String>,

    /// Title for the team
    #[arg(long)]
    title: Option<String>,

    /// Folder, such as a campaign
    #[arg(long)]
    folder: Option<String>,

    /// Days without a click after which the link expires; 0: never
    #[arg(long)]
    life_days: Option<u32>,

    /// Click limit
    #[arg(long)]
    max_clicks: Option<u64>,

    /// Expiry time, such as 2026-12-24T18:00:00+01:00
    #[arg(long, value_parser = instant)]
    ends: Option<u64>,

    /// Redirect status: 301, 302, 307 or 308
    #[arg(long)]
    status: Option<u16>,

    /// Whether to append the visitor's query string to the target
    #[arg(long)]
    pass_query: Option<bool>,

    /// Whether to attribute orders to clicks on this link
    #[arg(long)]
    conversion: Option<bool>,

    /// UTM parameter of the target: source, medium, campaign, term or content; repeatable
    #[arg(long = "utm", value_name = "NAME=VALUE", value_parser = utm)]
    utm: Vec<(String, String)>,

    /// File whose first line is the password for visitors
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// Further fields as JSON: {"rules": […], "preview": {…}}
    #[arg(long, value_name = "JSON")]
    json: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct CreateCommand {
    /// Target URL
    target: String,

    /// Custom code; default: generated
    #[arg(long)]
    code: Option<String>,

    /// Domain; default: the first domain
    #[arg(long)]
    domain: Option<String>,

    #[command(flatten)]
    fields: LinkFieldArgs,
}

#[derive(Clone, Debug, Args)]
struct EditCommand {
    #[command(flatten)]
    named: LinkNameArgs,

    /// New target URL
    #[arg(long)]
    target: Option<String>,

    /// Disable the link
    #[arg(long, conflicts_with = "enable")]
    disable: bool,

    /// Enable the link again
    #[arg(long)]
    enable: bool,

    /// Change the link only if it has this version
    #[arg(long)]
    version: Option<u32>,

    #[command(flatten)]
    fields: LinkFieldArgs,
}

#[derive(Clone, Debug, Args)]
struct ImportCommand {
    /// The file to import
    file: PathBuf,

    /// Format of the export file
    #[arg(long, value_enum)]
    format: Format,

    /// Domain for links of unknown hosts; default: the first domain
    #[arg(long)]
    domain: Option<String>,

    /// Days without a click after which a link expires, for rows without a value; 0: never
    #[arg(long)]
    life_days: Option<u32>,

    /// Tag to add to every link
    #[arg(long)]
    tag: Option<String>,

    /// Report what the import would do, without changing anything
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug, Args)]
struct ExportCommand {
    #[command(flatten)]
    filter: LinkFilterArgs,

    /// Output format
    #[arg(long, default_value = "csv", value_parser = ["csv", "ndjson"])]
    format: String,

    /// Output file; default: stdout
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// Describes the problem.
pub async fn run(command: &LinksCommand, variables: Variables<'_>) -> Result<()> {
    let api = Api::new(&command.url, command.ca.as_deref(), variables)?;
    match &command.what {
        LinksAction::List(list) => show::list(&api, list).await,
        LinksAction::Create(create) => {
            let link = api.json("POST", "/links", Some(create.body()?)).await?;
            println!("{}", link["url"].as_str().unwrap_or_default());
            Ok(())
        }
        LinksAction::Get(named) => print_link(&api.json("GET", &named.path()?, None).await?),
        LinksAction::Edit(edit) => {
            let (path, body) = (edit.named.path()?, edit.body()?);
            print_link(&api.edit(&path, body, edit.version).await?)
        }
        LinksAction::Delete(named) => api.json("DELETE", &named.path()?, None).await.map(drop),
        LinksAction::Import(import) => import::run(&api, import).await,
        LinksAction::Export(export) => show::export(&api, export).await,
    }
}

fn print_link(link: &Value) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(link)?);
    Ok(())
}

fn utm(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("is not NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn instant(text: &str) -> Result<u64, &'static str> {
    weir_origin_core::clock::parse_utc(text)
        .ok_or("is not a time such as 2026-11-21T14:00:00+01:00")
}

impl LinkFilterArgs {
    fn query(&self) -> Vec<(&'static str, String)> {
        let texts = [
            ("q", &self.q),
            ("tag", &self.tag),
            ("folder", &self.folder),
            ("domain", &self.domain),
            ("target", &self.target),
            ("sort", &self.sort),
        ];
        let times = [("from_ms", self.from), ("to_ms", self.to)];
        let texts = texts
            .into_iter()
            .filter_map(|(name, text)| Some((name, text.clone()?)));
        let times = times
            .into_iter()
            .filter_map(|(name, ms)| Some((name, ms?.to_string())));
        texts.chain(times).collect()
    }
}

impl LinkNameArgs {
    fn path(&self) -> Result<String> {
        ensure!(!self.code.is_empty(), "the code is empty: give a code");
        let domain = self.domain.clone().map(|domain| ("domain", domain));
        let query = query(&domain.into_iter().collect::<Vec<_>>());
        Ok(format!("/links/{}{query}", encoded(&self.code)))
    }
}

impl LinkFieldArgs {
    /// Reads the password from a file: other users of the machine can see command-line arguments.
    fn password(&self) -> Result<Option<String>> {
        let Some(path) = &self.password_file else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read \"{}\"", path.display()))?;
        Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
    }

    /// The fields from arguments, which override those in `--json`.
    fn members(&self) -> Result<Map<String, Value>> {
        let mut members = match self.json.as_deref().map(serde_json::from_str) {
            None => Map::new(),
            Some(Ok(Value::Object(members))) => members,
            Some(Ok(_)) => bail!("--json: must be an object"),
            Some(Err(error)) => return Err(error).context("--json"),
        };
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        };
        set("title", self.title.as_ref().map(|title| json!(title)));
        set("folder", self.folder.as_ref().map(|folder| json!(folder)));
        set("tags", (!self.tags.is_empty()).then(|| json!(self.tags)));
        let utm: Map<String, Value> = self
            .utm
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        set("utm", (!utm.is_empty()).then_some(Value::Object(utm)));
        set("life_days", self.life_days.map(Value::from));
        set("max_clicks", self.max_clicks.map(Value::from));
        set("expires_at_ms", self.ends.map(Value::from));
        set("status", self.status.map(Value::from));
        set("pass_query", self.pass_query.map(Value::from));
        set("conversion", self.conversion.map(Value::from));
        set("password", self.password()?.map(Value::from));
        Ok(members)
    }
}

impl CreateCommand {
    fn body(&self) -> Result<Value> {
        let mut members = self.fields.members()?;
        members.insert("target".to_owned(), json!(self.target));
        let named = [("code", &self.code), ("domain", &self.domain)];
        for (name, text) in named {
            if let Some(text) = text {
                members.insert(name.to_owned(), json!(text));
            }
        }
        Ok(Value::Object(members))
    }
}

impl EditCommand {
    fn body(&self) -> Result<Value> {
        let mut members = self.fields.members()?;
        if let Some(target) = &self.target {
            members.insert("target".to_owned(), json!(target));
        }
        if self.disable || self.enable {
            members.insert("disabled".to_owned(), json!(self.disable));
        }
        ensure!(!members.is_empty(), "no change given");
        Ok(Value::Object(members))
    }
}
