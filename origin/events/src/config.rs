//! Configuration of events.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use axum::http::HeaderName;
use clap::{Args, ValueEnum};
use weir_base::duration::Duration;
use weir_event::name::Topic;
use weir_event::partition::PARTITIONS;
use weir_log::{Limits, Retention};

use super::Clock;
use super::groups::webhook::{WEBHOOK_GROUP, Webhook};
use super::groups::{GroupTimes, NewGroup, work};
use super::pull::{Pull, PullsConfig};
use crate::model::recent_events;
use weir_origin_core::clock::now_ms;
use weir_origin_core::secret::{self, SecretError, Variables};

/// Environment variable with the secret that signs webhooks.
pub const WEBHOOK_SECRET: &str = "WEIR_EVENTS_WEBHOOK_SECRET";

/// Minimum size of a log, in bytes: some thousand requests of maximum length.
const LOG_BYTES_MIN: u64 = 1 << 20;

/// `--help` text for the secrets of events.
pub const SECRETS_HELP: &str = "  WEIR_EVENTS_WEBHOOK_SECRET
                      required with --events-webhook-url: signs events
";

/// The flags of events.
#[derive(Clone, Args)]
pub struct EventConfig {
    /// Folder of the event log; each origin needs its own. Unset: no events, unless --events names Kafka
    #[arg(long, env = "WEIR_EVENTS_LOG")]
    pub events_log: Option<PathBuf>,

    /// Use Kafka instead, shared by all origins: kafka://HOST:PORT,HOST:PORT/TOPIC
    #[arg(
        long,
        env = "WEIR_EVENTS",
        value_name = "URL",
        conflicts_with = "events_log"
    )]
    pub events: Option<String>,

    /// File with NAME=VALUE lines for the Kafka client, such as passwords
    #[arg(long, env = "WEIR_EVENTS_KAFKA_PROPERTIES", requires = "events")]
    pub events_kafka_properties: Option<PathBuf>,

    /// Acknowledge an event when the disk has it (`disk`), or when the operating system has it (`os`)
    #[arg(long, env = "WEIR_EVENTS_LOG_SYNC", value_enum, default_value_t = LogSync::Disk)]
    pub events_log_sync: LogSync,

    /// Refuse new events when consumer groups lag behind by this many bytes
    #[arg(long, env = "WEIR_EVENTS_LOG_MAX_BYTES", default_value_t = 4 << 30)]
    pub events_log_max_bytes: u64,

    /// Keep consumed events for this long, so that a seek can replay them, such as 7d
    #[arg(long, env = "WEIR_EVENTS_LOG_RETENTION", default_value = "7d", value_parser = parse_duration)]
    pub events_log_retention: Duration,

    /// Keep at most this many bytes of consumed events
    #[arg(long, env = "WEIR_EVENTS_LOG_RETENTION_BYTES", default_value_t = 16 << 30)]
    pub events_log_retention_bytes: u64,

    /// Header that names the signed-in customer; must match the gateways
    #[arg(long, env = "WEIR_EVENTS_USER_HEADER", default_value = "x-user-id")]
    pub events_user_header: HeaderName,

    /// Keep dead letters for this long
    #[arg(long, env = "WEIR_EVENTS_DEAD_LETTER_RETENTION", default_value = "30d", value_parser = parse_duration)]
    pub events_dead_letter_retention: Duration,

    /// JSON file with the sources to pull events from
    #[arg(long, env = "WEIR_EVENTS_PULLS")]
    pub events_pulls: Option<PathBuf>,

    /// POST each event to this URL, signed with WEIR_EVENTS_WEBHOOK_SECRET
    #[arg(long, env = "WEIR_EVENTS_WEBHOOK_URL", hide_env_values = true)]
    pub events_webhook_url: Option<String>,

    /// PEM file with the CA of that URL; unset: the system's CAs
    #[arg(long, env = "WEIR_EVENTS_WEBHOOK_CA")]
    pub events_webhook_ca: Option<PathBuf>,

    /// Archive all events as Parquet files: a folder, or s3://BUCKET/PREFIX with AWS_ACCESS_KEY_ID,
    /// AWS_SECRET_ACCESS_KEY and AWS_REGION. Set AWS_ENDPOINT_URL for another S3 service
    #[arg(long, env = "WEIR_EVENTS_ARCHIVE", value_name = "PLACE")]
    pub events_archive: Option<String>,

    /// Write archive files after this many bytes of events
    #[arg(long, env = "WEIR_EVENTS_ARCHIVE_BYTES", default_value_t = 64 << 20)]
    pub events_archive_bytes: usize,

    /// Write archive files at the latest this long after an event arrives, such as 10m
    #[arg(long, env = "WEIR_EVENTS_ARCHIVE_EVERY", default_value = "10m", value_parser = parse_duration)]
    pub events_archive_every: Duration,

    /// Comma-separated topics to send to the webhook; unset: all
    #[arg(long, env = "WEIR_EVENTS_WEBHOOK_TOPICS", value_delimiter = ',')]
    pub events_webhook_topics: Vec<String>,
}

/// When an event counts as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogSync {
    /// When the disk has it: survives a crash of the machine. Concurrent requests share one wait.
    #[default]
    Disk,
    /// When the operating system has it: survives a crash of the process, not of the machine.
    Os,
}

impl From<LogSync> for weir_log::Sync {
    fn from(sync: LogSync) -> Self {
        match sync {
            LogSync::Disk => Self::Disk,
            LogSync::Os => Self::Os,
        }
    }
}

fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    Duration::read(text).ok_or("must be a duration such as 12h or 7d")
}

impl EventConfig {
    /// Converts the flags into settings; `None` if events are off.
    ///
    /// # Errors
    /// Names the invalid flag.
    pub fn settings(&self, webhook_secret: Option<String>) -> Result<Option<Settings>> {
        let Some(home) = self.home()? else {
            if self.events_archive.is_some() {
                bail!("--events-archive needs --events-log or --events");
            }
            if self.events_webhook_url.is_some() {
                bail!("--events-webhook-url needs --events-log or --events");
            }
            return Ok(None);
        };
        ensure!(
            self.events_log_max_bytes >= LOG_BYTES_MIN,
            "--events-log-max-bytes: must be at least {LOG_BYTES_MIN}"
        );
        let mut settings = Settings::at(home);
        settings.sync = self.events_log_sync.into();
        settings.limits.waiting_len_max = self.events_log_max_bytes;
        settings.retention = Retention {
            age_ms: self.events_log_retention.ms,
            bytes_max: self.events_log_retention_bytes,
        };
        settings.user_header = self.events_user_header.clone();
        settings.dead_letters_kept_ms = self.events_dead_letter_retention.ms;
        settings.groups.extend(self.webhook(webhook_secret)?);
        if let Some(place) = &self.events_archive {
            self.archive(place, &mut settings)?;
        }
        if let Some(path) = &self.events_pulls {
            settings.pulls = read_pulls(path).context("--events-pulls")?;
        }
        Ok(Some(settings))
    }

    fn home(&self) -> Result<Option<LogLocation>> {
        match (&self.events, &self.events_log) {
            (Some(url), _) => self.kafka(url).map(Some),
            (None, folder) => Ok(folder.clone().map(LogLocation::Folder)),
        }
    }

    #[cfg(feature = "kafka")]
    fn kafka(&self, url: &str) -> Result<LogLocation> {
        let mut settings = weir_log::kafka::Settings::from_url(url).context("--events")?;
        if let Some(path) = &self.events_kafka_properties {
            let name = "--events-kafka-properties";
            let text = std::fs::read_to_string(path);
            let text =
                text.with_context(|| format!("{name}: cannot read \"{}\"", path.display()))?;
            settings = settings.with_properties(&text).context(name)?;
        }
        Ok(LogLocation::Kafka(settings))
    }

    #[cfg(not(feature = "kafka"))]
    fn kafka(&self, _: &str) -> Result<LogLocation> {
        bail!(
            "--events: this weir-origin was built without Kafka; build it with cargo build --features kafka"
        )
    }

    #[cfg(feature = "archive")]
    fn archive(&self, place: &str, settings: &mut Settings) -> Result<()> {
        use super::archive::{Archive, Folder};
        ensure!(
            self.events_archive_every.ms > 0,
            "--events-archive-every: must be longer than 0"
        );
        let folder = Folder::open(place).with_context(|| format!("--events-archive: {place}"))?;
        settings.archive = Some(Archive {
            folder,
            bytes_max: self.events_archive_bytes,
            every: std::time::Duration::from_millis(self.events_archive_every.ms),
        });
        Ok(())
    }

    #[cfg(not(feature = "archive"))]
    fn archive(&self, place: &str, _: &mut Settings) -> Result<()> {
        bail!(
            "--events-archive {place}: this weir-origin was built without archives; build it with cargo build --features archive"
        )
    }

    fn webhook(&self, secret: Option<String>) -> Result<Option<NewGroup>> {
        let Some(url) = &self.events_webhook_url else {
            return Ok(None);
        };
        let secret = secret.with_context(|| {
            format!(
                "--events-webhook-url: {WEBHOOK_SECRET} is not set: set it, or {WEBHOOK_SECRET}_FILE"
            )
        })?;
        for topic in &self.events_webhook_topics {
            Topic::new(topic).with_context(|| format!("--events-webhook-topics: {topic:?}"))?;
        }
        let ca = self.events_webhook_ca.as_deref();
        let webhook = Webhook::new(url, ca, secret.as_bytes(), Arc::new(now_ms));
        let webhook = webhook.context("--events-webhook-url")?;
        let mut group = NewGroup::new(WEBHOOK_GROUP, Arc::new(webhook));
        group.topics = work::topics(&self.events_webhook_topics);
        Ok(Some(group))
    }
}

fn read_pulls(path: &Path) -> Result<Vec<Pull>> {
    let json =
        std::fs::read(path).with_context(|| format!("cannot read \"{}\"", path.display()))?;
    let mut json = serde_json::Deserializer::from_slice(&json);
    let config: PullsConfig = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| anyhow!("{}: {error}", path.display()))?;
    let pulls = config.pulls();
    pulls.with_context(|| path.display().to_string())
}

/// Reads the webhook signing secret, if it is set.
///
/// # Errors
/// See [`SecretError`].
pub fn webhook_secret(variables: Variables<'_>) -> Result<Option<String>, SecretError> {
    match secret::is_set(variables, WEBHOOK_SECRET) {
        true => secret::read(variables, WEBHOOK_SECRET).map(Some),
        false => Ok(None),
    }
}

/// Location of the log.
#[derive(Clone, Debug)]
pub enum LogLocation {
    /// In a folder that only this origin uses.
    Folder(PathBuf),
    /// On Kafka, shared by all origins.
    #[cfg(feature = "kafka")]
    Kafka(weir_log::kafka::Settings),
}

/// Settings of event ingestion and storage.
#[derive(Clone)]
pub struct Settings {
    /// Location of the log.
    pub home: LogLocation,
    /// When an event counts as stored.
    pub sync: weir_log::Sync,
    /// Size limits of the log.
    pub limits: Limits,
    /// Retention of handled records in the log.
    pub retention: Retention,
    /// Number of partitions that customers are spread over.
    pub partitions: u16,
    /// Number of recent events remembered for deduplication.
    pub remembered: usize,
    /// Header that names the signed-in customer.
    pub user_header: HeaderName,
    /// Retention of dead letters, in milliseconds.
    pub dead_letters_kept_ms: u64,
    /// Consumer groups in addition to `store`.
    pub groups: Vec<NewGroup>,
    /// Collectors that pull events.
    pub pulls: Vec<Pull>,
    /// Settings of the group `archive`.
    #[cfg(feature = "archive")]
    pub archive: Option<super::archive::Archive>,
    /// Timeouts and retry intervals of groups.
    pub times: GroupTimes,
    /// Reads the clock.
    pub clock: Clock,
}

impl Settings {
    /// The folder of an embedded log.
    pub fn folder(&self) -> Option<&Path> {
        match &self.home {
            LogLocation::Folder(folder) => Some(folder),
            #[cfg(feature = "kafka")]
            LogLocation::Kafka(_) => None,
        }
    }

    /// Default settings with the log in a folder.
    pub fn new(folder: PathBuf) -> Self {
        Self::at(LogLocation::Folder(folder))
    }

    /// Default settings with the log at this location.
    pub fn at(home: LogLocation) -> Self {
        const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
        Self {
            partitions: match &home {
                LogLocation::Folder(_) => PARTITIONS,
                #[cfg(feature = "kafka")]
                LogLocation::Kafka(kafka) => kafka.partitions(),
            },
            home,
            sync: weir_log::Sync::Disk,
            limits: Limits::default(),
            retention: Retention {
                age_ms: 7 * DAY_MS,
                bytes_max: 16 << 30,
            },
            remembered: recent_events::REMEMBERED,
            user_header: HeaderName::from_static("x-user-id"),
            dead_letters_kept_ms: 30 * DAY_MS,
            groups: Vec::new(),
            pulls: Vec::new(),
            #[cfg(feature = "archive")]
            archive: None,
            times: GroupTimes::default(),
            clock: Arc::new(now_ms),
        }
    }
}
