//! Buffers a gateway's clicks until the statistics receive them.
//!
//! Clicks with equal properties share a row. At intervals the rows become a batch, whose ID stays the same on each
//! retry. A crash loses the clicks since the last batch and all batches that were not delivered.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::agent::{Agent, Language, agent_hash};
use super::cache::LinkName;
use super::click::{
    BATCH_ROWS_MAX, BatchId, MINUTE_MS, Row, client_address, encode, referrer_host,
};
use weir_base::hash::{seeded_hash, seeded_hash_of};

/// A click.
#[derive(Clone, Copy, Debug)]
pub struct Click<'a> {
    /// What was clicked.
    pub link: &'a LinkName,
    /// When, in milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// The client address, with or without a port; other text counts as unknown.
    pub address: &'a [u8],
    /// Its `User-Agent`.
    pub user_agent: &'a [u8],
    /// Its `Referer`.
    pub referer: &'a [u8],
    /// Its `Accept-Language`.
    pub accept_language: &'a [u8],
}

/// A batch to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The ID.
    pub id: BatchId,
    /// The encoded rows.
    pub payload: Vec<u8>,
    /// The number of clicks.
    pub clicks: u64,
}

/// Maximum number of cached user agents. When it is exceeded, the cache is cleared.
const AGENTS_MAX: usize = 1_024;

/// The clicks of one virtual machine.
#[derive(Debug)]
pub struct ClickBuffer {
    counter: u64,
    sequence: u64,
    batches_max: usize,
    /// Rows by a hash of all their properties.
    rows: BTreeMap<u64, Row>,
    /// Parsed user agents by hash. There are few, and parsing searches the text for dozens of words.
    agents: BTreeMap<u64, Agent>,
    waiting: VecDeque<Batch>,
    /// The batch in flight, until its delivery is confirmed.
    sent: Option<Batch>,
    dropped: u64,
}

impl ClickBuffer {
    /// Creates a buffer with a unique name that keeps at most `batches_max` batches.
    pub fn new(unique_name: &str, batches_max: usize) -> Self {
        Self {
            counter: seeded_hash(0, unique_name.as_bytes()),
            sequence: 0,
            batches_max,
            rows: BTreeMap::new(),
            agents: BTreeMap::new(),
            waiting: VecDeque::new(),
            sent: None,
            dropped: 0,
        }
    }

    /// Counts a click. Enough rows become a batch.
    pub fn count(&mut self, click: &Click<'_>) {
        let key = key(self.counter, click);
        if let Some(row) = self.rows.get_mut(&key) {
            row.clicks = row.clicks.saturating_add(1);
            row.last_ms = row.last_ms.max(click.now_ms);
            return;
        }
        let agent = self.agent(click.user_agent);
        let Some(row) = row(click, agent) else {
            return;
        };
        self.rows.insert(key, row);
        if self.rows.len() >= BATCH_ROWS_MAX {
            self.close();
        }
    }

    fn agent(&mut self, user_agent: &[u8]) -> Agent {
        let key = seeded_hash(self.counter, user_agent);
        if let Some(existing) = self.agents.get(&key) {
            return *existing;
        }
        if self.agents.len() >= AGENTS_MAX {
            self.agents.clear();
        }
        let agent = Agent::read(user_agent);
        self.agents.insert(key, agent);
        agent
    }

    /// Turns the rows into a batch. If too many batches wait, the oldest is dropped.
    pub fn close(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let rows: Vec<Row> = core::mem::take(&mut self.rows).into_values().collect();
        let id = BatchId {
            counter: self.counter,
            sequence: self.sequence,
        };
        self.sequence += 1;
        self.waiting.push_back(Batch {
            id,
            payload: encode(&rows),
            clicks: rows.iter().map(|row| u64::from(row.clicks)).sum(),
        });
        while self.waiting.len() > self.batches_max {
            let oldest = self.waiting.pop_front();
            self.dropped += oldest.map_or(0, |batch| batch.clicks);
        }
    }

    /// The batch to send, unless one is in flight. It stays in the buffer until [`ClickBuffer::arrived`] or
    /// [`ClickBuffer::failed`] is called.
    pub fn send_next(&mut self) -> Option<&Batch> {
        if self.sent.is_some() {
            return None;
        }
        self.sent = self.waiting.pop_front();
        self.sent.as_ref()
    }

    /// Confirms the batch in flight. Returns its number of clicks.
    pub fn arrived(&mut self) -> u64 {
        self.sent.take().map_or(0, |batch| batch.clicks)
    }

    /// The delivery of the batch in flight failed or is uncertain. The batch is sent again under the same ID.
    pub fn failed(&mut self) {
        if let Some(batch) = self.sent.take() {
            self.waiting.push_front(batch);
        }
    }

    /// The number of clicks dropped since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        core::mem::take(&mut self.dropped)
    }

    /// Whether no clicks are waiting for delivery.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.waiting.is_empty() && self.sent.is_none()
    }
}

/// A hash of all properties of a row. Clicks with equal hashes share a row.
fn key(seed: u64, click: &Click<'_>) -> u64 {
    let parts = [
        click.link.as_bytes(),
        without_port(click.address),
        click.user_agent,
        click.referer,
        click.accept_language,
    ];
    seeded_hash_of(seed ^ (click.now_ms / MINUTE_MS), parts)
}

/// The address without its port, if it has one: `1.2.3.4:5`, `[2001:db8::1]:5`.
fn without_port(address: &[u8]) -> &[u8] {
    let mut colons = address
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b':');
    let end = match (address.first(), colons.next(), colons.next_back()) {
        (Some(b'['), _, Some((last, _))) => last,
        (_, Some((only, _)), None) => only,
        _ => address.len(),
    };
    address.get(..end).unwrap_or(address)
}

fn row(click: &Click<'_>, agent: Agent) -> Option<Row> {
    Some(Row {
        link: click.link.to_link()?,
        minute_ms: click.now_ms - click.now_ms % MINUTE_MS,
        last_ms: click.now_ms,
        clicks: 1,
        address: client_address(click.address),
        agent_hash: agent_hash(click.user_agent),
        agent,
        referrer: referrer_host(click.referer),
        language: Language::preferred(click.accept_language).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::click::decode;
    use crate::code::LinkId;
    use alloc::format;

    fn name() -> LinkName {
        LinkName::from(&"s/aZ3k9Qx".parse::<LinkId>().unwrap())
    }

    fn click<'a>(link: &'a LinkName, address: &'a [u8]) -> Click<'a> {
        Click {
            link,
            now_ms: 1_700_000_041_234,
            address,
            user_agent: b"Mozilla/5.0 (Windows NT 10.0) Firefox/132.0",
            referer: b"https://A.example/page",
            accept_language: b"zh-CN",
        }
    }

    fn batches(click_buffer: &mut ClickBuffer) -> Vec<(BatchId, Vec<Row>)> {
        let mut all = Vec::new();
        while let Some(batch) = click_buffer.send_next() {
            all.push((batch.id, decode(&batch.payload).unwrap()));
            click_buffer.arrived();
        }
        all
    }

    #[test]
    fn equal_clicks_share_one_row() {
        let (mut click_buffer, name) = (ClickBuffer::new("vm-1", 10), name());
        for address in [&b"1.2.3.4:1"[..], b"1.2.3.4:2", b"1.2.3.5:1", b"/socket"] {
            click_buffer.count(&click(&name, address));
        }
        click_buffer.count(&Click {
            now_ms: 1_700_000_100_000,
            ..click(&name, b"1.2.3.4:3")
        });
        click_buffer.close();
        let all = batches(&mut click_buffer);
        let [(id, rows)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(id.sequence, 0);
        assert_ne!(id.counter, ClickBuffer::new("vm-2", 10).counter);
        let mut observed: Vec<_> = rows
            .iter()
            .map(|row| (row.minute_ms, format!("{:?}", row.address), row.clicks))
            .collect();
        observed.sort();
        let some = |text: &str| format!("Some({text})");
        assert_eq!(
            observed,
            [
                (1_700_000_040_000, "None".into(), 1),
                (1_700_000_040_000, some("1.2.3.4"), 2),
                (1_700_000_040_000, some("1.2.3.5"), 1),
                (1_700_000_100_000, some("1.2.3.4"), 1),
            ]
        );
        assert_eq!(rows[0].referrer, "a.example");
        assert_eq!(rows[0].language.as_str(), "zh-CN");
        assert_eq!(rows[0].link, "s/aZ3k9Qx".parse().unwrap());
    }

    #[test]
    fn agents_are_distinguished_and_floods_use_bounded_memory() {
        let (mut click_buffer, name) = (ClickBuffer::new("vm-1", 10), name());
        let phone = b"Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) Mobile/15E148";
        let agents = [&b"curl/8.0"[..], phone, b"curl/8.0", phone];
        for (address, user_agent) in [&b"1.2.3.1"[..], b"1.2.3.2", b"1.2.3.3", b"1.2.3.4"]
            .into_iter()
            .zip(agents)
        {
            click_buffer.count(&Click {
                user_agent,
                ..click(&name, address)
            });
        }
        assert_eq!(click_buffer.agents.len(), 2, "each is read once");
        click_buffer.close();
        let all = batches(&mut click_buffer);
        let [(_, rows)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(rows.len(), 4);
        for row in rows {
            let expected = agents.map(|agent| (agent_hash(agent), Agent::read(agent)));
            assert!(expected.contains(&(row.agent_hash, row.agent)), "{row:?}");
        }
        for number in 0..2 * AGENTS_MAX {
            let user_agent = format!("agent {number}");
            click_buffer.count(&Click {
                user_agent: user_agent.as_bytes(),
                ..click(&name, b"")
            });
        }
        assert!(click_buffer.agents.len() <= AGENTS_MAX);
    }

    /// The same text in two different headers gives different rows.
    #[test]
    fn clicks_with_any_difference_get_separate_rows() {
        let name = name();
        let other = LinkName::from(&"s/aZ3k9Qy".parse::<LinkId>().unwrap());
        let nothing = Click {
            user_agent: b"",
            referer: b"",
            accept_language: b"",
            ..click(&name, b"")
        };
        let word = b"en";
        let minute_ms = MINUTE_MS;
        let clicks = [
            nothing,
            Click {
                link: &other,
                ..nothing
            },
            Click {
                address: word,
                ..nothing
            },
            Click {
                user_agent: word,
                ..nothing
            },
            Click {
                referer: word,
                ..nothing
            },
            Click {
                accept_language: word,
                ..nothing
            },
            Click {
                now_ms: nothing.now_ms + minute_ms,
                ..nothing
            },
            Click {
                now_ms: nothing.now_ms - minute_ms,
                ..nothing
            },
        ];
        let mut click_buffer = ClickBuffer::new("vm-1", 10);
        assert!(click_buffer.is_empty());
        for click in clicks.iter().chain(&clicks) {
            click_buffer.count(click);
        }
        assert!(!click_buffer.is_empty());
        assert_eq!(click_buffer.rows.len(), clicks.len());
        assert!(click_buffer.rows.values().all(|row| row.clicks == 2));
        click_buffer.close();
        assert!(!click_buffer.is_empty());
        assert_eq!(click_buffer.send_next().unwrap().clicks, 16);
    }

    #[test]
    fn clicks_are_grouped_by_the_minute() {
        let (mut click_buffer, name) = (ClickBuffer::new("vm-1", 10), name());
        let minutes = (0..64).map(|minute| minute * MINUTE_MS);
        for minute_ms in minutes.clone() {
            for ms in [0, 1, MINUTE_MS - 1] {
                let now_ms = minute_ms + ms;
                click_buffer.count(&Click {
                    now_ms,
                    ..click(&name, b"")
                });
            }
        }
        let rows = click_buffer.rows.values();
        assert!(rows.clone().all(|row| row.clicks == 3));
        let mut observed: Vec<_> = rows.map(|row| row.minute_ms).collect();
        observed.sort_unstable();
        assert!(observed.into_iter().eq(minutes));
    }

    #[test]
    fn only_the_port_is_removed_from_an_address() {
        let check = |address: &str, expected: &str| {
            assert_eq!(without_port(address.as_bytes()), expected.as_bytes());
        };
        check("1.2.3.4:5", "1.2.3.4");
        check("1.2.3.4", "1.2.3.4");
        check("[2001:db8::1]:5", "[2001:db8::1]");
        check("2001:db8::1", "2001:db8::1");
        check("::1", "::1");
        check("", "");
    }

    #[test]
    fn unconfirmed_batch_is_resent_with_the_same_id() {
        let (mut click_buffer, name) = (ClickBuffer::new("vm-1", 10), name());
        click_buffer.count(&click(&name, b""));
        assert_eq!(click_buffer.send_next(), None);
        click_buffer.close();
        let first = click_buffer.send_next().cloned().unwrap();
        assert_eq!(click_buffer.send_next(), None); // one at a time
        click_buffer.count(&click(&name, b""));
        click_buffer.close();
        click_buffer.failed();
        assert_eq!(click_buffer.send_next(), Some(&first));
        assert_eq!(click_buffer.arrived(), 1);
        assert_eq!(click_buffer.send_next().unwrap().id.sequence, 1);
        assert!(!click_buffer.is_empty());
        click_buffer.arrived();
        assert!(click_buffer.is_empty());
    }

    #[test]
    fn flood_of_rows_keeps_memory_and_batches_bounded() {
        let (mut click_buffer, name) = (ClickBuffer::new("vm-1", 3), name());
        for number in 0..10 * BATCH_ROWS_MAX {
            let address = format!("1.2.{}.{}:1", number / 256, number % 256);
            click_buffer.count(&click(&name, address.as_bytes()));
        }
        assert_eq!(
            (click_buffer.waiting.len(), click_buffer.rows.len()),
            (3, 0)
        );
        assert_eq!(click_buffer.take_dropped(), 7 * BATCH_ROWS_MAX as u64);
        assert_eq!(click_buffer.take_dropped(), 0);
        let retained: Vec<_> = batches(&mut click_buffer)
            .into_iter()
            .map(|(id, _)| id.sequence)
            .collect();
        assert_eq!(retained, [7, 8, 9]);
    }
}
