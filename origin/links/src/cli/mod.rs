//! `weir-origin links`: what operators do with links, from the command line. It asks the admin port of a running origin, with a key
//! from the environment.
//!
//! Answers go to stdout, progress and what went wrong to stderr.

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

/// Names the variable that holds the key.
pub const API_KEY: &str = "WEIR_API_KEY";

/// Does something with short links, by the admin port of a running origin
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The key comes by WEIR_API_KEY, or as the path of a file by WEIR_API_KEY_FILE; without either, WEIR_ADMIN_TOKEN counts."
)]
pub struct LinksCommand {
    /// The admin port of an origin
    #[arg(
        long,
        env = "WEIR_ADMIN_URL",
        default_value = "http://127.0.0.1:8081",
        global = true
    )]
    url: String,

    /// The authorities that count for https; the system's unless set
    #[arg(long, env = "WEIR_ADMIN_CA", global = true)]
    ca: Option<PathBuf>,

    #[command(subcommand)]
    what: LinksAction,
}

#[derive(Clone, Debug, Subcommand)]
enum LinksAction {
    /// Shows links, the last one first
    List(ListCommand),
    /// Makes a link, and shows its address
    Create(CreateCommand),
    /// Shows a link as JSON
    Get(LinkNameArgs),
    /// Changes a link: what is not named stays
    Edit(EditCommand),
    /// Deletes a link
    Delete(LinkNameArgs),
    /// Takes links over from a file. It may be repeated: what is there is left as it is
    Import(ImportCommand),
    /// Writes links into a file, or to stdout
    Export(ExportCommand),
}

/// Which links.
#[derive(Clone, Debug, Default, Args)]
struct LinkFilterArgs {
    /// With this in code, addresses, tags or title
    #[arg(long)]
    q: Option<String>,

    /// With this tag
    #[arg(long)]
    tag: Option<String>,

    /// Under this domain
    #[arg(long)]
    domain: Option<String>,

    /// With this in an address
    #[arg(long)]
    target: Option<String>,

    /// Made at this time or later, such as 2026-11-21 or 2026-11-21T14:00:00+01:00
    #[arg(long, value_parser = instant)]
    from: Option<u64>,

    /// Made before this time
    #[arg(long, value_parser = instant)]
    to: Option<u64>,

    /// The order
    #[arg(long, value_parser = ["created", "clicks"])]
    sort: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct ListCommand {
    #[command(flatten)]
    wanted: LinkFilterArgs,

    /// So many at most; 0: all
    #[arg(long, default_value_t = 50)]
    limit: usize,

    /// Shows each as JSON, in a line of its own
    #[arg(long)]
    json: bool,
}

/// The name of a link.
#[derive(Clone, Debug, Args)]
struct LinkNameArgs {
    /// Its code
    code: String,

    /// Its domain; the first one unless set
    #[arg(long)]
    domain: Option<String>,
}

/// What a link may say, in a new one or an edit.
#[derive(Clone, Debug, Args)]
struct LinkFieldArgs {
    /// A tag; may come more than once
    #[arg(long = "tag")]
    tags: Vec<String>,

    /// Its life in days without a click; 0: for ever
    #[arg(long)]
    life_days: Option<u32>,

    /// How many clicks it has
    #[arg(long)]
    max_clicks: Option<u64>,

    /// When it ends, such as 2026-12-24T18:00:00+01:00
    #[arg(long, value_parser = instant)]
    ends: Option<u64>,

    /// The status of its redirects: 301, 302, 307 or 308
    #[arg(long)]
    status: Option<u16>,

    /// Whether the query string is passed on
    #[arg(long)]
    pass_query: Option<bool>,

    /// Whether orders are counted that come of its clicks
    #[arg(long)]
    conversion: Option<bool>,

    /// Where visitors come from, in the target's query: source, medium, campaign, term or content; may come more than once
    #[arg(long = "utm", value_name = "NAME=VALUE", value_parser = utm)]
    utm: Vec<(String, String)>,

    /// The file with the password that visitors must know: its first line
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// More of its members, as JSON: {"rules": […], "preview": {…}}
    #[arg(long, value_name = "JSON")]
    json: Option<String>,
}

#[derive(Clone, Debug, Args)]
struct CreateCommand {
    /// Where it leads
    target: String,

    /// Its code, chosen
    #[arg(long)]
    code: Option<String>,

    /// Its domain; the first one unless set
    #[arg(long)]
    domain: Option<String>,

    #[command(flatten)]
    says: LinkFieldArgs,
}

#[derive(Clone, Debug, Args)]
struct EditCommand {
    #[command(flatten)]
    named: LinkNameArgs,

    /// Where it leads
    #[arg(long)]
    target: Option<String>,

    /// Puts it out of use
    #[arg(long, conflicts_with = "enable")]
    disable: bool,

    /// Puts it into use again
    #[arg(long)]
    enable: bool,

    /// Only if it has this version
    #[arg(long)]
    version: Option<u32>,

    #[command(flatten)]
    says: LinkFieldArgs,
}

#[derive(Clone, Debug, Args)]
struct ImportCommand {
    /// The file
    file: PathBuf,

    /// Whose export it is
    #[arg(long, value_enum)]
    format: Format,

    /// Where links go whose host is none of ours; to the first domain unless set
    #[arg(long)]
    domain: Option<String>,

    /// The life in days of links of which the file does not say it; 0: for ever
    #[arg(long)]
    life_days: Option<u32>,

    /// A tag that all get
    #[arg(long)]
    tag: Option<String>,

    /// Only says what would be
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Debug, Args)]
struct ExportCommand {
    #[command(flatten)]
    wanted: LinkFilterArgs,

    /// How it is written
    #[arg(long, default_value = "csv", value_parser = ["csv", "ndjson"])]
    format: String,

    /// The file; stdout unless set
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// Does it.
///
/// # Errors
/// Says what is wrong.
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
    weir_origin_core::clock::parse_utc(text).ok_or("is no time such as 2026-11-21T14:00:00+01:00")
}

impl LinkFilterArgs {
    fn query(&self) -> Vec<(&'static str, String)> {
        let texts = [
            ("q", &self.q),
            ("tag", &self.tag),
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
        ensure!(!self.code.is_empty(), "the code is empty: name a link");
        let domain = self.domain.clone().map(|domain| ("domain", domain));
        let query = query(&domain.into_iter().collect::<Vec<_>>());
        Ok(format!("/links/{}{query}", encoded(&self.code)))
    }
}

impl LinkFieldArgs {
    /// From a file, as others on the machine see what a command was given.
    fn password(&self) -> Result<Option<String>> {
        let Some(path) = &self.password_file else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
    }

    /// What is named, over what `--json` says.
    fn members(&self) -> Result<Map<String, Value>> {
        let mut members = match self.json.as_deref().map(serde_json::from_str) {
            None => Map::new(),
            Some(Ok(Value::Object(members))) => members,
            Some(Ok(_)) => bail!("--json: is no object"),
            Some(Err(error)) => return Err(error).context("--json"),
        };
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        };
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
        let mut members = self.says.members()?;
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
        let mut members = self.says.members()?;
        if let Some(target) = &self.target {
            members.insert("target".to_owned(), json!(target));
        }
        if self.disable || self.enable {
            members.insert("disabled".to_owned(), json!(self.disable));
        }
        ensure!(!members.is_empty(), "nothing is to be changed");
        Ok(Value::Object(members))
    }
}
