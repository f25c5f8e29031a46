//! `weir-origin links import`: sends a file in parts, with a progress bar.

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use super::ImportCommand;
use super::api::{Api, query};
use super::parts::{FileChunk, cut};

/// The origin's report about a part.
#[derive(Debug, Default, Deserialize)]
struct Report {
    rows: u64,
    created: u64,
    present: u64,
    refused: Vec<RowError>,
    ignored_columns: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct RowError {
    line: u64,
    code: Option<String>,
    error: String,
    detail: String,
}

/// Sends the file. Lists each refused row with its line on stderr; the exit code is then not 0.
pub(super) async fn run(api: &Api, command: &ImportCommand) -> Result<()> {
    let path = command.file.display();
    let file = std::fs::read(&command.file).with_context(|| format!("cannot read {path}"))?;
    let parts = cut(command.format, &file).with_context(|| path.to_string())?;
    if parts.is_empty() {
        // The origin reports a missing column.
        let part = FileChunk {
            first_line: 2,
            bytes: file.into(),
            end: 0,
        };
        return send_all(api, command, vec![part], 0).await;
    }
    send_all(api, command, parts, file.len() as u64).await
}

async fn send_all(
    api: &Api,
    command: &ImportCommand,
    parts: Vec<FileChunk>,
    size: u64,
) -> Result<()> {
    let bar = ProgressBar::new(size);
    let style = "{msg} {wide_bar} {bytes}/{total_bytes} {eta}";
    bar.set_style(ProgressStyle::with_template(style).context("the bar")?);
    let mut sum = Report::default();
    for part in parts {
        let path = format!("/link-imports{}", command.query(&part));
        let line = part.first_line;
        let sent = api.import(&path, part.bytes).await;
        let sent = sent.with_context(|| {
            format!("stopped at line {line}; run the same command again to continue")
        });
        let report = match sent {
            Ok(report) => serde_json::from_value::<Report>(report).context("the answer")?,
            Err(error) => {
                bar.abandon();
                return Err(error);
            }
        };
        bar.suspend(|| report.refused.iter().for_each(print_error));
        sum.add(report);
        bar.set_position(part.end);
        bar.set_message(format!("{} links", sum.created + sum.present));
    }
    bar.finish_and_clear();
    sum.end(command.dry_run)
}

fn print_error(flaw: &RowError) {
    let code = flaw
        .code
        .as_deref()
        .map_or(String::new(), |code| format!("{code}: "));
    eprintln!("line {}: {code}{} ({})", flaw.line, flaw.detail, flaw.error);
}

impl ImportCommand {
    fn query(&self, part: &FileChunk) -> String {
        let mut parts = vec![
            ("format", self.format.label().to_owned()),
            ("first_line", part.first_line.to_string()),
        ];
        let domain = self.domain.clone().map(|domain| ("domain", domain));
        let tag = self.tag.clone().map(|tag| ("tag", tag));
        let life = self.life_days.map(|days| ("life_days", days.to_string()));
        parts.extend(domain.into_iter().chain(tag).chain(life));
        if self.dry_run {
            parts.push(("dry_run", "true".to_owned()));
        }
        query(&parts)
    }
}

impl Report {
    fn add(&mut self, part: Self) {
        self.rows += part.rows;
        self.created += part.created;
        self.present += part.present;
        self.refused.extend(part.refused);
        self.ignored_columns = part.ignored_columns;
    }

    fn end(&self, is_dry_run: bool) -> Result<()> {
        let refused = self.refused.len();
        if !self.ignored_columns.is_empty() {
            eprintln!("ignored columns: {}", self.ignored_columns.join(", "));
        }
        let created = if is_dry_run {
            "would be created"
        } else {
            "created"
        };
        println!(
            "{} rows: {} links {created}, {} already exist, {refused} refused",
            self.rows, self.created, self.present
        );
        match refused {
            0 => Ok(()),
            _ => bail!("{refused} rows were not imported"),
        }
    }
}
