//! Creates the topic if it does not exist.

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::Client;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;
use tracing::info;

use crate::kafka::client::Quiet;
use crate::kafka::{LogError, Settings};

/// The interval of checks until brokers report a new topic.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Creates the topic if it does not exist, and compares it with the settings. Blocks for at most about three times
/// [`answer_max`](crate::kafka::Times::answer_max).
pub(crate) fn make(settings: &Settings) -> Result<(), LogError> {
    let admin: AdminClient<Quiet> = settings.client().create_with_context(Quiet)?;
    if partitions(settings, admin.inner())?.is_none() {
        create(settings, &admin)?;
    }
    let deadline = Instant::now() + settings.times.answer_max;
    let found = loop {
        match partitions(settings, admin.inner())? {
            Some(found) => break found,
            None if Instant::now() >= deadline => {
                return Err(wrong(
                    settings,
                    "it was created, but no broker lists it".into(),
                ));
            }
            None => std::thread::sleep(LOOK_AGAIN),
        }
    };
    let requested = usize::from(settings.partitions);
    if found != requested {
        let message = format!(
            "it has {found} partitions, but {requested} are configured; a topic in use must keep its number, because each customer's events are in one partition: write ?partitions={found}"
        );
        return Err(wrong(settings, message));
    }
    Ok(())
}

fn create(settings: &Settings, admin: &AdminClient<Quiet>) -> Result<(), LogError> {
    // One replica may be down, and an acknowledged record is still on two.
    let in_sync_min = settings.replicas.saturating_sub(1).max(1).to_string();
    let replication = TopicReplication::Fixed(settings.replicas.into());
    let topic = NewTopic::new(&settings.topic, settings.partitions.into(), replication)
        .set("min.insync.replicas", &in_sync_min);
    let options = AdminOptions::new()
        .request_timeout(Some(settings.times.answer_max))
        .operation_timeout(Some(settings.times.answer_max));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| wrong(settings, error.to_string()))?;
    let created = runtime.block_on(admin.create_topics([&topic], &options))?;
    for result in created {
        match result {
            Ok(topic) => info!(topic, partitions = settings.partitions, "topic created"),
            // Another origin created it first.
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((_, code)) => return Err(wrong(settings, refusal(settings, code))),
        }
    }
    Ok(())
}

fn refusal(settings: &Settings, code: RDKafkaErrorCode) -> String {
    match code {
        RDKafkaErrorCode::InvalidReplicationFactor => format!(
            "there are fewer than {} brokers for its replicas; write ?replicas=1 for a single broker",
            settings.replicas
        ),
        code => format!("cannot create it: {code}"),
    }
}

/// The topic's number of partitions; `None` if the brokers report no such topic.
fn partitions(settings: &Settings, client: &Client<Quiet>) -> Result<Option<usize>, LogError> {
    let metadata = client.fetch_metadata(Some(&settings.topic), settings.times.answer_max)?;
    let is_ours = |topic: &&MetadataTopic| topic.name() == settings.topic;
    let Some(topic) = metadata.topics().iter().find(is_ours) else {
        return Ok(None);
    };
    match topic.error().map(RDKafkaErrorCode::from) {
        None => {}
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::LeaderNotAvailable) => {
            return Ok(None);
        }
        Some(code) => return Err(KafkaError::MetadataFetch(code).into()),
    }
    Ok(Some(topic.partitions().len()).filter(|count| *count > 0))
}

fn wrong(settings: &Settings, subject: String) -> LogError {
    LogError::Topic {
        topic: settings.topic.clone(),
        what: subject,
    }
}
