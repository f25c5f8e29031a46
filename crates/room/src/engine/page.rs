//! The page template.
//!
//! `{{name}}` in a template is replaced by a value, escaped for HTML. Configured values are inserted once; values of a
//! visitor, for each page.

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
    /// Name of the site. Default: `Waiting room`.
    pub brand: String,
    /// URL of a picture: `https://…`, `/…` or `data:image/…`. Default: none.
    pub logo: Option<String>,
    /// Accent colour, `#rgb` or `#rrggbb`. Default: `#2457d6`.
    pub accent: String,
    /// Accent colour in dark mode. Default: `#8fb0ff`.
    pub accent_dark: String,
    /// Language code of the texts. Default: `en`.
    pub lang: String,
    /// Your own HTML template, at most 64 KiB.
    pub template: Option<String>,
    /// `Content-Security-Policy` of your template. Default: only the template's `<style>` elements, the gateway's
    /// script, and pictures.
    pub content_security_policy: Option<String>,
}

impl Default for PageConfig {
    fn default() -> Self {
        Self {
            brand: "Waiting room".into(),
            logo: None,
            accent: "#2457d6".into(),
            accent_dark: "#8fb0ff".into(),
            lang: "en".into(),
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
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Value(Value),
}

/// A value that differs between pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
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

    fn of<'a>(self, told: &PageText<'a>) -> &'a str {
        match self {
            Self::State => told.state,
            Self::Title => told.title,
            Self::Message => told.message,
            Self::Position => told.position,
            Self::Wait => told.wait,
            Self::OpensAtMs => told.opens_at_ms,
            Self::RefreshS => told.refresh_s,
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
        labels: &Labels<'_>,
    ) -> Result<Self, FieldError> {
        config.check(path)?;
        let template = config.template.as_deref().unwrap_or(DEFAULT);
        let status_url = format!("{status_path}/{room}");
        let script_url = format!("{status_path}/room.js");
        let logo = config.logo.as_deref().unwrap_or_default();
        let fixed = [
            ("brand", config.brand.as_str()),
            ("logo", logo),
            ("logo_hidden", if logo.is_empty() { "hidden" } else { "" }),
            ("accent", &config.accent),
            ("accent_dark", &config.accent_dark),
            ("lang", &config.lang),
            ("room", room.as_str()),
            ("status_url", &status_url),
            ("script_url", &script_url),
            ("position_label", labels.position),
            ("wait_label", labels.wait),
            ("footer", labels.footer),
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
        })
    }

    /// Renders the page with these values.
    pub(crate) fn render(&self, told: &PageText<'_>) -> String {
        let mut html = String::with_capacity(4_096);
        for part in self.parts.iter() {
            match part {
                TemplatePart::Text(text) => html.push_str(text),
                TemplatePart::Value(value) => escape(value.of(told), &mut html),
            }
        }
        html
    }
}

/// Texts that are equal on all pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels<'a> {
    pub(crate) position: &'a str,
    pub(crate) wait: &'a str,
    pub(crate) footer: &'a str,
}

impl PageConfig {
    fn check(&self, path: &str) -> Result<(), FieldError> {
        let refuse =
            |name: &str, problem: &str| Err(FieldError::new(format!("{path}.{name}"), problem));
        for (name, colour) in [("accent", &self.accent), ("accent_dark", &self.accent_dark)] {
            if !is_colour(colour) {
                return refuse(name, "must be a colour such as #2457d6");
            }
        }
        if self.brand.len() > TEXT_LEN_MAX {
            return refuse("brand", "must have at most 2,048 bytes");
        }
        let is_picture = |logo: &String| {
            let begins = ["https://", "/", "data:image/"];
            begins.iter().any(|begin| logo.starts_with(begin)) && logo.len() <= TEMPLATE_LEN_MAX
        };
        if !self.logo.as_ref().is_none_or(is_picture) {
            return refuse("logo", "must begin with https://, / or data:image/");
        }
        let is_tag = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if self.lang.is_empty() || !self.lang.bytes().all(is_tag) {
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
        if let Some((_, value)) = fixed.iter().find(|(known, _)| *known == name) {
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

    const LABELS: Labels<'static> = Labels {
        position: "Your position",
        wait: "Expected wait",
        footer: "",
    };

    fn page(config: &PageConfig) -> Result<Page, FieldError> {
        let room = RoomName::new("shop").unwrap();
        Page::new(config, &room, "/.weir/room", "page", &LABELS)
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
            brand: r#"<b>"&'"#.into(),
            ..own("{{brand}}|{{ title }}|{{position}}{{status_url}}")
        };
        let told = PageText {
            title: "</title><script>",
            position: "7",
            ..PageText::default()
        };
        assert_eq!(
            page(&config).unwrap().render(&told),
            "&lt;b&gt;&quot;&amp;&#39;|&lt;/title&gt;&lt;script&gt;|7/.weir/room/shop"
        );
    }

    #[test]
    fn default_page_has_all_values_and_csp_allows_its_style() {
        let page = page(&PageConfig::default()).unwrap();
        let told = PageText {
            state: "waiting",
            title: "A title",
            message: "A message",
            position: "12,345",
            wait: "about 5 minutes",
            opens_at_ms: "",
            refresh_s: "17",
        };
        let html = page.render(&told);
        for text in [
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
        let lang = "en\"".into();
        assert_eq!(refused(PageConfig { lang, ..config() }), "page.lang");
        let content_security_policy = Some("a\r\nb".into());
        let policy = PageConfig {
            content_security_policy,
            ..config()
        };
        assert_eq!(refused(policy), "page.content_security_policy");
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
