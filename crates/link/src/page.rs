//! HTML pages for visitors, each with its content security policy.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use weir_base::language::Language;
use weir_text::Text;

use super::agent;
use super::answer::Reply;
use super::record::Preview;

/// The script of the page that opens an app. It is constant, so that the policy can contain its hash.
const APP_SCRIPT: &str = include_str!("page/app.js");

/// The style of Weir's own pages.
const STYLE: &str = include_str!("page/page.css");

/// The policy of the page that opens an app: only its own script and style, no external resources.
const APP_POLICY: &str = "default-src 'none'; script-src 'sha256-bCv0N+l3h64QMjsEfM8QPaITpKkVaVhGRggwoqBTKDY='; \
    style-src 'sha256-cmDhOf701EYGS2HMViG9ayY9HmIQiW9ejmK+z+EJ4sc='; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The policy of pages without a script, including a domain's own pages.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The text of a page for a link without a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageMessage {
    status: u16,
    title: &'static str,
    text: &'static str,
}

pub(crate) const NOT_FOUND: PageMessage = PageMessage {
    status: 404,
    title: "No such link",
    text: "It may be mistyped or expired.",
};

pub(crate) const GONE: PageMessage = PageMessage {
    status: 410,
    title: "This link has expired",
    text: "It no longer works. Ask the sender for a new one.",
};

pub(crate) const UNAVAILABLE: PageMessage = PageMessage {
    status: 503,
    title: "Please try again in a moment",
    text: "We cannot look up this link right now.",
};

/// How the page that opens an app is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageOptions {
    /// In the built-in browser of another app, which cannot open apps. The page asks the visitor to open it in a
    /// browser, and does not try by itself.
    pub in_app: bool,
    /// The language of the page.
    pub language: Language,
}

/// The language of a page for a client: the one that it likes best if pages exist in it, otherwise English.
pub(crate) fn language(accept_language: &[u8]) -> Language {
    let preferred = agent::Language::preferred(accept_language);
    let primary = preferred
        .as_ref()
        .and_then(|language| language.as_str().split('-').next());
    let mut languages = Language::ALL.into_iter();
    let found = languages.find(|language| Some(language.tag()) == primary);
    found.unwrap_or_default()
}

impl PageMessage {
    /// The HTTP response, with the domain's own page if it has one.
    pub(crate) fn reply(self, own_page: Option<&str>) -> Reply<'_> {
        let body = own_page.map_or_else(|| self.page().into(), Cow::Borrowed);
        page(self.status, body, PAGE_POLICY)
    }

    fn page(self) -> String {
        let Self { title, text, .. } = self;
        let head = head("en", title);
        format!("{head}<main><h1>{title}</h1><p>{text}</p></main>")
    }
}

/// The page that opens the app at `url`, or links to `fallback`.
pub(crate) fn app(url: &str, fallback: &str, shown: PageOptions) -> Reply<'static> {
    let (url, fallback) = (escaped(url), escaped(fallback));
    let [title, hint, open, stay] = app_texts(shown.in_app).map(|text| text.get(shown.language));
    // In another app's browser, the script would only show an error.
    let script = match shown.in_app {
        true => String::new(),
        false => format!("<script>{APP_SCRIPT}</script>"),
    };
    let head = head(shown.language.tag(), title);
    let body = format!(
        "{head}<main><h1>{title}</h1><p>{hint}</p>\
         <a class=\"main\" id=\"app\" href=\"{url}\">{open}</a>\
         <a id=\"web\" href=\"{fallback}\">{stay}</a></main>{script}"
    );
    page(200, body.into(), APP_POLICY)
}

/// The preview for programs, as Open Graph metadata.
pub(crate) fn preview(preview: &Preview) -> Reply<'static> {
    let title = escaped(&preview.title);
    let mut body = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>{title}</title>\
         <meta property=\"og:type\" content=\"website\"><meta property=\"og:title\" content=\"{title}\">"
    );
    for (name, text) in [("description", &preview.text), ("image", &preview.image)] {
        if !text.is_empty() {
            let text = escaped(text);
            body.push_str(&format!("<meta property=\"og:{name}\" content=\"{text}\">"));
        }
    }
    let card = match preview.image.is_empty() {
        true => "summary",
        false => "summary_large_image",
    };
    body.push_str(&format!("<meta name=\"twitter:card\" content=\"{card}\">"));
    page(200, body.into(), PAGE_POLICY)
}

/// The title, a hint, and the labels of the links to the app and to the fallback.
const fn app_texts(in_app: bool) -> [Text; 4] {
    match in_app {
        false => [
            weir_text::LINK_APP_TITLE,
            weir_text::LINK_APP_HINT,
            weir_text::LINK_APP_OPEN,
            weir_text::LINK_APP_STAY,
        ],
        true => [
            weir_text::LINK_EMBEDDED_TITLE,
            weir_text::LINK_EMBEDDED_HINT,
            weir_text::LINK_EMBEDDED_OPEN,
            weir_text::LINK_EMBEDDED_STAY,
        ],
    }
}

/// The beginning of Weir's own pages. The title must not be client input.
pub(crate) fn head(language: &str, title: &str) -> String {
    format!(
        "<!doctype html><html lang=\"{language}\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"robots\" content=\"noindex\"><title>{title}</title><style>{STYLE}</style>"
    )
}

pub(crate) fn page<'a>(status: u16, body: Cow<'a, str>, policy: &'static str) -> Reply<'a> {
    let headers = [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ];
    Reply {
        status,
        headers: headers.map(|(name, value)| (name, value.into())).into(),
        body,
    }
}

/// Escapes text for an attribute in double quotes.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use sha2::{Digest, Sha256};

    fn header<'a>(reply: &'a Reply<'_>, wanted: &str) -> &'a str {
        let mut headers = reply.headers.iter();
        let found = headers.find(|(name, _)| *name == wanted);
        &found.unwrap().1
    }

    #[test]
    fn preview_page_contains_only_its_texts() {
        let told = preview(&Preview {
            title: "\"><script>alert('1')</script>".into(),
            text: "a & b".into(),
            image: String::new(),
        });
        let title = "&quot;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;";
        assert!(told.body.contains(&format!("<title>{title}</title>")));
        assert!(
            told.body
                .contains(&format!("property=\"og:title\" content=\"{title}\""))
        );
        assert!(
            told.body
                .contains("property=\"og:description\" content=\"a &amp; b\"")
        );
        assert!(!told.body.contains("og:image") && !told.body.contains("<script"));
        let told = preview(&Preview {
            image: "https://i.example/a.png?b&c".into(),
            ..Preview::default()
        });
        assert!(
            told.body
                .contains("og:image\" content=\"https://i.example/a.png?b&amp;c\"")
        );
    }

    #[test]
    fn addresses_are_escaped_in_page_attributes() {
        let reply = app(
            "openapp://\"><script>alert(1)</script>",
            "https://t.example/?a=1&b='",
            PageOptions::default(),
        );
        assert_eq!(reply.body.matches("<script>").count(), 1);
        assert!(
            reply
                .body
                .contains("href=\"openapp://&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;\"")
        );
        assert!(reply.body.contains("?a=1&amp;b=&#39;\""));
    }

    #[test]
    fn content_policy_lists_the_script_and_style_hashes() {
        for text in [APP_SCRIPT, STYLE] {
            let hash = base64::prelude::BASE64_STANDARD.encode(Sha256::digest(text));
            assert!(APP_POLICY.contains(&format!("'sha256-{hash}'")), "{hash}");
        }
        assert!(!APP_POLICY.contains("unsafe"));
    }

    #[test]
    fn embedded_page_asks_for_browser_and_does_not_open_app() {
        let body = |in_app, language| {
            let shown = PageOptions { in_app, language };
            app("openapp://x", "https://t.example/", shown).body
        };
        assert!(body(false, Language::English).contains("<script>"));
        for (language, browser, tag) in [
            (Language::English, "“Open in browser”", "lang=\"en\""),
            (Language::Chinese, "“在浏览器打开”", "lang=\"zh\""),
            (Language::German, "„Im Browser öffnen“", "lang=\"de\""),
        ] {
            let page = body(true, language);
            assert!(
                !page.contains("<script>") && page.contains(browser),
                "{page}"
            );
            assert!(page.contains(tag) && page.contains("href=\"openapp://x\""));
            assert!(page.contains("href=\"https://t.example/\""));
        }
    }

    #[test]
    fn pages_forbid_caching_framing_and_custom_scripts() {
        let own = "<script>alert(1)</script>";
        let app = app("openapp://x", "https://t.example/", PageOptions::default());
        for reply in [app, NOT_FOUND.reply(Some(own)), GONE.reply(None)] {
            assert_eq!(header(&reply, "cache-control"), "no-store");
            assert_eq!(header(&reply, "x-content-type-options"), "nosniff");
            let policy = header(&reply, "content-security-policy");
            assert!(policy.starts_with("default-src 'none';"), "{policy}");
            assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
            assert!(!policy.contains("script-src 'unsafe"), "{policy}");
        }
    }

    #[test]
    fn domain_page_replaces_the_default_page() {
        for (notice, status) in [(NOT_FOUND, 404), (GONE, 410), (UNAVAILABLE, 503)] {
            let own = notice.reply(Some("<p>x"));
            assert_eq!((own.status, own.body.as_ref()), (status, "<p>x"));
            let plain = notice.reply(None);
            assert_eq!(plain.status, status);
            assert!(plain.body.contains("<h1>"));
        }
    }
}
