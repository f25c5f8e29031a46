//! HTML pages for visitors, each with its content security policy.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use weir_base::language::Language;
use weir_text::Text;

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

/// The texts of a page for a link without a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageMessage {
    status: u16,
    title: Text,
    message: Text,
}

pub(crate) const NOT_FOUND: PageMessage = PageMessage {
    status: 404,
    title: weir_text::LINK_NOT_FOUND_TITLE,
    message: weir_text::LINK_NOT_FOUND_MESSAGE,
};

pub(crate) const GONE: PageMessage = PageMessage {
    status: 410,
    title: weir_text::LINK_GONE_TITLE,
    message: weir_text::LINK_GONE_MESSAGE,
};

pub(crate) const UNAVAILABLE: PageMessage = PageMessage {
    status: 503,
    title: weir_text::LINK_UNAVAILABLE_TITLE,
    message: weir_text::LINK_UNAVAILABLE_MESSAGE,
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

impl PageMessage {
    /// The HTTP response: the domain's own page, or else Weir's page in the client's language, with a link to `home`.
    pub(crate) fn reply<'a>(
        self,
        own_page: Option<&'a str>,
        home: Option<&str>,
        accept_language: &[u8],
    ) -> Reply<'a> {
        let weirs_page = || Cow::Owned(self.page(home, Language::accepted(accept_language)));
        let body = own_page.map_or_else(weirs_page, Cow::Borrowed);
        page(self.status, body, PAGE_POLICY)
    }

    fn page(self, home: Option<&str>, language: Language) -> String {
        let [title, message] = [self.title, self.message].map(|text| text.get(language));
        let head = head(language.tag(), title);
        let home = home.map_or(String::new(), |home| {
            let (home, text) = (escaped(home), weir_text::LINK_HOME.get(language));
            format!("<a class=\"main\" href=\"{home}\">{text}</a>")
        });
        format!("{head}<main><h1>{title}</h1><p>{message}</p>{home}</main>")
    }
}

/// The page that opens the app at `url`, or links to `fallback`.
pub(crate) fn app(url: &str, fallback: &str, options: PageOptions) -> Reply<'static> {
    let (url, fallback) = (escaped(url), escaped(fallback));
    let [title, hint, open, stay] =
        app_texts(options.in_app).map(|text| text.get(options.language));
    // In another app's browser, the script would only show an error.
    let script = match options.in_app {
        true => String::new(),
        false => format!("<script>{APP_SCRIPT}</script>"),
    };
    let head = head(options.language.tag(), title);
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

/// Escapes text for HTML, also in an attribute in double quotes.
pub fn escaped(text: &str) -> String {
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

    fn header<'a>(reply: &'a Reply<'_>, expected: &str) -> &'a str {
        let mut headers = reply.headers.iter();
        let found = headers.find(|(name, _)| *name == expected);
        &found.unwrap().1
    }

    #[test]
    fn preview_page_contains_only_its_texts() {
        let reply = preview(&Preview {
            title: "\"><script>alert('1')</script>".into(),
            text: "a & b".into(),
            image: String::new(),
        });
        let title = "&quot;&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;";
        assert!(reply.body.contains(&format!("<title>{title}</title>")));
        assert!(
            reply
                .body
                .contains(&format!("property=\"og:title\" content=\"{title}\""))
        );
        assert!(
            reply
                .body
                .contains("property=\"og:description\" content=\"a &amp; b\"")
        );
        assert!(!reply.body.contains("og:image") && !reply.body.contains("<script"));
        let reply = preview(&Preview {
            image: "https://i.example/a.png?b&c".into(),
            ..Preview::default()
        });
        assert!(
            reply
                .body
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
            let options = PageOptions { in_app, language };
            app("openapp://x", "https://t.example/", options).body
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
        for reply in [
            app,
            NOT_FOUND.reply(Some(own), None, b""),
            GONE.reply(None, None, b""),
        ] {
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
            let own = notice.reply(Some("<p>x"), Some("https://shop.example/"), b"de");
            assert_eq!((own.status, own.body.as_ref()), (status, "<p>x"));
            let plain = notice.reply(None, None, b"");
            assert_eq!(plain.status, status);
            assert!(plain.body.contains("<h1>"));
        }
    }

    #[test]
    fn page_without_target_uses_the_client_language() {
        for (page, accepted, tag, title, message) in [
            (
                NOT_FOUND,
                &b"fr"[..],
                "en",
                "No such link",
                "It may be mistyped or expired.",
            ),
            (
                NOT_FOUND,
                b"de-CH,en;q=0.5",
                "de",
                "Diesen Link gibt es nicht",
                "Vielleicht enthält die Adresse einen Tippfehler, oder der Link ist abgelaufen.",
            ),
            (
                GONE,
                b"fr,de;q=0.5",
                "de",
                "Dieser Link ist abgelaufen",
                "Er funktioniert nicht mehr. Bitten Sie den Absender um einen neuen.",
            ),
            (
                UNAVAILABLE,
                b"zh-TW",
                "zh",
                "请稍后重试",
                "暂时无法查询此链接。",
            ),
        ] {
            let html = page.reply(None, None, accepted).body;
            assert!(html.contains(&format!("<html lang=\"{tag}\">")), "{html}");
            assert!(html.contains(&format!("<title>{title}</title>")), "{html}");
            let main = format!("<h1>{title}</h1><p>{message}</p>");
            assert!(html.contains(&main), "{html}");
        }
    }

    #[test]
    fn page_without_target_leads_home_in_the_client_language() {
        let home = Some("https://shop.example/?a=1&b=\"");
        for (accepted, text) in [
            (&b"en"[..], "Go to the home page"),
            (b"de", "Zur Startseite"),
            (b"zh", "前往首页"),
        ] {
            let html = GONE.reply(None, home, accepted).body;
            let link = format!(
                "<a class=\"main\" href=\"https://shop.example/?a=1&amp;b=&quot;\">{text}</a></main>"
            );
            assert!(html.ends_with(&link), "{html}");
        }
        assert!(!NOT_FOUND.reply(None, None, b"").body.contains("<a "));
    }
}
