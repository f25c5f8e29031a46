//! Classifies clients: device, operating system and browser by `User-Agent`, language by `Accept-Language`.
//!
//! Clients choose both headers freely. They are good enough for statistics and for the choice of a page, and are never
//! used for access control.

use core::fmt;

use super::record::Platform;
use weir_base::agent::{LOOKED_AT_MAX, UserAgent as Text};
use weir_base::hash::seeded_hash;

words! {
    /// The kind of device.
    pub enum Device {
        /// A computer.
        Desktop = "desktop",
        /// A phone.
        Mobile = "mobile",
        /// A tablet.
        Tablet = "tablet",
        /// An automatic client: a crawler, a link preview, a monitor.
        Bot = "bot",
        /// A client that a person runs: curl, a script.
        Script = "script",
        /// None of these, or unknown.
        #[serde(other)]
        Other = "other",
    }
}

words! {
    /// The operating system.
    pub enum Os {
        /// Windows.
        Windows = "windows",
        /// macOS, and iPads that request desktop pages.
        Macos = "macos",
        /// Linux, other than Android.
        Linux = "linux",
        /// iOS and iPadOS.
        Ios = "ios",
        /// Android.
        Android = "android",
        /// None of these, or unknown.
        #[serde(other)]
        Other = "other",
    }
}

words! {
    /// The browser.
    pub enum Browser {
        /// Chrome and Chromium.
        Chrome = "chrome",
        /// Safari.
        Safari = "safari",
        /// Firefox.
        Firefox = "firefox",
        /// Edge.
        Edge = "edge",
        /// The browser inside WeChat.
        Wechat = "wechat",
        /// None of these, or unknown.
        #[serde(other)]
        Other = "other",
    }
}

/// The client that a `User-Agent` describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Agent {
    /// The device.
    pub device: Device,
    /// The operating system.
    pub os: Os,
    /// The browser.
    pub browser: Browser,
}

/// The result for a missing or unrecognized `User-Agent`.
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

impl Agent {
    /// Parses any `User-Agent`; unrecognized text gives [`UNKNOWN`].
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

    /// Whether the client is a program without a screen, which cannot open an app.
    pub fn is_program(self) -> bool {
        matches!(self.device, Device::Bot | Device::Script)
    }

    /// Whether the client runs on `platform`.
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
    // Windows Phone also claims the other systems, and Android also claims Linux: check them first.
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

/// Substrings of the names of clients that people run.
const SCRIPTS: [&str; 12] = [
    "curl/",
    "wget/",
    "python",
    "go-http-client",
    "java/",
    "okhttp",
    "node-fetch",
    "axios/",
    "undici",
    "libwww-perl",
    "httpie/",
    "postmanruntime",
];

fn device(text: &Text, os: Os) -> Device {
    if text.is_bot() {
        return Device::Bot;
    }
    if text.has(&SCRIPTS) {
        return Device::Script;
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
    // Each browser also claims the ones below it.
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

/// Substrings of the names of apps with built-in browsers, which cannot open other apps.
const APPS: [&str; 15] = [
    "micromessenger",
    "weibo",
    " qq/",
    "alipayclient",
    "dingtalk",
    "bytedancewebview",
    "musical_ly",
    "instagram",
    "fban/",
    "fbav/",
    " line/",
    "kakaotalk",
    "snapchat",
    "linkedinapp",
    "pinterest/",
];

/// Whether a built-in browser of another app shows the page, which cannot open apps.
pub fn is_in_app(user_agent: &[u8]) -> bool {
    Text::new(user_agent).has(&APPS)
}

/// A hash that distinguishes visitors with the same address. It is the same on all gateways.
pub fn agent_hash(user_agent: &[u8]) -> u64 {
    seeded_hash(0, user_agent)
}

/// A language tag: the primary subtag, with script and region if present, such as `zh`, `zh-TW` or `zh-Hant-TW` (RFC
/// 5646). Empty for no language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Language {
    text: [u8; Self::LEN_MAX],
    length: u8,
}

impl Language {
    /// Maximum bytes: a primary subtag of 8 letters, a script of 4, a region of 3.
    pub const LEN_MAX: usize = 8 + 1 + 4 + 1 + 3;

    /// Maximum letters of a primary subtag.
    const PRIMARY_LEN_MAX: usize = 8;

    /// Parses `tag` into the usual case: `ZH-hant-tw` becomes `zh-Hant-TW`. Variants and extensions are dropped. `None`
    /// if the tag is invalid.
    pub fn new(tag: &[u8]) -> Option<Self> {
        let mut subtags = tag.split(|byte| *byte == b'-');
        let primary = subtags.next()?;
        let is_one = (2..=Self::PRIMARY_LEN_MAX).contains(&primary.len())
            && primary.iter().all(u8::is_ascii_alphabetic);
        if !is_one {
            return None;
        }
        let mut language = Self::default();
        language.push(primary.iter().map(u8::to_ascii_lowercase));
        let mut rest = subtags.peekable();
        // Extended languages, such as `yue` in `zh-yue`, are dropped: the primary subtag suffices.
        while rest
            .next_if(|subtag| subtag.len() == 3 && subtag.iter().all(u8::is_ascii_alphabetic))
            .is_some()
        {}
        let is_script =
            |subtag: &&[u8]| subtag.len() == 4 && subtag.iter().all(u8::is_ascii_alphabetic);
        if let Some(script) = rest.next_if(is_script) {
            let (first, others) = script.split_at_checked(1)?;
            language.push_subtag(first.iter().map(u8::to_ascii_uppercase));
            language.push(others.iter().map(u8::to_ascii_lowercase));
        }
        let is_region = |subtag: &&[u8]| {
            (subtag.len() == 2 && subtag.iter().all(u8::is_ascii_alphabetic))
                || (subtag.len() == 3 && subtag.iter().all(u8::is_ascii_digit))
        };
        if let Some(region) = rest.next_if(is_region) {
            language.push_subtag(region.iter().map(u8::to_ascii_uppercase));
        }
        Some(language)
    }

    fn push_subtag(&mut self, bytes: impl Iterator<Item = u8>) {
        self.push(core::iter::once(b'-').chain(bytes));
    }

    fn push(&mut self, bytes: impl Iterator<Item = u8>) {
        let free = self.text.iter_mut().skip(usize::from(self.length));
        for (place, byte) in free.zip(bytes) {
            *place = byte;
            self.length += 1;
        }
    }

    /// The preferred language of an `Accept-Language`: the first with the greatest weight. `None` if it names none.
    pub fn preferred(accept_language: &[u8]) -> Option<Self> {
        let mut best = None;
        let mut best_weight = 0;
        for (language, weight) in Self::accepted(accept_language) {
            if weight > best_weight {
                (best, best_weight) = (Some(language), weight);
            }
        }
        best
    }

    /// The languages that an `Accept-Language` accepts, in order, with weights in thousandths. Languages with weight 0
    /// are omitted.
    pub fn accepted(accept_language: &[u8]) -> impl Iterator<Item = (Self, u32)> {
        let looked_at = accept_language.get(..LOOKED_AT_MAX);
        let ranges = looked_at
            .unwrap_or(accept_language)
            .split(|byte| *byte == b',');
        ranges.filter_map(|range| {
            let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let language = parts.next().and_then(Self::new)?;
            let weight = weight(parts.next());
            (weight > 0).then_some((language, weight))
        })
    }

    /// How well this language suits a client that accepts `client`: 0 if it does not, and more for each matching subtag
    /// (RFC 4647, 3.4). `zh` suits every Chinese client. `zh-TW` suits clients from Taiwan. `zh-Hant` suits clients
    /// that name it and those from Taiwan, Hong Kong and Macao.
    pub fn suits(&self, client: &Self) -> usize {
        let mut requested = self.as_str().split('-');
        let mut offered = client.as_str().split('-');
        if self.length == 0 || requested.next() != offered.next() {
            return 0;
        }
        let has = |subtag: &str| {
            offered.clone().any(|one| one == subtag) || client.script_of_region() == Some(subtag)
        };
        match requested.clone().all(has) {
            true => 1 + requested.count(),
            false => 0,
        }
    }

    /// The script in which a region writes Chinese, for tags without a script.
    fn script_of_region(&self) -> Option<&'static str> {
        match self.as_str() {
            "zh-TW" | "zh-HK" | "zh-MO" => Some("Hant"),
            "zh-CN" | "zh-SG" => Some("Hans"),
            _ => None,
        }
    }

    /// The tag; empty for no language.
    pub fn as_str(&self) -> &str {
        let text = self.text.get(..usize::from(self.length));
        // The constructor accepts only ASCII.
        core::str::from_utf8(text.unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A weight in thousandths (RFC 9110, 12.4.2): 1,000 if missing, 0 if invalid.
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
    fn current_user_agents_are_distinguished() {
        let check = |text: &str, device, os, browser| {
            let expected = Agent {
                device,
                os,
                browser,
            };
            assert_eq!(Agent::read(text.as_bytes()), expected, "{text}");
        };
        use Browser::{Chrome, Edge, Firefox, Safari, Wechat};
        use Device::{Bot, Desktop, Mobile, Script, Tablet};
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
        check("curl/8.5.0", Script, Os::Other, Browser::Other);
        check("WhatsApp/2.23.20.0 A", Bot, Os::Other, Browser::Other);
        check(
            "Mozilla/5.0 (Linux; Android 11; CUBOT X30) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Mobile Safari/537.36",
            Mobile,
            Os::Android,
            Chrome,
        );
        check(
            "Mozilla/5.0 (Linux; Android 14; CUBOT KINGKONG) AppleWebKit/537.36 Chrome/131.0.0.0 Mobile Safari/537.36 (compatible; AdsBot-Google-Mobile)",
            Bot,
            Os::Android,
            Chrome,
        );
        check(
            "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 WhatsApp/2.24.1",
            Mobile,
            Os::Ios,
            Browser::Other,
        );
        check(
            "Mozilla/5.0 (Windows Phone 10.0; Android 6.0.1; Lumia 950) AppleWebKit/537.36 Edge/15.15063",
            Mobile,
            Os::Windows,
            Edge,
        );
        check(
            "Mozilla/5.0 (Mobile; Nokia_8110_4G; rv:48.0) Gecko/48.0 Firefox/48.0 KAIOS/2.5",
            Mobile,
            Os::Other,
            Firefox,
        );
        check(
            "Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 Chrome/131.0.0.0 Safari/537.36 OPR/115.0",
            Desktop,
            Os::Linux,
            Browser::Other,
        );
        check("", Device::Other, Os::Other, Browser::Other);
        check("\u{ff}x", Device::Other, Os::Other, Browser::Other);
    }

    #[test]
    fn programs_that_come_by_themselves_are_bots() {
        for text in [
            "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
            "Twitterbot/1.0",
            "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
            "TelegramBot (like TwitterBot)",
            "Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)",
            "LinkedInBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient +http://www.linkedin.com)",
            "Mozilla/5.0 (Windows NT 6.1; WOW64) SkypeUriPreview Preview/0.5",
            "WhatsApp/2.2336.9 N",
            "Mozilla/5.0 (compatible; YandexBot/3.0; +http://yandex.com/bots)",
            "Mozilla/5.0 (compatible; Baiduspider/2.0)",
            "Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)",
        ] {
            assert_eq!(Agent::read(text.as_bytes()).device, Device::Bot, "{text}");
        }
        for text in ["Cubot", "Robotics/1.0", "botany"] {
            assert_ne!(Agent::read(text.as_bytes()).device, Device::Bot, "{text}");
        }
    }

    #[test]
    fn platform_matches_the_agents_its_name_describes() {
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
    fn user_agent_matches_exactly_its_own_platforms() {
        use Platform::{Android, Any, Desktop, Ios, Mobile, Tablet, Wechat};
        for (device, os, browser, expected) in [
            (
                Device::Tablet,
                Os::Android,
                Browser::Chrome,
                &[Android, Tablet, Any][..],
            ),
            (Device::Desktop, Os::Windows, Browser::Edge, &[Desktop, Any]),
            (
                Device::Mobile,
                Os::Android,
                Browser::Wechat,
                &[Android, Wechat, Mobile, Any],
            ),
            (
                Device::Mobile,
                Os::Ios,
                Browser::Safari,
                &[Ios, Mobile, Any],
            ),
            (Device::Bot, Os::Other, Browser::Other, &[Any]),
        ] {
            let agent = Agent {
                device,
                os,
                browser,
            };
            let fits = Platform::ALL
                .into_iter()
                .filter(|platform| agent.is(*platform));
            assert_eq!(fits.collect::<Vec<_>>(), expected, "{agent:?}");
        }
    }

    #[test]
    fn programs_and_embedded_browsers_are_detected() {
        for (text, is_program, in_app) in [
            ("curl/8.5.0", true, false),
            ("Twitterbot/1.0", true, false),
            (
                "Mozilla/5.0 (iPhone) Mobile/15E148 MicroMessenger/8.0",
                false,
                true,
            ),
            ("Mozilla/5.0 (iPhone) Mobile/15E148 QQ/9.0", false, true),
            ("Mozilla/5.0 (iPhone) Mobile/15E148 MQQ/9.0", false, false),
            ("", false, false),
        ] {
            let text = text.as_bytes();
            assert_eq!(Agent::read(text).is_program(), is_program, "{text:?}");
            assert_eq!(is_in_app(text), in_app, "{text:?}");
        }
    }

    /// All gateways write into the same statistics, so the hash may never change.
    #[test]
    fn agent_hash_is_the_same_at_all_gateways() {
        assert_eq!(agent_hash(b"curl/8.5.0"), 0x554a_c286_e3cd_1ce6);
        assert_ne!(agent_hash(b""), agent_hash(b"curl/8.5.0"));
    }

    #[test]
    fn language_is_displayed_as_its_tag() {
        let language = Language::new(b"zh-hant-tw").unwrap();
        assert_eq!(alloc::format!("{language}"), "zh-Hant-TW");
        assert_eq!(alloc::format!("{}", Language::default()), "");
    }

    #[test]
    fn preferred_language_is_the_first_of_the_greatest_weight() {
        let check = |header: &str, expected: &str| {
            let language = Language::preferred(header.as_bytes()).unwrap_or_default();
            assert_eq!(language.as_str(), expected, "{header}");
        };
        check("zh-CN,zh;q=0.9,en;q=0.8", "zh-CN");
        check("en;q=0.5, DE-at;q=0.75 , fr;q=0.749", "de-AT");
        check("ZH-hant-tw", "zh-Hant-TW");
        check("zh-yue-HK", "zh-HK");
        check("es-419,es;q=0.9", "es-419");
        check("de-DE-1996", "de-DE");
        check("sl-rozaj-biske", "sl");
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

    #[test]
    fn language_matches_clients_of_its_region_and_script() {
        let check = |offer: &str, client: &str, expected: usize| {
            let language = |tag: &str| Language::new(tag.as_bytes()).unwrap();
            assert_eq!(
                language(offer).suits(&language(client)),
                expected,
                "{offer} {client}"
            );
        };
        check("zh", "zh-TW", 1);
        check("zh-TW", "zh-TW", 2);
        check("zh-TW", "zh-Hant-TW", 2);
        check("zh-Hant", "zh-TW", 2);
        check("zh-Hant", "zh-Hant-HK", 2);
        check("zh-Hans", "zh-TW", 0);
        check("zh-Hans", "zh-CN", 2);
        check("zh-Hans", "zh-SG", 2);
        check("zh-Hant", "zh-CN", 0);
        check("zh-TW", "zh", 0);
        check("zh-TW", "zh-CN", 0);
        check("en", "zh", 0);
        assert_eq!(Language::default().suits(&Language::default()), 0);
    }

    proptest! {
        #[test]
        fn language_tag_round_trips(tag in "[a-zA-Z]{2,8}(-[a-zA-Z]{4})?(-[a-zA-Z]{2})?(-x-.*)?") {
            let language = Language::new(tag.as_bytes()).unwrap();
            prop_assert_eq!(Language::new(language.as_str().as_bytes()), Some(language));
        }

        #[test]
        fn no_bytes_panic_the_readers(header: Vec<u8>) {
            let _ = Agent::read(&header);
            let _ = Language::preferred(&header);
        }

        #[test]
        fn language_weights_are_thousandths(weight_millis in 0_u32..1_000) {
            let text = alloc::format!("q=0.{weight_millis:03}");
            prop_assert_eq!(weight(Some(text.as_bytes())), weight_millis);
        }
    }
}
