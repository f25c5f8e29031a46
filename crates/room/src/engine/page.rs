//! The page template.
//!
//! `{{name}}` in a template is replaced by a value, escaped for HTML. Values of the configuration are inserted once;
//! values of a visitor or a language are inserted for each page.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::RoomName;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use weir_base::FieldError;
use weir_base::language::Language;

use crate::engine::text::{Texts, or_default};

/// The default template.
const DEFAULT: &str = include_str!("page/page.html");

/// The script that refreshes a page.
pub(crate) const SCRIPT: &str = include_str!("page/room.js");

/// Maximum length of a template, in bytes: every page contains it.
const TEMPLATE_LEN_MAX: usize = 64 * 1_024;

/// Maximum length of each other text, in bytes.
const TEXT_LEN_MAX: usize = 2_048;

/// Appearance of pages.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PageConfig {
    /// Name of the site. Default: `Waiting room`, in the language of the page.
    pub brand: Option<String>,
    /// URL of a picture: `https://…`, `/…` or `data:image/…`. Default: none.
    pub logo: Option<String>,
    /// Accent colour, `#rgb` or `#rrggbb`. Default: `#2457d6`.
    pub accent: String,
    /// Accent colour in dark mode. Default: `#8fb0ff`.
    pub accent_dark: String,
    /// Language of all pages, such as `de`. Default: `en` if the room has `texts`, otherwise the visitor's, by
    /// `Accept-Language`: `en`, `zh` or `de`.
    pub lang: Option<String>,
    /// Your own HTML template, at most 64 KiB.
    pub template: Option<String>,
    /// `Content-Security-Policy` of your template. Default: only the template's `<style>` elements, the gateway's
    /// script, and pictures.
    pub content_security_policy: Option<String>,
}

impl Default for PageConfig {
    fn default() -> Self {
        Self {
            brand: None,
            logo: None,
            accent: "#2457d6".into(),
            accent_dark: "#8fb0ff".into(),
            lang: None,
            template: None,
            content_security_policy: None,
        }
    }
}

/// A template with the configured values inserted.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    parts: Arc<[TemplatePart]>,
    pub(crate) policy: Arc<str>,
    brand: Option<String>,
    lang: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Value(Value),
}

/// A value that differs between pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Brand,
    Lang,
    PositionLabel,
    WaitLabel,
    Footer,
    State,
    Title,
    Message,
    Position,
    Wait,
    OpensAtMs,
    RefreshS,
}

/// The values of one page.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageText<'a> {
    pub(crate) language: Language,
    /// The label of the position, the label of the wait, and the footer.
    pub(crate) labels: [&'a str; 3],
    pub(crate) state: &'a str,
    pub(crate) title: &'a str,
    pub(crate) message: &'a str,
    pub(crate) position: &'a str,
    pub(crate) wait: &'a str,
    pub(crate) opens_at_ms: &'a str,
    pub(crate) refresh_s: &'a str,
}

impl Value {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "brand" => Self::Brand,
            "lang" => Self::Lang,
            "position_label" => Self::PositionLabel,
            "wait_label" => Self::WaitLabel,
            "footer" => Self::Footer,
            "state" => Self::State,
            "title" => Self::Title,
            "message" => Self::Message,
            "position" => Self::Position,
            "wait" => Self::Wait,
            "opens_at_ms" => Self::OpensAtMs,
            "refresh_s" => Self::RefreshS,
            _ => return None,
        })
    }

    fn text<'a>(self, page: &'a Page, values: &PageText<'a>) -> &'a str {
        let [position_label, wait_label, footer] = values.labels;
        match self {
            Self::Brand => or_default(&page.brand, weir_text::ROOM_BRAND, values.language),
            Self::Lang => page.lang.as_deref().unwrap_or(values.language.tag()),
            Self::PositionLabel => position_label,
            Self::WaitLabel => wait_label,
            Self::Footer => footer,
            Self::State => values.state,
            Self::Title => values.title,
            Self::Message => values.message,
            Self::Position => values.position,
            Self::Wait => values.wait,
            Self::OpensAtMs => values.opens_at_ms,
            Self::RefreshS => values.refresh_s,
        }
    }
}

impl Page {
    /// Parses the template of the field at `path`.
    pub(crate) fn new(
        config: &PageConfig,
        room: &RoomName,
        status_path: &str,
        path: &str,
    ) -> Result<Self, FieldError> {
        config.check(path)?;
        let template = config.template.as_deref().unwrap_or(DEFAULT);
        let status_url = format!("{status_path}/{room}");
        let script_url = format!("{status_path}/room.js");
        let logo = config.logo.as_deref().unwrap_or_default();
        let fixed = [
            ("logo", logo),
            ("logo_hidden", if logo.is_empty() { "hidden" } else { "" }),
            ("accent", &config.accent),
            ("accent_dark", &config.accent_dark),
            ("room", room.as_str()),
            ("status_url", &status_url),
            ("script_url", &script_url),
        ];
        let parts = read(template, &fixed)
            .map_err(|problem| FieldError::new(format!("{path}.template"), problem))?;
        let policy = match &config.content_security_policy {
            Some(policy) => policy.clone(),
            None => policy(&parts, &format!("{path}.template"))?,
        };
        Ok(Self {
            parts: parts.into(),
            policy: policy.into(),
            brand: config.brand.clone(),
            lang: config.lang.clone(),
        })
    }

    /// Renders the page with these values.
    pub(crate) fn render(&self, values: &PageText<'_>) -> String {
        let mut html = String::with_capacity(4_096);
        for part in self.parts.iter() {
            match part {
                TemplatePart::Text(text) => html.push_str(text),
                TemplatePart::Value(value) => escape(value.text(self, values), &mut html),
            }
        }
        html
    }
}

impl PageConfig {
    /// The language of a room's pages; `None`: the visitor's.
    pub(crate) fn language(&self, texts: &Texts) -> Option<Language> {
        match &self.lang {
            Some(lang) => Some(Language::accepted(lang.as_bytes())),
            None => (!texts.is_default()).then(Language::default),
        }
    }

    fn check(&self, path: &str) -> Result<(), FieldError> {
        let refuse =
            |name: &str, problem: &str| Err(FieldError::new(format!("{path}.{name}"), problem));
        for (name, colour) in [("accent", &self.accent), ("accent_dark", &self.accent_dark)] {
            if !is_colour(colour) {
                return refuse(name, "must be a colour such as #2457d6");
            }
        }
        let is_too_long = |brand: &String| brand.len() > TEXT_LEN_MAX;
        if self.brand.as_ref().is_some_and(is_too_long) {
            return refuse("brand", "must have at most 2,048 bytes");
        }
        let is_picture = |logo: &String| {
            let begins = ["https://", "/", "data:image/"];
            begins.iter().any(|begin| logo.starts_with(begin)) && logo.len() <= TEMPLATE_LEN_MAX
        };
        if !self.logo.as_ref().is_none_or(is_picture) {
            return refuse("logo", "must begin with https://, / or data:image/");
        }
        let is_tag = |lang: &String| {
            let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            !lang.is_empty() && lang.bytes().all(is_letter)
        };
        if !self.lang.as_ref().is_none_or(is_tag) {
            return refuse("lang", "must be a language such as en or pt-BR");
        }
        let is_long = |text: &String| text.len() > TEMPLATE_LEN_MAX;
        if self.template.as_ref().is_some_and(is_long) {
            return refuse("template", "must have at most 65,536 bytes");
        }
        let is_header = |policy: &String| {
            let is_text = |b: u8| b == b' ' || b.is_ascii_graphic();
            policy.len() <= TEXT_LEN_MAX && policy.bytes().all(is_text)
        };
        if !self.content_security_policy.as_ref().is_none_or(is_header) {
            let problem = "must be one line of ASCII, at most 2,048 bytes";
            return refuse("content_security_policy", problem);
        }
        Ok(())
    }
}

fn is_colour(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or_default();
    [3, 6].contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Parses a template; the values in `fixed` are inserted as text.
fn read(template: &str, fixed: &[(&str, &str)]) -> Result<Vec<TemplatePart>, String> {
    let (mut parts, mut text) = (Vec::new(), String::new());
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once("{{") {
        text.push_str(before);
        let (name, behind) = behind
            .split_once("}}")
            .ok_or("has {{ without a closing }}")?;
        let name = name.trim();
        if let Some((_, value)) = fixed.iter().find(|(existing, _)| *existing == name) {
            escape(value, &mut text);
        } else if let Some(value) = Value::named(name) {
            parts.push(TemplatePart::Text(core::mem::take(&mut text)));
            parts.push(TemplatePart::Value(value));
        } else {
            return Err(format!("has the unknown placeholder {{{{{name}}}}}"));
        }
        rest = behind;
    }
    text.push_str(rest);
    parts.push(TemplatePart::Text(text));
    Ok(parts)
}

/// The policy that allows the template's own styles, by their digests.
fn policy(parts: &[TemplatePart], path: &str) -> Result<String, FieldError> {
    let mut styles = String::new();
    for part in parts {
        let TemplatePart::Text(text) = part else {
            continue;
        };
        let mut rest = text.as_str();
        while let Some((_, behind)) = rest.split_once("<style>") {
            let Some((style, behind)) = behind.split_once("</style>") else {
                let problem = "has a placeholder in <style> whose value changes from page to page";
                return Err(FieldError::new(path, problem));
            };
            let digest = STANDARD.encode(Sha256::digest(style));
            styles.push_str(&format!(" 'sha256-{digest}'"));
            rest = behind;
        }
    }
    let styles = if styles.is_empty() {
        " 'none'"
    } else {
        &styles
    };
    Ok(format!(
        "default-src 'none'; style-src{styles}; script-src 'self'; connect-src 'self'; img-src 'self' https: data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ))
}

fn escape(text: &str, html: &mut String) {
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(config: &PageConfig) -> Result<Page, FieldError> {
        let room = RoomName::new("shop").unwrap();
        Page::new(config, &room, "/.weir/room", "page")
    }

    fn own(template: &str) -> PageConfig {
        PageConfig {
            template: Some(template.into()),
            ..PageConfig::default()
        }
    }

    #[test]
    fn page_values_are_escaped_in_every_position() {
        let config = PageConfig {
            brand: Some(r#"<b>"&'"#.into()),
            ..own("{{brand}}|{{ title }}|{{position}}{{status_url}}")
        };
        let values = PageText {
            title: "</title><script>",
            position: "7",
            ..PageText::default()
        };
        assert_eq!(
            page(&config).unwrap().render(&values),
            "&lt;b&gt;&quot;&amp;&#39;|&lt;/title&gt;&lt;script&gt;|7/.weir/room/shop"
        );
    }

    #[test]
    fn default_page_has_all_values_and_csp_allows_its_style() {
        let page = page(&PageConfig::default()).unwrap();
        let values = PageText {
            language: Language::English,
            labels: ["Your position", "Expected wait", "A footer"],
            state: "waiting",
            title: "A title",
            message: "A message",
            position: "12,345",
            wait: "about 5 minutes",
            opens_at_ms: "",
            refresh_s: "17",
        };
        let html = page.render(&values);
        for text in [
            "Your position",
            "Expected wait",
            "A footer",
            "A title",
            "A message",
            "12,345",
            "about 5 minutes",
            "17",
            "#2457d6",
        ] {
            assert!(html.contains(text), "{text}");
        }
        assert!(!html.contains("{{"));
        let style = html.split("<style>").nth(1).unwrap();
        let style = style.split("</style>").next().unwrap();
        let digest = STANDARD.encode(Sha256::digest(style));
        assert!(page.policy.contains(&digest), "{}", page.policy);
        assert!(!page.policy.contains("unsafe"));
    }

    #[test]
    fn invalid_page_template_is_refused() {
        let refused = |config: PageConfig| page(&config).unwrap_err().path;
        assert_eq!(refused(own("{{titel}}")), "page.template");
        assert_eq!(refused(own("{{title")), "page.template");
        assert_eq!(refused(own("<style>{{title}}</style>")), "page.template");
        assert_eq!(refused(own(&" ".repeat(65_537))), "page.template");
        let config = PageConfig::default;
        let (accent, logo) = ("#12345".into(), Some("javascript:alert(1)".into()));
        assert_eq!(refused(PageConfig { accent, ..config() }), "page.accent");
        assert_eq!(refused(PageConfig { logo, ..config() }), "page.logo");
        let lang = Some("en\"".into());
        assert_eq!(refused(PageConfig { lang, ..config() }), "page.lang");
        let content_security_policy = Some("a\r\nb".into());
        let policy = PageConfig {
            content_security_policy,
            ..config()
        };
        assert_eq!(refused(policy), "page.content_security_policy");
    }

    #[test]
    fn page_language_is_configured_or_the_visitors() {
        let config = |lang: Option<&str>| PageConfig {
            lang: lang.map(Into::into),
            ..PageConfig::default()
        };
        let own = Texts {
            footer: Some("Bye".into()),
            ..Texts::default()
        };
        for (lang, texts, expected) in [
            (None, &Texts::default(), None),
            (None, &own, Some(Language::English)),
            (Some("de-AT"), &own, Some(Language::German)),
            (Some("pt-BR"), &Texts::default(), Some(Language::English)),
        ] {
            assert_eq!(config(lang).language(texts), expected, "{lang:?}");
        }
        let values = PageText {
            language: Language::German,
            ..PageText::default()
        };
        let html = |lang| page(&config(lang)).unwrap().render(&values);
        assert!(html(None).contains("<html lang=\"de\">"));
        assert!(html(None).contains("– Warteraum</title>"));
        assert!(html(Some("de-AT")).contains("<html lang=\"de-AT\">"));
    }

    /// The gateway's own refusal page has the same design, and its policy allows its style.
    #[test]
    fn refusal_page_shares_the_style_of_the_room_page() {
        use weir_engine::page::{POLICY, STYLE};
        let html = page(&PageConfig::default())
            .unwrap()
            .render(&PageText::default());
        for line in STYLE.lines() {
            assert!(html.contains(line), "{line}");
        }
        let digest = STANDARD.encode(Sha256::digest(STYLE));
        assert!(POLICY.contains(&format!("'sha256-{digest}'")), "{digest}");
    }
}
