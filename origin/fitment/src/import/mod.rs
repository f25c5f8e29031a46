//! Imports: files of vehicles, products and relations.
//!
//! ```text
//! upload ─▶ spool file ─▶ read: every line is checked, relations are staged in SQL with the position ─▶ apply: one transaction
//!                          │ any error                                                                   │
//!                          ▼                                                                             ▼
//!                        failed: nothing changes, SQL lists the errors by line                         done
//! ```
//!
//! If an origin dies while reading, the next origin resumes at the stored position. If it dies while applying, nothing
//! has changed. Two origins may process one import at once: the one that lost the lease cannot store anything.

#[cfg(feature = "aces")]
mod aces;
pub mod command;
mod encoding;
mod read;
mod source;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use weir_fitment::Sku;

use super::Fitment;
use super::store::{ERRORS_MAX, Import, ImportError, NewImport, Progress, StagedSku, State};
use read::{Content, FilePiece, ReadError, SkuPiece, VehicleIndex, read_piece};
use weir_origin_core::background::Interval;
use weir_origin_core::sql::SqlError;

pub use read::{Format, Kind};

/// Polling interval for new imports.
const PERIOD: Duration = Duration::from_millis(500);

/// Lease of an import, in milliseconds. If it is not renewed, another origin takes over.
const HOLD_MS: u64 = 60_000;

/// Maximum number of vehicles or products in one file. They stay in memory until all are checked.
pub const RECORDS_MAX: u64 = 2_000_000;

/// What an import does with existing relations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Keeps them.
    Merge,
    /// Removes those of the SKUs in the file.
    Replace,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 2] = [Self::Merge, Self::Replace];

    /// Its label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Replace => "replace",
        }
    }
}

/// The parameters of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Content of the file.
    pub kind: Kind,
    /// Format of the file.
    pub format: Format,
    /// What happens to existing relations.
    pub mode: Mode,
    /// Whether records with qualifiers that would be dropped are refused.
    pub is_strict: bool,
}

impl Spec {
    /// Parses the parameters; `format` and `mode` may be empty.
    ///
    /// # Errors
    /// Names the invalid parameter.
    pub fn read(kind: &str, format: &str, mode: &str, is_strict: bool) -> Result<Self, String> {
        let spec = Self {
            kind: one_of("kind", &Kind::ALL, Kind::label, kind)?,
            format: match format {
                "" => Format::Csv,
                word => one_of("format", Format::ALL, Format::label, word)?,
            },
            mode: match mode {
                "" => Mode::Merge,
                word => one_of("mode", &Mode::ALL, Mode::label, word)?,
            },
            is_strict,
        };
        match (spec.format, spec.kind) {
            #[cfg(feature = "aces")]
            (Format::Aces, Kind::Vehicles | Kind::Products) => {
                Err("format: aces is only for relations".to_owned())
            }
            _ => Ok(spec),
        }
    }
}

fn one_of<T: Copy>(
    name: &str,
    all: &[T],
    word: fn(T) -> &'static str,
    text: &str,
) -> Result<T, String> {
    let found = all.iter().copied().find(|one| word(*one) == text);
    found.ok_or_else(|| {
        let words: Vec<_> = all.iter().copied().map(word).collect();
        format!("{name}: must be one of {}", words.join(", "))
    })
}

/// Why an import stopped.
#[derive(Debug, thiserror::Error)]
enum ImportEnd {
    /// A SQL call failed; the import resumes later.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The import failed permanently.
    #[error("{0}")]
    Failed(String),
    /// Another origin holds the import.
    #[error("another origin has taken over the import")]
    Lost,
    /// A subtask ended early.
    #[error("reading failed: {0}")]
    Task(#[from] tokio::task::JoinError),
    /// The origin is stopping.
    #[error("the origin is stopping")]
    Stopped,
}

/// A running import.
struct Run<'a> {
    fitment: &'a Fitment,
    import: Import,
    spec: Spec,
    holder: &'a str,
    path: PathBuf,
    stop: &'a CancellationToken,
    /// Reports the number of relations applied so far.
    applied: &'a (dyn Fn(u64) + Sync),
}

impl Fitment {
    /// Processes imports until `stop`.
    pub(super) async fn run_imports(self, stop: CancellationToken) {
        let holder = random_name();
        let mut interval = Interval::every(PERIOD, "importing fitment", stop.clone());
        while interval.next().await {
            let outcome = self.import_next(&holder, &stop, &|_| ()).await;
            interval.ended(&outcome);
            if matches!(outcome, Ok(true)) {
                interval.next_at_once();
            }
        }
    }

    /// A name for a new spool file, and its path.
    pub fn new_spool_file(&self) -> (String, PathBuf) {
        let name = random_name();
        let path = self.0.settings.spool.join(&name);
        (name, path)
    }

    /// Creates an import whose spool file is complete and on disk. Returns its id.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn new_import(&self, spec: Spec, file: String, size: u64) -> Result<u64, SqlError> {
        let new = NewImport {
            kind: spec.kind.label().to_owned(),
            format: spec.format.label().to_owned(),
            mode: spec.mode.label().to_owned(),
            is_strict: spec.is_strict,
            file,
            size,
        };
        self.store().import_jobs().new_import(&new).await
    }

    /// Cancels an import; nothing of it is applied. Returns false if it has ended or does not exist.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn give_up_import(&self, id: u64) -> Result<bool, SqlError> {
        let Some(import) = self.store().import_jobs().give_up_import(id).await? else {
            return Ok(false);
        };
        info!(id, "import cancelled; nothing is applied");
        self.0.metrics.import(false);
        // The file may be in another origin's folder, or lost, which may be the reason for the cancellation.
        let _ = tokio::fs::remove_file(self.spool_file(&import)).await;
        Ok(true)
    }

    /// The path of an import's file, if it is in this origin's folder.
    fn spool_file(&self, import: &Import) -> PathBuf {
        self.0.settings.spool.join(&import.file)
    }

    /// Processes the next import. Returns whether there was one.
    async fn import_next(
        &self,
        holder: &str,
        stop: &CancellationToken,
        applied: &(dyn Fn(u64) + Sync),
    ) -> Result<bool, ImportEnd> {
        let spool = &self.0.settings.spool;
        let is_here = |file: &str| spool.join(file).is_file();
        let accepted = self
            .store()
            .import_jobs()
            .take_import(holder, HOLD_MS, &is_here)
            .await?;
        let Some(import) = accepted else {
            return Ok(false);
        };
        let (id, progress) = (import.id, import.progress);
        info!(
            id,
            kind = import.kind,
            position = progress.position,
            "importing"
        );
        let path = self.spool_file(&import);
        let spec = Spec::read(&import.kind, &import.format, &import.mode, import.is_strict);
        let run = spec.map(|spec| Run {
            fitment: self,
            spec,
            import,
            holder,
            path: path.clone(),
            stop,
            applied,
        });
        let ended = match run {
            Ok(run) => run.run().await,
            Err(unknown) => Err(ImportEnd::Failed(unknown)),
        };
        match &ended {
            Ok(()) => self.0.metrics.import(true),
            Err(ImportEnd::Failed(message)) => {
                let now = self.store().import_jobs().import(id).await?;
                let progress = now.map_or(progress, |import| import.progress);
                let is_held = self
                    .store()
                    .import_jobs()
                    .fail_import((id, holder), message, progress)
                    .await?;
                if !is_held {
                    return Ok(true);
                }
                self.0.metrics.import(false);
                info!(id, message, "import failed; nothing is applied");
            }
            Err(ImportEnd::Lost | ImportEnd::Stopped) => return Ok(true),
            Err(_) => return ended.map(|()| true),
        }
        if let Err(error) = tokio::fs::remove_file(&path).await {
            warn!(%error, "cannot delete the file of an ended import");
        }
        Ok(true)
    }
}

impl Run<'_> {
    async fn run(&self) -> Result<(), ImportEnd> {
        let index = Arc::new(self.vehicle_index().await?);
        let (mut progress, mut all, mut is_end) = (self.import.progress, Content::default(), false);
        if self.spec.kind != Kind::Relations {
            // Records stay in memory until the end, so an origin that died left nothing behind.
            progress = Progress::default();
        } else if self.import.state == State::Applying {
            is_end = true;
        }
        let encoding = match progress == Progress::default() && !is_end {
            true => self.decode().await?,
            false => None,
        };
        while !is_end {
            if self.stop.is_cancelled() {
                return Err(ImportEnd::Stopped);
            }
            let piece = self.piece(&index, progress).await;
            let mut piece = piece.map_err(|error| named(error, encoding))?;
            let staged = self.numbered(&mut piece).await?;
            is_end = piece.is_end;
            let first_error = progress.errors;
            self.fitment
                .0
                .metrics
                .records
                .inc_by(piece.progress.records - progress.records);
            progress = piece.progress;
            all.vehicles.append(&mut piece.content.vehicles);
            all.products.append(&mut piece.content.products);
            if self.spec.kind != Kind::Relations && progress.records > RECORDS_MAX {
                return Err(ImportEnd::Failed(format!(
                    "the file has more than {RECORDS_MAX} records: split it"
                )));
            }
            let state = match is_end && progress.errors == 0 {
                true => State::Applying,
                false => State::Reading,
            };
            let recorded = self.fitment.store().import_jobs().stage(
                self.held(),
                state,
                progress,
                &staged,
                (first_error, &piece.errors),
            );
            self.still_held(recorded.await?)?;
            let is_held = self
                .fitment
                .store()
                .import_jobs()
                .hold_import(self.import.id, self.holder, HOLD_MS)
                .await?;
            self.still_held(is_held)?;
        }
        if progress.errors > 0 {
            return Err(ImportEnd::Failed(format!(
                "{} invalid lines. Nothing was imported.",
                progress.errors
            )));
        }
        self.apply(progress, &all).await
    }

    fn held(&self) -> (u64, &str) {
        (self.import.id, self.holder)
    }

    fn still_held(&self, is_held: bool) -> Result<(), ImportEnd> {
        if is_held {
            Ok(())
        } else {
            Err(ImportEnd::Lost)
        }
    }

    async fn vehicle_index(&self) -> Result<VehicleIndex, ImportEnd> {
        let mut index = VehicleIndex::default();
        if self.spec.kind == Kind::Relations {
            self.fitment
                .store()
                .each_vehicle(|vehicle, offset| index.insert(vehicle, offset))
                .await?;
        }
        Ok(index)
    }

    /// Decodes the file if it is not UTF-8. Returns the original encoding.
    async fn decode(&self) -> Result<Option<&'static str>, ImportEnd> {
        let (path, format) = (self.path.clone(), self.spec.format);
        // If the process dies meanwhile, the next attempt overwrites the same file.
        let beside = self.path.with_extension("decoded");
        let decode = move || encoding::decode_file(&path, &beside, format);
        let decoded = tokio::task::spawn_blocking(decode).await?;
        let Some(encoding) = decoded.map_err(|error| ImportEnd::Failed(error.to_string()))? else {
            return Ok(None);
        };
        // Progress counts bytes of the decoded file.
        if let Ok(decoded) = tokio::fs::metadata(&self.path).await {
            let jobs = self.fitment.store().import_jobs();
            jobs.set_size(self.import.id, decoded.len()).await?;
        }
        Ok(Some(encoding.name()))
    }

    async fn piece(
        &self,
        index: &Arc<VehicleIndex>,
        progress: Progress,
    ) -> Result<FilePiece, ImportEnd> {
        let (path, index, spec) = (self.path.clone(), index.clone(), self.spec);
        let records_max = self.fitment.0.settings.records_staged;
        let read = move || read_piece(&path, spec, &index, progress, records_max);
        let piece = tokio::task::spawn_blocking(read).await?;
        piece.map_err(|error: ReadError| ImportEnd::Failed(error.to_string()))
    }

    /// Groups the relations of a piece by SKU number. An unknown SKU is an error in its first line.
    async fn numbered(&self, piece: &mut FilePiece) -> Result<Vec<StagedSku>, ImportEnd> {
        let mut staged: Vec<StagedSku> = Vec::with_capacity(piece.content.relations.len());
        let mut places = std::collections::HashMap::<Sku, Option<usize>>::new();
        for of in std::mem::take(&mut piece.content.relations) {
            let place = match places.get(&of.sku) {
                Some(place) => *place,
                None => {
                    let number = self.fitment.store().sku_number(&of.sku).await?;
                    let place = number.map(|number| {
                        staged.push(StagedSku {
                            number,
                            ..StagedSku::default()
                        });
                        staged.len() - 1
                    });
                    if place.is_none() {
                        unknown_sku(piece, self.spec.format, &of);
                    }
                    places.insert(of.sku.clone(), place);
                    place
                }
            };
            if let Some(one) = place.and_then(|place| staged.get_mut(place)) {
                one.merge(StagedSku {
                    number: one.number,
                    added: of.added,
                    removed: of.removed,
                    qualifiers: of.qualifiers,
                });
            }
        }
        Ok(staged)
    }

    async fn apply(&self, progress: Progress, all: &Content) -> Result<(), ImportEnd> {
        let (fitment, held) = (self.fitment, self.held());
        let place = |product: &_| fitment.place(product);
        let is_held = match self.spec.kind {
            Kind::Vehicles => {
                fitment
                    .store()
                    .import_jobs()
                    .apply_vehicles(held, progress, &all.vehicles)
                    .await?
            }
            Kind::Products => {
                fitment
                    .store()
                    .import_jobs()
                    .apply_products(held, progress, &all.products, &place)
                    .await?
            }
            Kind::Relations => {
                let is_whole = self.spec.mode == Mode::Replace;
                fitment
                    .store()
                    .import_jobs()
                    .apply_relations(held, progress, is_whole, self.applied)
                    .await?
            }
        };
        self.still_held(is_held)
    }
}

/// Adds the file's encoding to a read error.
fn named(error: ImportEnd, encoding: Option<&str>) -> ImportEnd {
    match (error, encoding) {
        (ImportEnd::Failed(message), Some(encoding)) => {
            ImportEnd::Failed(format!("{message} (the file is {encoding})"))
        }
        (error, _) => error,
    }
}

fn unknown_sku(piece: &mut FilePiece, format: Format, of: &SkuPiece) {
    if piece.progress.errors < ERRORS_MAX {
        let (column, name) = match format {
            Format::Csv => ("sku", ""),
            #[cfg(feature = "aces")]
            Format::Aces => (aces::element_of("sku"), "Part "),
        };
        let error = ImportError {
            line: of.line,
            column: column.to_owned(),
            reason: format!("{name}{} is unknown: import its product first", of.sku),
        };
        piece.errors.push(error);
    }
    piece.progress.errors += 1;
}

/// A unique random name in hexadecimal digits.
fn random_name() -> String {
    let mut name = [0; 16];
    // Without random numbers the name is all zeros: a second one fails in SQL, or waits.
    let _ = SystemRandom::new().fill(&mut name);
    hex::encode(name)
}
