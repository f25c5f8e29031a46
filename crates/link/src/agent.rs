//! Who clicks: device, system and browser by `User-Agent`, language by `Accept-Language`.
//!
//! Both headers say what the client likes to say: good enough to count, and to choose a page that the
//! client may choose itself; nothing is allowed or denied by them.

use alloc::string::String;
use core::fmt;

use super::record::Platform;
use weir_base::hash::seeded_hash;

/// So many bytes of a `User-Agent` or `Accept-Language` are looked at; real ones are shorter.
const LOOKED_AT_MAX: usize = 512;

words! {
    /// What kind of device.
    pub enum Device {
        /// A computer.
        Desktop = "desktop",
        /// A phone.
        Mobile = "mobile",
        /// A tablet.
        Tablet = "tablet",
        /// A program that nobody looks at: a crawler, a link preview, a script.
        Bot = "bot",
        /// None of these, or not known.
        #[serde(other)]
        Other = "other",
    }
}

words! {
    /// Which operating system.
    pub enum Os {
        /// Windows.
        Windows = "windows",
        /// macOS; iPads that ask for desktop pages say this, too.
        Macos = "macos",
        /// Linux, other than Android.
        Linux = "linux",
        /// iOS and iPadOS.
        Ios = "ios",
        /// Android.
        Android = "android",
        /// None of these, or not known.
        #[serde(other)]
        Other = "other",
    }
}

words! {
    /// Which browser.
    pub enum Browser {
        /// Chrome and Chromium.
        Chrome = "chrome",
        /// Safari.
        Safari = "safari",
        /// Firefox.
        Firefox = "firefox",
        /// Edge.
        Edge = "edge",
        /// The browser within WeChat.
        Wechat = "wechat",
        /// None of these, or not known.
        #[serde(other)]
        Other = "other",
    }
}

/// What a `User-Agent` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Agent {
    /// The device.
    pub device: Device,
    /// Its system.
    pub os: Os,
    /// The browser.
    pub browser: Browser,
}

/// What none at all tells.
pub const UNKNOWN: Agent = Agent {
    device: Device::Other,
    os: Os::Other,
    browser: Browser::Other,
};

impl Default for Agent {
    fn default() -> Self {
        UNKNOWN
    }
}

/// The words that a `User-Agent` is searched for, in lower case.
struct Text(String);

impl Text {
    fn new(header: &[u8]) -> Self {
        let looked_at = header.iter().take(LOOKED_AT_MAX);
        let lower = looked_at.map(|byte| match byte.is_ascii() {
            true => char::from(byte.to_ascii_lowercase()),
            false => '?',
        });
        Self(lower.collect())
    }

    fn has(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.0.contains(word))
    }
}

impl Agent {
    /// Reads a `User-Agent`, whatever it is.
    pub fn read(user_agent: &[u8]) -> Self {
        if user_agent.is_empty() {
            return UNKNOWN;
        }
        let text = Text::new(user_agent);
        let os = os(&text);
        Self {
            device: device(&text, os),
            os,
            browser: browser(&text),
        }
    }

    /// Whether it is one of `platform`'s.
    pub fn is(self, platform: Platform) -> bool {
        match platform {
            Platform::Ios => self.os == Os::Ios,
            Platform::Android => self.os == Os::Android,
            Platform::Wechat => self.browser == Browser::Wechat,
            Platform::Mobile => self.device == Device::Mobile,
            Platform::Tablet => self.device == Device::Tablet,
            Platform::Desktop => self.device == Device::Desktop,
            Platform::Any => true,
        }
    }
}

fn os(text: &Text) -> Os {
    // Windows Phone said that it was all of the others, too; Android says that it is Linux.
    if text.has(&["windows"]) {
        Os::Windows
    } else if text.has(&["iphone", "ipad", "ipod"]) {
        Os::Ios
    } else if text.has(&["android"]) {
        Os::Android
    } else if text.has(&["macintosh", "mac os x"]) {
        Os::Macos
    } else if text.has(&["linux", "x11", "cros"]) {
        Os::Linux
    } else {
        Os::Other
    }
}

fn device(text: &Text, os: Os) -> Device {
    const PROGRAMS: [&str; 12] = [
        "bot",
        "spider",
        "crawl",
        "slurp",
        "preview",
        "externalhit",
        "headless",
        "curl/",
        "wget/",
        "python",
        "go-http-client",
        "java/",
    ];
    if text.has(&PROGRAMS) {
        return Device::Bot;
    }
    match os {
        _ if text.has(&["ipad", "tablet"]) => Device::Tablet,
        Os::Android if !text.has(&["mobile"]) => Device::Tablet,
        Os::Ios | Os::Android => Device::Mobile,
        _ if text.has(&["mobile", "phone"]) => Device::Mobile,
        Os::Windows | Os::Macos | Os::Linux => Device::Desktop,
        Os::Other => Device::Other,
    }
}

fn browser(text: &Text) -> Browser {
    // Each says that it is those below it, too.
    if text.has(&["micromessenger"]) {
        Browser::Wechat
    } else if text.has(&["edg/", "edga/", "edgios/", "edge/"]) {
        Browser::Edge
    } else if text.has(&["firefox/", "fxios/"]) {
        Browser::Firefox
    } else if text.has(&[
        "opr/",
        "opera",
        "samsungbrowser/",
        "ucbrowser/",
        "yabrowser/",
    ]) {
        Browser::Other
    } else if text.has(&["chrome/", "crios/", "chromium/"]) {
        Browser::Chrome
    } else if text.has(&["safari/"]) {
        Browser::Safari
    } else {
        Browser::Other
    }
}

/// The hash by which visitors are told apart beside their address: the same at all gateways.
pub fn agent_hash(user_agent: &[u8]) -> u64 {
    seeded_hash(0, user_agent)
}

/// The primary subtag of a language, in lower case: 2 to 8 letters, such as `zh`; or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Language {
    letters: [u8; Self::LEN_MAX],
    length: u8,
}

impl Language {
    /// The most letters of a primary subtag (RFC 5646, 2.1).
    pub const LEN_MAX: usize = 8;

    /// The language whose primary subtag begins `tag`, as `zh` does `zh-Hans-CN`. None if that is none.
    pub fn new(tag: &[u8]) -> Option<Self> {
        let end = tag.iter().position(|byte| *byte == b'-');
        let subtag = tag.get(..end.unwrap_or(tag.len()))?;
        let is_one = (2..=Self::LEN_MAX).contains(&subtag.len())
            && subtag.iter().all(u8::is_ascii_alphabetic);
        if !is_one {
            return None;
        }
        let mut language = Self::default();
        for (letter, byte) in language.letters.iter_mut().zip(subtag) {
            *letter = byte.to_ascii_lowercase();
            language.length += 1;
        }
        Some(language)
    }

    /// The language that an `Accept-Language` likes best: the first of the greatest weight. None if it
    /// names none.
    pub fn preferred(accept_language: &[u8]) -> Option<Self> {
        let looked_at = accept_language.get(..LOOKED_AT_MAX);
        let ranges = looked_at
            .unwrap_or(accept_language)
            .split(|byte| *byte == b',');
        let mut best = None;
        let mut best_weight = 0;
        for range in ranges {
            let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let language = parts.next().and_then(Self::new);
            let weight = weight(parts.next());
            if language.is_some() && weight > best_weight {
                (best, best_weight) = (language, weight);
            }
        }
        best
    }

    /// The letters; none of no language.
    pub fn as_str(&self) -> &str {
        let letters = self.letters.get(..usize::from(self.length));
        // Only ASCII letters got in.
        core::str::from_utf8(letters.unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A weight in thousandths (RFC 9110, 12.4.2): 1,000 if there is none, 0 if it is none.
fn weight(parameter: Option<&[u8]>) -> u32 {
    let Some(parameter) = parameter else {
        return 1_000;
    };
    let value = match parameter {
        [b'q' | b'Q', b'=', value @ ..] => value,
        _ => return 0,
    };
    match value {
        [b'1', ..] => 1_000,
        [b'0', b'.', digits @ ..] => thousandths(digits),
        _ => 0,
    }
}

fn thousandths(digits: &[u8]) -> u32 {
    let digits = digits
        .iter()
        .take(3)
        .take_while(|byte| byte.is_ascii_digit());
    let (value, scale) = digits.fold((0, 1_000), |(value, scale), byte| {
        (value + u32::from(byte - b'0') * scale / 10, scale / 10)
    });
    debug_assert!(scale >= 1);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn user_agents_of_today_are_told_apart() {
        let check = |text: &str, device, os, browser| {
            let expected = Agent {
                device,
                os,
                browser,
            };
            assert_eq!(Agent::read(text.as_bytes()), expected, "{text}");
        };
        use Browser::{Chrome, Edge, Firefox, Safari, Wechat};
        use Device::{Bot, Desktop, Mobile, Tablet};
        check(
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
            Desktop,
            Os::Windows,
            Chrome,
        );
        check(
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36 Edg/131.0.0.0",
            Desktop,
            Os::Windows,
            Edge,
        );
        check(
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15",
            Desktop,
            Os::Macos,
            Safari,
        );
        check(
            "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0",
            Desktop,
            Os::Linux,
            Firefox,
        );
        check(
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1",
            Mobile,
            Os::Ios,
            Safari,
        );
        check(
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 MicroMessenger/8.0.50(0x18003237) NetType/WIFI Language/zh_CN",
            Mobile,
            Os::Ios,
            Wechat,
        );
        check(
            "Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/119.0.0.0 Mobile/15E148 Safari/604.1",
            Tablet,
            Os::Ios,
            Chrome,
        );
        check(
            "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Mobile Safari/537.36",
            Mobile,
            Os::Android,
            Chrome,
        );
        check(
            "Mozilla/5.0 (Linux; Android 13; SM-X900) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
            Tablet,
            Os::Android,
            Chrome,
        );
        check(
            "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
            Bot,
            Os::Other,
            Browser::Other,
        );
        check("curl/8.5.0", Bot, Os::Other, Browser::Other);
        check("", Device::Other, Os::Other, Browser::Other);
        check("\u{ff}x", Device::Other, Os::Other, Browser::Other);
    }

    #[test]
    fn a_platform_is_what_its_name_says() {
        let iphone = Agent {
            device: Device::Mobile,
            os: Os::Ios,
            browser: Browser::Wechat,
        };
        let fits: Vec<_> = Platform::ALL
            .into_iter()
            .filter(|p| iphone.is(*p))
            .collect();
        use Platform::{Any, Ios, Mobile, Wechat};
        assert_eq!(fits, [Ios, Wechat, Mobile, Any]);
    }

    #[test]
    fn the_preferred_language_is_the_first_of_the_greatest_weight() {
        let check = |header: &str, expected: &str| {
            let language = Language::preferred(header.as_bytes()).unwrap_or_default();
            assert_eq!(language.as_str(), expected, "{header}");
        };
        check("zh-CN,zh;q=0.9,en;q=0.8", "zh");
        check("en;q=0.5, DE-at;q=0.75 , fr;q=0.749", "de");
        check("*, en;q=0.1", "en");
        check("en;q=0, fr;q=0.001", "fr");
        check("en;q=1.0,fr", "en");
        for none in [
            "",
            "*",
            "x",
            "toolonglanguage",
            "en;q=0",
            "en;q=2",
            "en;level=1",
            "e1",
        ] {
            check(none, "");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_the_readers(header: Vec<u8>) {
            let _ = Agent::read(&header);
            let _ = Language::preferred(&header);
        }

        #[test]
        fn weights_are_thousandths(weight_millis in 0_u32..1_000) {
            let text = alloc::format!("q=0.{weight_millis:03}");
            prop_assert_eq!(weight(Some(text.as_bytes())), weight_millis);
        }
    }
}
