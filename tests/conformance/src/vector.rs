//! Vectors: requests to a host, and the expected results. `README.md` describes the file format.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_stack::workspace;

use crate::text::unescape;

/// The longest JSON value on one line of a file.
const LINE_LEN_MAX: usize = 140;

/// Names and values of headers.
pub type Headers = Vec<(String, String)>;

/// One behaviour of one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    /// The tested behaviour, as a path: folder, file, and vector.
    pub name: String,
    /// The filter's module in `target/weir`.
    pub engine: String,
    /// The filter's configuration.
    pub config: Value,
    /// The host's environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// The initial contents of Redis.
    #[serde(default, skip_serializing_if = "RedisKeys::is_empty")]
    pub stored: RedisKeys,
    /// The origin's answers by path; the default is 200 without a body.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub origin: BTreeMap<String, OriginAnswer>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The changes in Redis at the end.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub effect: Changes,
}

/// One request at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The time, in milliseconds since the Unix epoch; not before the previous step.
    pub at_ms: u64,
    /// The number of times that the engine polls its documents before the request.
    #[serde(default, skip_serializing_if = "is_default")]
    pub polls: usize,
    /// Another party's changes in Redis before the polls.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub stored: Changes,
    /// The request.
    pub request: Request,
    /// The handwritten expectation: the value of [`Outcome::summary`].
    pub says: String,
    /// The complete expected result.
    #[serde(default)]
    pub expect: Outcome,
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The `Host`.
    pub host: String,
    /// Further headers.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// The body.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// The client's address and port.
    pub from: String,
}

/// The outcome of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// Not recorded yet.
    #[default]
    Unknown,
    /// The gateway answers.
    Answered {
        /// The status.
        status: u16,
        /// The headers, by name.
        headers: Headers,
        /// The body.
        body: String,
    },
    /// The request continues to the origin.
    WentOn {
        /// Headers that the origin receives and the client did not send.
        #[serde(default, skip_serializing_if = "Headers::is_empty")]
        added: Headers,
        /// Headers that the client sent and the origin does not receive.
        #[serde(default, skip_serializing_if = "Headers::is_empty")]
        removed: Headers,
        /// Headers that the client receives and the origin did not send.
        #[serde(default, skip_serializing_if = "Headers::is_empty")]
        response: Headers,
    },
}

/// An answer of the origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginAnswer {
    /// The status.
    pub status: u16,
    /// The headers.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// The body.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

impl Default for OriginAnswer {
    fn default() -> Self {
        Self {
            status: 200,
            headers: Headers::new(),
            body: String::new(),
        }
    }
}

/// Redis keys with their contents.
pub type RedisKeys = BTreeMap<String, Entry>;

/// Changed Redis keys with their new contents; `None` if deleted.
pub type Changes = BTreeMap<String, Option<Entry>>;

/// The contents of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The value.
    #[serde(flatten)]
    pub value: Content,
    /// When it expires, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A string.
    String(String),
    /// A hash.
    Hash(BTreeMap<String, String>),
    /// A set.
    Set(Vec<String>),
    /// A sorted set: members with their scores.
    Zset(BTreeMap<String, String>),
    /// A stream: each entry's ID, and its fields and values.
    Stream(Vec<(String, Vec<String>)>),
}

impl Entry {
    /// A string that does not expire.
    pub fn string(value: impl Into<String>) -> Self {
        Content::String(value.into()).into()
    }
}

impl From<Content> for Entry {
    fn from(value: Content) -> Self {
        Self {
            value,
            expires_at_ms: None,
        }
    }
}

impl Outcome {
    /// The status and one word from the answer, or that the request continued, and with which verdict.
    pub fn summary(&self) -> String {
        let find = |headers: &Headers, name: &str| {
            let found = headers.iter().find(|(existing, _)| existing == name);
            found.map(|(_, value)| value.clone())
        };
        match self {
            Self::Unknown => "nothing".into(),
            Self::Answered {
                status,
                headers,
                body,
            } => {
                let message = find(headers, "x-weir-verdict")
                    .or_else(|| find(headers, "location"))
                    .or_else(|| Some(format!("grpc {}", find(headers, "grpc-status")?)))
                    .or_else(|| error_of(body))
                    .or_else(|| answers_of(body))
                    .or_else(|| state_of(body));
                message.map_or_else(|| status.to_string(), |word| format!("{status} {word}"))
            }
            Self::WentOn { added, .. } => match find(added, "x-weir-verdict") {
                Some(verdict) => format!("goes on: {verdict}"),
                None => "goes on".into(),
            },
        }
    }

    /// Sorts the headers by name, so that hosts may return them in any order.
    pub fn sorted(mut self) -> Self {
        match &mut self {
            Self::Unknown => {}
            Self::Answered { headers, .. } => headers.sort(),
            Self::WentOn {
                added,
                removed,
                response,
            } => [added, removed, response]
                .into_iter()
                .for_each(|headers| headers.sort()),
        }
        self
    }
}

/// The error code of a refusal.
fn error_of(body: &str) -> Option<String> {
    let json: Value = serde_json::from_slice(&unescape(body).ok()?).ok()?;
    Some(json.get("error")?.as_str()?.to_owned())
}

/// Which parts fit which vehicles: one group of words per part.
fn answers_of(body: &str) -> Option<String> {
    let json: Value = serde_json::from_slice(&unescape(body).ok()?).ok()?;
    let words = |part: &Value| {
        let answers = part
            .get("answers")?
            .as_array()?
            .iter()
            .filter_map(Value::as_str);
        Some(answers.collect::<Vec<_>>().join(" "))
    };
    let parts = json.get("skus")?.as_array()?.iter().map(words);
    Some(parts.collect::<Option<Vec<_>>>()?.join(", "))
}

/// The state of a waiting room's visitor.
fn state_of(body: &str) -> Option<String> {
    let json: Value = serde_json::from_slice(&unescape(body).ok()?).ok()?;
    let is_room = json.get("room").is_some() || json.as_object()?.len() == 1;
    let state = json.get("state").filter(|_| is_room)?;
    Some(state.as_str()?.to_owned())
}

/// The headers that `after` adds to `before`, and those that it removes.
pub fn difference(before: &Headers, after: &Headers) -> (Headers, Headers) {
    let missing = |from: &Headers, of: &Headers| {
        let mut remaining = from.clone();
        for header in of {
            if let Some(at) = remaining.iter().position(|existing| existing == header) {
                remaining.remove(at);
            }
        }
        remaining
    };
    (missing(after, before), missing(before, after))
}

impl Vector {
    /// The prefix of all the vector's keys in Redis.
    pub fn key_prefix(&self) -> Option<&str> {
        let redis = self
            .config
            .get("redis")
            .or_else(|| self.config.get("stores")?.get(0)?.get("redis"));
        redis?.get("key_prefix")?.as_str()
    }

    /// The origin's answer for this path, without its query.
    pub fn origin_answer(&self, path: &str) -> OriginAnswer {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        self.origin.get(path).cloned().unwrap_or_default()
    }
}

/// The folder of the files.
pub fn folder() -> PathBuf {
    workspace::root().join("tests/conformance/vectors")
}

/// All stored vectors, in file order.
///
/// # Errors
/// A file is invalid.
pub fn read_all() -> Result<Vec<Vector>> {
    let mut vectors = Vec::new();
    for file in files(&folder())? {
        let text = std::fs::read_to_string(&file)?;
        let read: Vec<Vector> =
            serde_json::from_str(&text).with_context(|| file.display().to_string())?;
        vectors.extend(read);
    }
    Ok(vectors)
}

/// Writes vectors into the files that their names specify, and replaces all existing files.
///
/// # Errors
/// A file cannot be written.
pub fn write_all(vectors: &[Vector]) -> Result<()> {
    let mut by_file: BTreeMap<PathBuf, Vec<&Vector>> = BTreeMap::new();
    for vector in vectors {
        let (file, _) = vector
            .name
            .rsplit_once('/')
            .context("a name without a file")?;
        let file = folder().join(format!("{file}.json"));
        by_file.entry(file).or_default().push(vector);
    }
    for stale in files(&folder())? {
        if !by_file.contains_key(&stale) {
            std::fs::remove_file(stale)?;
        }
    }
    for (file, vectors) in by_file {
        let text = short(&serde_json::to_string_pretty(&vectors)?);
        workspace::write_atomic(&file, text.as_bytes())?;
    }
    Ok(())
}

/// Reformats JSON: values that fit on one line are joined.
fn short(pretty: &str) -> String {
    let lines: Vec<&str> = pretty.lines().collect();
    let (mut text, mut at) = (String::new(), 0);
    while let Some(line) = lines.get(at) {
        let end = line
            .ends_with(['{', '['])
            .then(|| end_of(&lines[at..]))
            .flatten();
        let joined = end.map(|end| join(&lines[at..=at + end]));
        let joined = joined.filter(|joined| joined.len() <= LINE_LEN_MAX);
        at += 1 + joined.as_ref().and(end).unwrap_or(0);
        text += joined.as_deref().unwrap_or(line);
        text.push('\n');
    }
    text
}

/// The index of the line that closes the first line's bracket: the next line with the same or less indentation.
fn end_of(lines: &[&str]) -> Option<usize> {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let first = depth(lines.first()?);
    let behind = lines.iter().skip(1).position(|line| depth(line) <= first);
    behind.map(|at| at + 1)
}

fn join(lines: &[&str]) -> String {
    let mut joined = lines
        .first()
        .map(|line| (*line).to_owned())
        .unwrap_or_default();
    for line in lines.iter().skip(1) {
        joined.push(' ');
        joined += line.trim_start();
    }
    joined
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
