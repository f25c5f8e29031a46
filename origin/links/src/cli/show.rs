//! Lists and exports links.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::api::{Api, query};
use super::{ExportCommand, ListCommand};

/// Maximum number of links per request.
const PAGE_MAX: usize = 200;

/// Prints links, page by page.
pub(super) async fn list(api: &Api, command: &ListCommand) -> Result<()> {
    let mut remaining = match command.limit {
        0 => usize::MAX,
        limit => limit,
    };
    let mut after = None;
    while remaining > 0 {
        let mut parts = command.filter.query();
        parts.push(("limit", remaining.min(PAGE_MAX).to_string()));
        parts.extend(after.take().map(|after| ("after", after)));
        let path = format!("/links{}", query(&parts));
        let page = api.json("GET", &path, None).await?;
        for link in page["links"].as_array().into_iter().flatten() {
            println!("{}", line(link, command.json));
            remaining = remaining.saturating_sub(1);
        }
        let Some(next) = page["next"].as_str() else {
            return Ok(());
        };
        after = Some(next.to_owned());
    }
    Ok(())
}

fn line(link: &Value, is_json: bool) -> String {
    if is_json {
        return link.to_string();
    }
    let text = |name: &str| link[name].as_str().unwrap_or_default().to_owned();
    let (url, clicks, state) = (text("url"), link["clicks"].to_string(), text("state"));
    format!("{url}\t{clicks}\t{state}\t{}", text("target"))
}

/// Exports links to a file. The file gets its final name only when it is complete.
pub(super) async fn export(api: &Api, command: &ExportCommand) -> Result<()> {
    let parts = query(&command.filter.query());
    let path = format!("/links.{}{parts}", command.format);
    let Some(output) = &command.output else {
        return copy(api, &path, &mut io::stdout().lock()).await;
    };
    let unfinished = output.with_added_extension("part");
    let name = |path: &Path| path.display().to_string();
    let mut file = File::create(&unfinished).with_context(|| name(&unfinished))?;
    copy(api, &path, &mut file).await?;
    file.sync_all()?;
    std::fs::rename(&unfinished, output).with_context(|| name(output))
}

async fn copy(api: &Api, path: &str, to: &mut dyn Write) -> Result<()> {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template(
        "{spinner} {bytes} {bytes_per_sec}",
    )?);
    let mut answer = api.open(path).await?;
    while let Some(chunk) = answer.chunk().await.context("the export was interrupted")? {
        to.write_all(&chunk)?;
        bar.inc(chunk.len() as u64);
    }
    to.flush()?;
    bar.finish_and_clear();
    Ok(())
}
