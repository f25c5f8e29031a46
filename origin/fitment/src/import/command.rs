//! `weir-origin import`: imports a file from the command line, with a progress bar.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::{Spec, random_name};
use crate::Fitment;
use crate::store::{Import, State};

/// Polling interval for an import that another process runs.
const LOOK: Duration = Duration::from_millis(200);

/// Maximum number of errors shown; the admin route lists more.
const ERRORS_SHOWN: usize = 100;

/// Import a file of vehicles, products or relations into the database. The command first copies it to the --fitment
/// folder. After a crash, an origin with that folder resumes the import, or run `import --resume`
#[derive(Clone, Debug, Args)]
pub struct ImportCommand {
    /// The file to import
    #[arg(required_unless_present = "resume")]
    pub file: Option<PathBuf>,

    /// Content of the file: vehicles, products or relations
    #[arg(long, required_unless_present = "resume", default_value = "")]
    pub kind: String,

    /// Format of the file: csv or aces
    #[arg(long, default_value = "csv")]
    pub format: String,

    /// Existing relations of the file's SKUs: keep them (merge) or remove them (replace)
    #[arg(long, default_value = "merge")]
    pub mode: String,

    /// Reject records with qualifiers that would be dropped
    #[arg(long)]
    pub strict: bool,

    /// Resume the interrupted import with this id
    #[arg(long, conflicts_with = "file")]
    pub resume: Option<u64>,
}

/// Runs the import. After an error nothing of the file is applied; stderr lists each invalid line.
///
/// # Errors
/// Describes the problem.
pub async fn run(command: &ImportCommand, fitment: &Fitment) -> Result<()> {
    let id = match (command.resume, &command.file) {
        (Some(id), _) => id,
        (None, Some(file)) => begin(command, file, fitment).await?,
        (None, None) => bail!("no file given"),
    };
    eprintln!("import {id}");
    let import = found(fitment, id).await?;
    if !import.state.is_end() && !fitment.spool_file(&import).is_file() {
        bail!(
            "the file of import {id} is not in the --fitment folder: an origin with the file resumes it; if the file is lost, cancel with DELETE /fitment/imports/{id} at the admin port"
        );
    }
    let bar = ProgressBar::new(import.size);
    let style = "{msg:9} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    bar.set_style(ProgressStyle::with_template(style).context("the bar")?);
    let ended = work(fitment, id, &bar).await;
    bar.finish_and_clear();
    tell(fitment, &ended?).await
}

async fn begin(command: &ImportCommand, file: &PathBuf, fitment: &Fitment) -> Result<u64> {
    let spec = Spec::read(
        &command.kind,
        &command.format,
        &command.mode,
        command.strict,
    );
    let spec = spec.map_err(anyhow::Error::msg)?;
    let (name, path) = fitment.new_spool_file();
    let size = tokio::fs::copy(file, &path).await;
    let size = size.with_context(|| {
        format!(
            "cannot copy \"{}\" to \"{}\"",
            file.display(),
            path.display()
        )
    })?;
    tokio::fs::File::open(&path).await?.sync_all().await?;
    Ok(fitment.new_import(spec, name, size).await?)
}

async fn found(fitment: &Fitment, id: u64) -> Result<Import> {
    let import = fitment.store().import_jobs().import(id).await?;
    import.with_context(|| format!("unknown import {id}"))
}

/// Processes imports until this one has ended, in this process or in another.
async fn work(fitment: &Fitment, id: u64, bar: &ProgressBar) -> Result<Import> {
    let (holder, stop) = (random_name(), CancellationToken::new());
    let worker = tokio::spawn({
        let (fitment, stop) = (fitment.clone(), stop.clone());
        async move {
            while !stop.is_cancelled() {
                match fitment.import_next(&holder, &stop, &|_| ()).await {
                    Ok(true) => {}
                    Ok(false) => tokio::time::sleep(LOOK).await,
                    Err(error) => {
                        eprintln!("{error}; retrying");
                        tokio::time::sleep(5 * LOOK).await;
                    }
                }
            }
        }
    });
    let ended = loop {
        let import = found(fitment, id).await?;
        bar.set_message(match import.state {
            State::Applying => "applying",
            _ => "reading",
        });
        bar.set_position(import.progress.position);
        if import.state.is_end() {
            break import;
        }
        tokio::time::sleep(LOOK).await;
    };
    stop.cancel();
    worker.await?;
    Ok(ended)
}

async fn tell(fitment: &Fitment, import: &Import) -> Result<()> {
    if import.state == State::Done {
        println!("{} {} imported", import.progress.records, import.kind);
        let dropped = import.progress.qualifiers_dropped;
        if dropped > 0 {
            eprintln!("{dropped} of them lost qualifiers: import with --strict to list them");
        }
        return Ok(());
    }
    for error in fitment
        .store()
        .import_jobs()
        .import_errors(import.id, 0, ERRORS_SHOWN)
        .await?
    {
        let column = match error.column.as_str() {
            "" => String::new(),
            column => format!("{column}: "),
        };
        eprintln!("line {}: {column}{}", error.line, error.reason);
    }
    let more = import.progress.errors.saturating_sub(ERRORS_SHOWN as u64);
    if more > 0 {
        eprintln!("… and {more} more errors");
    }
    bail!("import {} failed: {}", import.id, import.message)
}
