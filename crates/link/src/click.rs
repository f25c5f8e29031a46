//! Clicks on their way from gateways to the statistics. Gateways count them and send them in batches.
//!
//! A batch has a unique ID. The statistics count each ID once, however often it is delivered. Its payload is JSON:
//!
//! ```text
//! {"v":1,"r":[["s/aZ3k9Qx",1700000040000,3,"203.0.113.7","00d1…",  "mobile","ios","safari","a.example","zh",    1234]]}
//!              link        minute        n address       user agent device   os    browser  referrer    language last
//! ```
//!
//! `last` is the last click's time within the minute, in milliseconds. Older gateways omit it.
//!
//! Only batches contain addresses in the clear. The reader hashes them and deletes the batch.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::agent::{Agent, Browser, Device, Language, Os};
use super::code::LinkId;

/// Maximum rows of a batch. It keeps a batch below 200 kB, which does not delay Redis.
pub const BATCH_ROWS_MAX: usize = 512;

/// Maximum length of a payload, in bytes: longer than any batch of [`BATCH_ROWS_MAX`] rows.
pub const PAYLOAD_LEN_MAX: usize = 1 << 20;

/// Maximum length of a referrer's host, in bytes. A longer one counts as empty.
pub const REFERRER_LEN_MAX: usize = 64;

/// Length of a counting interval, in milliseconds.
pub const MINUTE_MS: u64 = 60_000;

/// The version of the payload.
const VERSION: u32 = 1;

/// The ID of a batch: the virtual machine that counted it, and a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    /// A random number that identifies the virtual machine.
    pub counter: u64,
    /// The sequence number of the batch.
    pub sequence: u64,
}

/// Clicks with equal properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was clicked.
    pub link: LinkId,
    /// The minute's start, in milliseconds since the Unix epoch.
    pub minute_ms: u64,
    /// The time of the last one, in milliseconds since the Unix epoch; the end of the minute if the gateway omits it.
    pub last_ms: u64,
    /// The number of clicks: at least 1.
    pub clicks: u32,
    /// The client address, if it could be parsed.
    pub address: Option<IpAddr>,
    /// The hash of the `User-Agent`: [`agent_hash`](super::agent::agent_hash).
    pub agent_hash: u64,
    /// The client that the `User-Agent` describes.
    pub agent: Agent,
    /// The host of the referring page, in lower case; empty if there is none.
    pub referrer: String,
    /// The preferred language; empty by default.
    pub language: Language,
}

/// Why a batch is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClickError {
    /// The ID does not consist of two numbers.
    #[error("the id is not <16 hexadecimal digits>-<number>")]
    Id,
    /// Longer than [`PAYLOAD_LEN_MAX`], or with more than [`BATCH_ROWS_MAX`] rows.
    #[error("the batch is too long")]
    TooLong,
    /// The version is unknown.
    #[error("unsupported batch version {0}")]
    Version(u32),
    /// The payload is not the JSON of a batch.
    #[error("invalid batch JSON: {0}")]
    Json(String),
    /// This row contains values that no gateway writes.
    #[error("row {0} is invalid")]
    Row(usize),
}

/// The ID of one click on a link with a click limit. Retries with the same ID use one click.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClickId {
    /// A random number that identifies the requester.
    pub counter: u64,
    /// The sequence number of the click.
    pub sequence: u64,
}

impl fmt::Display for ClickId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { counter, sequence } = *self;
        BatchId { counter, sequence }.fmt(f)
    }
}

impl FromStr for ClickId {
    type Err = ClickError;

    fn from_str(text: &str) -> Result<Self, ClickError> {
        let BatchId { counter, sequence } = text.parse()?;
        Ok(Self { counter, sequence })
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.counter, self.sequence)
    }
}

impl FromStr for BatchId {
    type Err = ClickError;

    fn from_str(text: &str) -> Result<Self, ClickError> {
        let read = || {
            let (counter, sequence) = text.split_once('-')?;
            let id = Self {
                counter: u64::from_str_radix(counter, 16).ok()?,
                sequence: sequence.parse().ok()?,
            };
            // Each ID has one spelling; otherwise a batch could count twice.
            (id.to_string() == text).then_some(id)
        };
        read().ok_or(ClickError::Id)
    }
}

#[derive(Serialize, Deserialize)]
struct Payload {
    #[serde(rename = "v")]
    version: u32,
    #[serde(rename = "r")]
    rows: Vec<Columns>,
}

/// A row as it is written.
#[derive(Serialize, Deserialize)]
struct Columns(
    String,
    u64,
    u32,
    String,
    String,
    Device,
    Os,
    Browser,
    String,
    String,
    #[serde(default = "end_of_minute")] u64,
);

/// For rows of older gateways, which omit the last click's time.
const fn end_of_minute() -> u64 {
    MINUTE_MS - 1
}

/// The payload of a batch.
pub fn encode(rows: &[Row]) -> Vec<u8> {
    let payload = Payload {
        version: VERSION,
        rows: rows.iter().map(Columns::from).collect(),
    };
    // Strings, numbers and lists always serialize.
    serde_json::to_vec(&payload).unwrap_or_default()
}

/// Parses the payload of a batch.
///
/// # Errors
/// If the payload is invalid.
pub fn decode(payload: &[u8]) -> Result<Vec<Row>, ClickError> {
    if payload.len() > PAYLOAD_LEN_MAX {
        return Err(ClickError::TooLong);
    }
    let payload: Payload =
        serde_json::from_slice(payload).map_err(|error| ClickError::Json(format!("{error}")))?;
    if payload.version != VERSION {
        return Err(ClickError::Version(payload.version));
    }
    if payload.rows.len() > BATCH_ROWS_MAX {
        return Err(ClickError::TooLong);
    }
    let rows = payload.rows.into_iter().enumerate();
    rows.map(|(index, columns)| columns.read().ok_or(ClickError::Row(index)))
        .collect()
}

impl From<&Row> for Columns {
    fn from(row: &Row) -> Self {
        let address = row.address.map(|address| address.to_string());
        Self(
            row.link.to_string(),
            row.minute_ms,
            row.clicks,
            address.unwrap_or_default(),
            format!("{:016x}", row.agent_hash),
            row.agent.device,
            row.agent.os,
            row.agent.browser,
            row.referrer.clone(),
            row.language.to_string(),
            row.last_ms % MINUTE_MS,
        )
    }
}

impl Columns {
    fn read(self) -> Option<Row> {
        let Self(
            link,
            minute_ms,
            clicks,
            address,
            agent_hash,
            device,
            os,
            browser,
            referrer,
            language,
            last_ms,
        ) = self;
        let is_time = minute_ms % MINUTE_MS == 0 && last_ms < MINUTE_MS;
        let is_right = clicks > 0 && is_time && is_host(&referrer);
        if !is_right {
            return None;
        }
        Some(Row {
            link: link.parse().ok()?,
            minute_ms,
            last_ms: minute_ms.checked_add(last_ms)?,
            clicks,
            address: match address.as_str() {
                "" => None,
                address => Some(address.parse().ok()?),
            },
            agent_hash: u64::from_str_radix(&agent_hash, 16).ok()?,
            agent: Agent {
                device,
                os,
                browser,
            },
            referrer,
            language: match language.as_str() {
                "" => Language::default(),
                language => Language::new(language.as_bytes())?,
            },
        })
    }
}

/// Whether `text` is empty or a valid host for a row.
fn is_host(text: &str) -> bool {
    text.len() <= REFERRER_LEN_MAX && text.bytes().all(is_of_host)
}

fn is_of_host(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'[' | b']' | b':')
}

/// The query parameter of a link's QR code. It identifies scans, which have no referrer.
pub const SCAN_MARKER: &str = "qr";

/// The referrer recorded for QR code scans. No host of a page has this name.
pub const SCANNED: &str = "qr";

/// The `Referer` to record for a click with this query: the page's, or else the marker of a scan.
pub fn referer_of<'a>(referer: &'a [u8], query: &[u8]) -> &'a [u8] {
    match referer.is_empty() && is_scan(query) {
        true => b"scan://qr",
        false => referer,
    }
}

/// Whether a query contains the marker of a QR code.
pub fn is_scan(query: &[u8]) -> bool {
    let mut parameters = query.split(|byte| *byte == b'&');
    parameters.any(|parameter| parameter == SCAN_MARKER.as_bytes())
}

/// The host in a `Referer`, in lower case and without its port; empty if it is missing or invalid.
pub fn referrer_host(referer: &[u8]) -> String {
    let host = authority(referer).and_then(without_port);
    let host = host.filter(|host| host.len() <= REFERRER_LEN_MAX);
    let lower = host.map(|host| host.to_ascii_lowercase());
    lower
        .and_then(|host| String::from_utf8(host).ok())
        .filter(|host| is_host(host))
        .unwrap_or_default()
}

/// The text between `//` and the next `/`, `?` or `#`, without user information.
fn authority(url: &[u8]) -> Option<&[u8]> {
    let start = url.windows(3).take(16).position(|three| three == b"://")?;
    let rest = url.get(start + 3..)?;
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let authority = rest.get(..end.unwrap_or(rest.len()))?;
    let at = authority.iter().rposition(|byte| *byte == b'@');
    authority.get(at.map_or(0, |at| at + 1)..)
}

fn without_port(authority: &[u8]) -> Option<&[u8]> {
    let colon = authority.iter().rposition(|byte| *byte == b':');
    let Some(colon) = colon else {
        return Some(authority);
    };
    let (host, port) = authority.split_at_checked(colon)?;
    // The last colon of an IPv6 address in brackets may belong to the address.
    let is_port = port.iter().skip(1).all(u8::is_ascii_digit);
    Some(if is_port { host } else { authority })
}

/// The address in Envoy's `source.address`: `1.2.3.4:5`, `[2001:db8::1]:5`, or without a port. `None` for other text,
/// such as the path of a socket.
pub fn client_address(text: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(text).ok()?;
    let with_port = text.parse::<SocketAddr>().map(|socket| socket.ip());
    with_port
        .or_else(|_| text.parse::<IpAddr>())
        .map(|address| address.to_canonical())
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn row() -> Row {
        Row {
            link: "s/aZ3k9Qx".parse().unwrap(),
            minute_ms: 1_700_000_040_000,
            last_ms: 1_700_000_041_234,
            clicks: 3,
            address: Some("203.0.113.7".parse().unwrap()),
            agent_hash: 0xd1,
            agent: Agent {
                device: Device::Mobile,
                os: Os::Ios,
                browser: Browser::Safari,
            },
            referrer: "a.example".into(),
            language: Language::new(b"zh").unwrap(),
        }
    }

    #[test]
    fn click_batch_is_encoded_as_in_the_contract() {
        assert_eq!(
            String::from_utf8(encode(&[row()])).unwrap(),
            r#"{"v":1,"r":[["s/aZ3k9Qx",1700000040000,3,"203.0.113.7","00000000000000d1","mobile","ios","safari","a.example","zh",1234]]}"#
        );
    }

    #[test]
    fn row_without_a_last_time_ends_with_its_minute() {
        let text = String::from_utf8(encode(&[row()])).unwrap();
        let older = text.replace(",1234]", "]");
        let last_ms = row().minute_ms + 59_999;
        assert_eq!(decode(older.as_bytes()), Ok(vec![Row { last_ms, ..row() }]));
    }

    #[test]
    fn invalid_click_batch_is_rejected() {
        let with = |old: &str, new: &str| {
            let text = String::from_utf8(encode(&[row(), row()])).unwrap();
            assert!(text.contains(old), "{old}");
            decode(text.replacen(old, new, 1).as_bytes())
        };
        assert_eq!(with("\"v\":1", "\"v\":2"), Err(ClickError::Version(2)));
        for (old, new) in [
            ("s/aZ3k9Qx", "s/a"),
            (",3,", ",0,"),
            ("1700000040000", "1700000040001"),
            ("203.0.113.7", "203.0.113"),
            ("00000000000000d1", "x"),
            ("a.example", "A.example"),
            ("\"zh\"", "\"z\""),
            (",1234]", ",60000]"),
        ] {
            assert_eq!(with(old, new), Err(ClickError::Row(0)), "{new}");
        }
        assert!(matches!(with(",3,", ",-3,"), Err(ClickError::Json(_))));
        let many = encode(&vec![row(); BATCH_ROWS_MAX + 1]);
        assert_eq!(decode(&many), Err(ClickError::TooLong));
        let long = vec![b' '; PAYLOAD_LEN_MAX + 1];
        assert_eq!(decode(&long), Err(ClickError::TooLong));
        assert!(matches!(decode(&long[1..]), Err(ClickError::Json(_))));
        assert_eq!(PAYLOAD_LEN_MAX, 1_048_576);
    }

    #[test]
    fn agent_labels_of_a_later_version_are_read_as_other() {
        let text = String::from_utf8(encode(&[row()])).unwrap();
        let text = text
            .replace("mobile", "watch")
            .replace("safari", "ladybird");
        let [read] = &decode(text.as_bytes()).unwrap()[..] else {
            panic!("one row");
        };
        assert_eq!(read.agent.device, Device::Other);
        assert_eq!(read.agent.browser, Browser::Other);
    }

    #[test]
    fn largest_click_batch_is_accepted() {
        let largest = Row {
            link: alloc::format!("{}/{}", "d".repeat(16), "c".repeat(32))
                .parse()
                .unwrap(),
            minute_ms: u64::MAX / MINUTE_MS * MINUTE_MS,
            last_ms: u64::MAX,
            clicks: u32::MAX,
            address: Some("1111:2222:3333:4444:5555:6666:7777:8888".parse().unwrap()),
            agent_hash: u64::MAX,
            referrer: "r".repeat(REFERRER_LEN_MAX),
            language: Language::new(b"abcdefgh-Abcd-123").unwrap(),
            ..row()
        };
        let rows = vec![largest; BATCH_ROWS_MAX];
        let payload = encode(&rows);
        assert!(payload.len() < 200_000, "{}", payload.len());
        assert_eq!(decode(&payload), Ok(rows));
    }

    #[test]
    fn batch_id_has_one_spelling() {
        let id = BatchId {
            counter: 0xab,
            sequence: 12,
        };
        assert_eq!(id.to_string(), "00000000000000ab-12");
        assert_eq!("00000000000000ab-12".parse(), Ok(id));
        for bad in [
            "",
            "-",
            "ab-12",
            "00000000000000AB-12",
            "00000000000000ab-012",
            "00000000000000ab-+1",
        ] {
            assert_eq!(bad.parse::<BatchId>(), Err(ClickError::Id), "{bad}");
        }
    }

    #[test]
    fn click_id_has_the_same_format_as_a_batch_id() {
        let id = ClickId {
            counter: 0xab,
            sequence: 12,
        };
        assert_eq!(id.to_string(), "00000000000000ab-12");
        assert_eq!("00000000000000ab-12".parse(), Ok(id));
        assert_eq!("ab-12".parse::<ClickId>(), Err(ClickError::Id));
    }

    #[test]
    fn scan_is_detected_by_its_marker_without_a_referrer() {
        for (referer, query, expected) in [
            ("", "qr", SCANNED),
            ("", "a=b&qr&c", SCANNED),
            ("", "qr=1", ""),
            ("", "xqr", ""),
            ("", "", ""),
            ("https://a.example/", "qr", "a.example"),
        ] {
            let referer = referer_of(referer.as_bytes(), query.as_bytes());
            assert_eq!(referrer_host(referer), expected, "{query}");
        }
    }

    #[test]
    fn referrer_is_reduced_to_its_host() {
        let check = |referer: &str, expected: &str| {
            assert_eq!(referrer_host(referer.as_bytes()), expected, "{referer}");
        };
        check("https://A.Example/b?c", "a.example");
        check("http://a.example:8080", "a.example");
        check("https://u:p@a.example:1/", "a.example");
        check("https://[2001:DB8::1]:443/", "[2001:db8::1]");
        check("https://[2001:db8::1]/", "[2001:db8::1]");
        check("android-app://com.example/", "com.example");
        check("https://a.example?b=/c", "a.example");
        check("https://a.example#b", "a.example");
        check("https://a.example:x/", "a.example:x");
        check("fifteen-letters://a/", "a");
        check("sixteen--letters://a/", "");
        let longest = "a".repeat(64);
        check(&alloc::format!("https://{longest}/"), &longest);
        for none in [
            "",
            "about:blank",
            "a.example",
            "https://",
            "https://a b/",
            "https://ä.example/",
        ] {
            check(none, "");
        }
        check(&alloc::format!("https://{}/", "a".repeat(65)), "");
    }

    #[test]
    fn address_is_parsed_with_and_without_a_port() {
        let check = |text: &str, expected: &str| {
            let address = client_address(text.as_bytes()).map(|address| address.to_string());
            assert_eq!(address.unwrap_or_default(), expected, "{text}");
        };
        check("1.2.3.4:5", "1.2.3.4");
        check("[::ffff:1.2.3.4]:5", "1.2.3.4");
        check("[2001:db8::1]:5", "2001:db8::1");
        check("2001:db8::1", "2001:db8::1");
        check("/tmp/socket", "");
    }

    proptest! {
        #[test]
        fn no_bytes_panic_the_readers(bytes: Vec<u8>) {
            let _ = decode(&bytes);
            let _ = client_address(&bytes);
            prop_assert!(is_host(&referrer_host(&bytes)));
        }

        #[test]
        fn every_click_row_round_trips(
            clicks in 1..u32::MAX, minute in 0..1_u64 << 40, last in 0..MINUTE_MS, address: Option<IpAddr>, hash: u64
        ) {
            let minute_ms = minute * MINUTE_MS;
            let row = Row { clicks, minute_ms, last_ms: minute_ms + last, address, agent_hash: hash, ..row() };
            prop_assert_eq!(decode(&encode(core::slice::from_ref(&row))), Ok(vec![row]));
        }
    }
}
