//! Classifies clients by their request headers, for statistics only: it allows and denies nothing.

use alloc::string::String;

/// The number of bytes of a `User-Agent` or `Accept-Language` that are read; real ones are shorter.
pub const LOOKED_AT_MAX: usize = 512;

/// The headers with which browsers mark a prefetch: see [`is_prefetch`].
pub const PREFETCH_HEADERS: [&str; 4] = ["sec-purpose", "purpose", "x-purpose", "x-moz"];

/// Whether this value of one of [`PREFETCH_HEADERS`] marks a prefetch: `prefetch`, `prefetch;prerender`, `preview`.
pub fn is_prefetch(value: &[u8]) -> bool {
    let mut words = value.split(|byte| matches!(byte, b';' | b',' | b' '));
    words.any(|word| {
        let is = |existing: &str| word.eq_ignore_ascii_case(existing.as_bytes());
        is("prefetch") || is("prerender") || is("preview")
    })
}

/// The beginning of a `User-Agent`, in lower case, for a search for words.
#[derive(Debug)]
pub struct UserAgent(String);

/// Parts of the names of automated clients.
const BOTS: [&str; 30] = [
    "spider",
    "crawl",
    "slurp",
    "preview",
    "externalhit",
    "facebookcatalog",
    "meta-externalagent",
    "meta-externalfetcher",
    "headless",
    "whatsapp/",
    "embedly",
    "iframely",
    "vkshare",
    "w3c_validator",
    "kakaotalk-scrap",
    "snapchat ads",
    "pinterest/0.",
    "skypeuri",
    "google-pagerenderer",
    "google-inspectiontool",
    "mediapartners-google",
    "chrome-lighthouse",
    "bitlyapi",
    "flipboardproxy",
    "nuzzel",
    "mastodon/",
    "uptime",
    "pingdom",
    "statuscake",
    "monitoring",
];

/// Phones and apps with `bot` in their names.
const NO_BOTS: [&str; 1] = ["cubot"];

impl UserAgent {
    /// Takes the first [`LOOKED_AT_MAX`] bytes of a `User-Agent`.
    pub fn new(header: &[u8]) -> Self {
        let looked_at = header.iter().take(LOOKED_AT_MAX);
        let lower = looked_at.map(|byte| match byte.is_ascii() {
            true => char::from(byte.to_ascii_lowercase()),
            false => '?',
        });
        Self(lower.collect())
    }

    /// Whether it contains one of `words`.
    pub fn has(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.0.contains(word))
    }

    /// Whether it belongs to an automated client: a crawler, a link preview, a monitor. Most such clients have `bot` at
    /// the end of a word: `Googlebot/2.1`, `Slackbot-LinkExpanding`. The browser of an app names the app, too
    /// (`WhatsApp` on a phone), but its `User-Agent` begins with `Mozilla`.
    pub fn is_bot(&self) -> bool {
        let Self(lower) = self;
        let ends_word = |end: usize| {
            let next = lower.as_bytes().get(end);
            next.is_none_or(|byte| !byte.is_ascii_alphabetic())
        };
        let is_one = |at: usize| {
            let end = at + "bot".len();
            let word = lower.get(..end).unwrap_or_default();
            ends_word(end) && !NO_BOTS.iter().any(|name| word.ends_with(name))
        };
        let is_named = lower.match_indices("bot").any(|(at, _)| is_one(at));
        let is_app = lower.starts_with("mozilla/") && lower.contains("whatsapp/");
        is_named || (self.has(&BOTS) && !is_app)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_come_by_themselves_are_bots() {
        let is_bot = |header: &[u8]| UserAgent::new(header).is_bot();
        for bot in [
            "Googlebot/2.1",
            "Slackbot-LinkExpanding 1.0",
            "WhatsApp/2.23",
            "my crawler",
        ] {
            assert!(is_bot(bot.as_bytes()), "{bot}");
        }
        for other in [
            "",
            "curl/8.5",
            "Mozilla/5.0 (Linux; CUBOT X50)",
            "Mozilla/5.0 (iPhone) WhatsApp/2.23",
            "robotics",
        ] {
            assert!(!is_bot(other.as_bytes()), "{other}");
        }
        assert!(!is_bot(&[0xff; 10_000]));
    }

    #[test]
    fn prefetch_is_detected_by_a_token_in_its_header() {
        for value in ["prefetch", "prefetch;prerender", "Preview", "a, prerender"] {
            assert!(is_prefetch(value.as_bytes()), "{value}");
        }
        for value in ["", "prefetched", "fetch"] {
            assert!(!is_prefetch(value.as_bytes()), "{value}");
        }
    }
}
