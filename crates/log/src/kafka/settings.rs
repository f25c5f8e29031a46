//! The settings of the Kafka client.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;

/// The topic's default number of partitions.
const PARTITIONS: u16 = 50;

/// The maximum number of partitions.
const PARTITIONS_MAX: u16 = 1_000;

/// The default replication factor.
const REPLICAS: u16 = 3;

/// The maximum length of a topic name: Kafka's limit is 249, and group names begin with it.
const TOPIC_LEN_MAX: usize = 150;

/// Properties that this module's guarantees depend on: users cannot set them.
const FIXED: [&str; 12] = [
    "acks",
    "bootstrap.servers",
    "delivery.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "group.id",
    "message.timeout.ms",
    "partition.assignment.strategy",
    "request.required.acks",
    "transactional.id",
];

/// Timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// After this time, the result of an unacknowledged append is [unknown](crate::kafka::AppendError::Unknown).
    pub append_max: Duration,
    /// The timeout of a request for the topic's metadata.
    pub answer_max: Duration,
    /// The session timeout of a group member: after it, other readers get its partitions.
    pub session: Duration,
    /// How long a reader may finish its last batch of a revoked partition.
    pub hand_over_max: Duration,
}

impl Default for Times {
    /// 10 s, 5 s, 10 s, 10 s.
    fn default() -> Self {
        Self {
            append_max: Duration::from_secs(10),
            answer_max: Duration::from_secs(5),
            session: Duration::from_secs(10),
            hand_over_max: Duration::from_secs(10),
        }
    }
}

/// The settings of a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    pub(crate) servers: String,
    pub(crate) topic: String,
    pub(crate) partitions: u16,
    pub(crate) replicas: u16,
    /// The timeouts.
    pub times: Times,
    /// With this many unacknowledged bytes, it rejects appends.
    pub waiting_len_max: usize,
    properties: BTreeMap<String, String>,
}

impl std::fmt::Debug for Settings {
    /// Without the properties, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Settings({} on {})", self.topic, self.servers)
    }
}

/// Invalid settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The URL is invalid.
    #[error(
        "not a Kafka URL: {0}; write kafka://HOST:PORT,HOST:PORT/TOPIC, with ?partitions=N&replicas=N for a new topic"
    )]
    Url(&'static str),
    /// Weir sets this property itself.
    #[error("Kafka property \"{0}\" cannot be set: Weir's guarantees depend on its value")]
    Fixed(String),
    /// A line is not a property.
    #[error("line {0} of the Kafka properties is not NAME=VALUE")]
    Line(usize),
    /// librdkafka rejects a property.
    #[error("Kafka's properties: {0}")]
    Property(String),
}

impl Settings {
    /// Reads `kafka://HOST:PORT,HOST:PORT/TOPIC?partitions=N&replicas=N`. The default topic is `weir-events`.
    /// `partitions` (50) and `replicas` (3) apply to a topic that Weir creates; an existing one must have that number
    /// of partitions.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub fn from_url(url: &str) -> Result<Self, SettingsError> {
        let rest = url.strip_prefix("kafka://");
        let rest = rest.ok_or(SettingsError::Url("it does not start with kafka://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (servers, topic) = rest.split_once('/').unwrap_or((rest, "weir-events"));
        if !servers.split(',').all(is_server) {
            return Err(SettingsError::Url("a server is not HOST:PORT"));
        }
        if !is_topic(topic) {
            let subject = "a topic has 1 to 150 of a-z, A-Z, 0-9, dots, - and _";
            return Err(SettingsError::Url(subject));
        }
        let mut settings = Self {
            servers: servers.to_owned(),
            topic: topic.to_owned(),
            partitions: PARTITIONS,
            replicas: REPLICAS,
            times: Times::default(),
            waiting_len_max: 64 << 20,
            properties: BTreeMap::new(),
        };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            settings.set(part)?;
        }
        Ok(settings)
    }

    fn set(&mut self, part: &str) -> Result<(), SettingsError> {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let number: Option<u16> = value.parse().ok();
        let number = number.filter(|number| (1..=PARTITIONS_MAX).contains(number));
        let number = number.ok_or(SettingsError::Url("a number is not 1 to 1000"))?;
        match name {
            "partitions" => self.partitions = number,
            "replicas" => self.replicas = number,
            _ => {
                return Err(SettingsError::Url(
                    "the only parameters are partitions and replicas",
                ));
            }
        }
        Ok(())
    }

    /// Adds librdkafka properties as lines of `NAME=VALUE`: TLS, SASL, client names. Ignores empty lines and those that
    /// begin with `#`.
    ///
    /// # Errors
    /// When a line is not a property, when Weir sets the property itself, or when librdkafka rejects it.
    pub fn with_properties(mut self, text: &str) -> Result<Self, SettingsError> {
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = line.split_once('=').ok_or(SettingsError::Line(n + 1))?;
            let (name, value) = (name.trim(), value.trim());
            if FIXED.contains(&name) {
                return Err(SettingsError::Fixed(name.to_owned()));
            }
            self.properties.insert(name.to_owned(), value.to_owned());
        }
        let checked = self.client().create_native_config();
        checked.map_err(|error| SettingsError::Property(error.to_string()))?;
        Ok(self)
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The number of partitions.
    pub fn partitions(&self) -> u16 {
        self.partitions
    }

    /// The common configuration of producers and consumers.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.servers)
            .set("client.id", "weir")
            // Reconnects to a restarted broker within a second.
            .set("reconnect.backoff.max.ms", "1000")
            .set("socket.keepalive.enable", "true");
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config
    }
}

fn is_server(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    // No user and no password: those are properties.
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    let is_host = !host.is_empty() && host.bytes().all(is_of_host);
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_topic(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=TOPIC_LEN_MAX).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafka_url_contains_servers_topic_and_numbers() {
        let settings =
            Settings::from_url("kafka://a:1,b.c:2/shop.events?replicas=1&partitions=8").unwrap();
        assert_eq!(settings.servers, "a:1,b.c:2");
        assert_eq!(settings.topic(), "shop.events");
        assert_eq!((settings.partitions(), settings.replicas), (8, 1));
        let settings = Settings::from_url("kafka://[::1]:9092").unwrap();
        assert_eq!(settings.topic(), "weir-events");
        assert_eq!((settings.partitions(), settings.replicas), (50, 3));
    }

    #[test]
    fn invalid_kafka_url_is_refused_with_the_expected_format() {
        for url in [
            "",
            "kafka://",
            "kafka://a",
            "kafka://a:0",
            "kafka://a:1,",
            "kafka://a:70000",
            "kafka://me:hush@a:1",
            "kafka://a:1/",
            "kafka://a:1/a b",
            "kafka://a:1/..",
            "kafka://a:1/t?partitions=0",
            "kafka://a:1/t?replicas=x",
            "kafka://a:1/t?acks=0",
            "http://a:1",
        ] {
            let error = Settings::from_url(url).unwrap_err().to_string();
            assert!(error.contains("kafka://HOST:PORT"), "{url}: {error}");
        }
    }

    #[test]
    fn kafka_properties_that_weaken_guarantees_are_refused() {
        let settings = || Settings::from_url("kafka://a:1").unwrap();
        let text = "# how we are called\nclient.id = shop \n\nsocket.timeout.ms=7000\n";
        let reply = settings().with_properties(text).unwrap().client();
        assert_eq!(reply.get("client.id"), Some("shop"));
        assert_eq!(reply.get("socket.timeout.ms"), Some("7000"));
        let refused = |text: &str| settings().with_properties(text).unwrap_err();
        assert_eq!(refused("a=b\nacks=1"), SettingsError::Fixed("acks".into()));
        assert_eq!(refused("\nacks"), SettingsError::Line(2));
        assert!(matches!(refused("no.such=1"), SettingsError::Property(_)));
    }

    #[test]
    fn kafka_passwords_are_not_shown() {
        let settings = Settings::from_url("kafka://a:1").unwrap();
        let settings = settings.with_properties("sasl.password=hush").unwrap();
        assert!(!format!("{settings:?}").contains("hush"));
    }
}
