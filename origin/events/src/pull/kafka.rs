//! Pulls events from a topic of a third-party Kafka cluster. Each record is an event as JSON.
//!
//! The cursor holds the next offset of each partition, such as `0:17,1:4`. SQL stores it like every collector's cursor.
//! The source joins no consumer group.

use weir_event::limits::{BODY_LEN_MAX, EVENTS_MAX};
use weir_log::kafka::{Feed, FeedBounds, LogError, Places, Settings};

use super::body::Body;
use super::{FetchedPage, Fetching, Source};

/// Maximum bytes of one read. Escapes and commas increase the size.
const LEN_MAX: usize = BODY_LEN_MAX / 4;

/// A topic that contains events.
#[derive(Debug)]
pub struct TopicSource {
    feed: Feed,
}

impl TopicSource {
    /// Creates a source for the topic in the settings, without contacting a broker.
    ///
    /// # Errors
    /// If librdkafka refuses the settings.
    pub fn new(settings: Settings) -> Result<Self, LogError> {
        let feed = Feed::open(settings)?;
        Ok(Self { feed })
    }

    async fn fetch_from(&self, cursor: &str) -> Result<FetchedPage, String> {
        let mut places = read(cursor).ok_or("its cursor belongs to another kind of collector")?;
        let bounds = FeedBounds {
            records_max: EVENTS_MAX,
            len_max: LEN_MAX,
        };
        let fed = self.feed.read(&places, bounds).await;
        let fed = fed.map_err(|error| error.to_string())?;
        places.extend(fed.began);
        let mut body = Body::default();
        for record in fed.records {
            if !body.push(&record.payload) {
                // The next read starts there again.
                break;
            }
            places.insert(record.partition, record.position.saturating_add(1));
        }
        Ok(FetchedPage {
            events: body.finish(),
            cursor: text(&places),
        })
    }
}

fn read(cursor: &str) -> Option<Places> {
    let one = |text: &str| {
        let (partition, position) = text.split_once(':')?;
        Some((partition.parse().ok()?, position.parse().ok()?))
    };
    let all = cursor.split(',').filter(|text| !text.is_empty());
    all.map(one).collect()
}

fn text(places: &Places) -> String {
    let one = |(partition, position): (&u16, &u64)| format!("{partition}:{position}");
    let all: Vec<String> = places.iter().map(one).collect();
    all.join(",")
}

impl Source for TopicSource {
    fn fetch<'a>(&'a self, cursor: &'a str) -> Fetching<'a> {
        Box::pin(self.fetch_from(cursor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_round_trips() {
        let places = Places::from([(0, 17), (1, u64::MAX), (999, 0)]);
        assert_eq!(text(&places), "0:17,1:18446744073709551615,999:0");
        assert_eq!(read(&text(&places)), Some(places));
        assert_eq!(read(""), Some(Places::new()));
        for bad in ["7", "a:1", "1:a", "70000:1", "at 7"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
