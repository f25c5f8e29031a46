//! Configuration file of collectors.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use weir_base::FieldError;
use weir_event::name::KeyName;

use super::{BACKOFF, Destination, HttpSource, Pull, Source, TableSource};
use weir_origin_core::clock::now_ms;

/// Maximum number of collectors of an origin.
const PULLS_MAX: usize = 100;

/// The configuration file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PullsConfig {
    pulls: Vec<PullConfig>,
}

/// A collector: with `url`, `sql` or `kafka`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PullConfig {
    name: KeyName,
    /// Interval of fetches when there is nothing new.
    #[serde(default = "ten_seconds")]
    every: weir_base::duration::Duration,
    /// URL with the placeholder `{cursor}`.
    #[serde(default)]
    url: Option<String>,
    /// PEM file with the CA of an https URL; unset: the system's CAs.
    #[serde(default)]
    ca: Option<PathBuf>,
    /// File with the token for `authorization: Bearer …`.
    #[serde(default)]
    token_file: Option<PathBuf>,
    #[serde(default)]
    sql: Option<TableConfig>,
    #[serde(default)]
    kafka: Option<TopicConfig>,
    /// Name of the sink of the records; unset: the records are events.
    #[serde(default)]
    into: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableConfig {
    /// URL of the database, if it contains no password.
    #[serde(default)]
    database: Option<String>,
    /// File with the URL of the database.
    #[serde(default)]
    database_file: Option<PathBuf>,
    query: String,
    #[serde(default = "five_minutes")]
    look_back: weir_base::duration::Duration,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicConfig {
    url: String,
    #[serde(default)]
    properties_file: Option<PathBuf>,
}

fn ten_seconds() -> weir_base::duration::Duration {
    weir_base::duration::Duration { ms: 10_000 }
}

fn five_minutes() -> weir_base::duration::Duration {
    weir_base::duration::Duration { ms: 300_000 }
}

/// The name of an invalid field, and the problem.
type FieldProblem = (&'static str, String);

fn wrong(field: &'static str, problem: impl fmt::Display) -> FieldProblem {
    (field, problem.to_string())
}

impl PullsConfig {
    /// Creates the collectors.
    ///
    /// # Errors
    /// Contains the path of the invalid field.
    pub fn pulls(self) -> Result<Vec<Pull>, FieldError> {
        if self.pulls.len() > PULLS_MAX {
            let problem = format!(
                "has {} entries, the maximum is {PULLS_MAX}",
                self.pulls.len()
            );
            return Err(FieldError::new("pulls", problem));
        }
        let mut pulls: Vec<Pull> = Vec::with_capacity(self.pulls.len());
        for (n, config) in self.pulls.into_iter().enumerate() {
            let is_known = pulls.iter().any(|pull| pull.name == config.name);
            let pull = match is_known {
                true => Err(wrong("name", "is used by another collector")),
                false => config.pull(),
            };
            pulls.push(pull.map_err(|(field, problem)| {
                FieldError::new(format!("pulls[{n}].{field}"), problem)
            })?);
        }
        Ok(pulls)
    }
}

impl PullConfig {
    fn pull(self) -> Result<Pull, FieldProblem> {
        if self.every.ms == 0 {
            return Err(wrong("every", "must be longer than 0"));
        }
        let is_http = self.url.is_some();
        if !is_http && (self.ca.is_some() || self.token_file.is_some()) {
            return Err(wrong("url", "is required for ca and token_file"));
        }
        let source: Arc<dyn Source> = match (&self.url, &self.sql, &self.kafka) {
            (Some(url), None, None) => Arc::new(self.service(url)?),
            (None, Some(table), None) => Arc::new(table.source()?),
            (None, None, Some(topic)) => topic.source()?,
            _ => return Err(wrong("url", "needs exactly one of url, sql and kafka")),
        };
        Ok(Pull {
            name: self.name,
            every: Duration::from_millis(self.every.ms),
            backoff: BACKOFF,
            source,
            destination: self.into.map_or(Destination::Log, Destination::Named),
        })
    }

    fn service(&self, url: &str) -> Result<HttpSource, FieldProblem> {
        let token = self.token_file.as_deref();
        let token = token.map(|path| read("token_file", path)).transpose()?;
        HttpSource::new(url, self.ca.as_deref(), token.as_deref())
            .map_err(|error| wrong("url", error))
    }
}

impl TableConfig {
    fn source(&self) -> Result<TableSource, FieldProblem> {
        let url = match (&self.database, &self.database_file) {
            (Some(url), None) => url.clone(),
            (None, Some(path)) => read("sql.database_file", path)?,
            _ => {
                let problem = "needs exactly one of database and database_file";
                return Err(wrong("sql", problem));
            }
        };
        TableSource::new(&url, &self.query, self.look_back.ms, Arc::new(now_ms))
            .map_err(|error| wrong("sql", error))
    }
}

#[cfg(feature = "kafka")]
impl TopicConfig {
    fn source(&self) -> Result<Arc<dyn Source>, FieldProblem> {
        let settings = weir_log::kafka::Settings::from_url(&self.url);
        let mut settings = settings.map_err(|error| wrong("kafka.url", error))?;
        if let Some(path) = &self.properties_file {
            let text = read("kafka.properties_file", path)?;
            let reply = settings.with_properties(&text);
            settings = reply.map_err(|error| wrong("kafka.properties_file", error))?;
        }
        let source = super::TopicSource::new(settings);
        Ok(Arc::new(source.map_err(|error| wrong("kafka", error))?))
    }
}

#[cfg(not(feature = "kafka"))]
impl TopicConfig {
    fn source(&self) -> Result<Arc<dyn Source>, FieldProblem> {
        let (url, file) = (&self.url, &self.properties_file);
        let problem = format!(
            "{url}{}: this weir-origin was built without Kafka; build it with cargo build --features kafka",
            file.as_ref().map_or("", |_| " with properties")
        );
        Err(wrong("kafka", problem))
    }
}

fn read(field: &'static str, path: &Path) -> Result<String, FieldProblem> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| wrong(field, format!("{}: {error}", path.display())))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pull: &str) -> String {
        let config: PullsConfig =
            serde_json::from_str(&format!(r#"{{"pulls": [{pull}]}}"#)).unwrap();
        config.pulls().unwrap_err().to_string()
    }

    #[tokio::test]
    async fn collector_has_one_source_and_an_invalid_one_is_named() {
        let query = "SELECT {cursor} {limit}";
        let sql = format!(r#"{{"database": "sqlite://a.db", "query": "{query}"}}"#);
        let good = format!(
            r#"{{"pulls": [{{"name": "a", "url": "http://h/{{cursor}}"}}, {{"name": "b", "sql": {sql}, "every": "1s"}}]}}"#
        );
        let config: PullsConfig = serde_json::from_str(&good).unwrap();
        let pulls = config.pulls().unwrap();
        assert_eq!(pulls[1].every, Duration::from_secs(1));

        let check = |pull: &str, expected: &str| {
            let response = refusal(pull);
            assert!(response.contains(expected), "{pull}: {response}");
        };
        check(r#"{"name": "a"}"#, "pulls[0].url");
        check(
            &format!(r#"{{"name": "a", "url": "http://h/{{cursor}}", "sql": {sql}}}"#),
            "pulls[0].url",
        );
        check(r#"{"name": "a", "url": "http://h/"}"#, "pulls[0].url");
        check(
            &format!(r#"{{"name": "a", "sql": {sql}, "token_file": "/t"}}"#),
            "pulls[0].url",
        );
        check(
            &format!(r#"{{"name": "a", "sql": {sql}, "every": "0s"}}"#),
            "pulls[0].every",
        );
        check(
            r#"{"name": "a", "sql": {"database": "sqlite://a.db", "query": "SELECT 1"}}"#,
            "pulls[0].sql: query",
        );
        check(
            &format!(r#"{{"name": "a", "sql": {{"query": "{query}"}}}}"#),
            "pulls[0].sql",
        );
        check(
            &format!(
                r#"{{"name": "a", "sql": {{"database_file": "/no/such", "query": "{query}"}}}}"#
            ),
            "pulls[0].sql.database_file: /no/such",
        );
        check(
            &format!(r#"{{"name": "a", "sql": {sql}}}, {{"name": "a", "sql": {sql}}}"#),
            "pulls[1].name",
        );
        check(
            r#"{"name": "a", "kafka": {"url": "http://h"}}"#,
            "pulls[0].kafka",
        );
    }
}
