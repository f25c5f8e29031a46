//! Static pages for browsers instead of problem JSON, in the design of waiting rooms and in the reader's language.
//!
//! Envoy's own replies show the same page: `local_reply_config` of the files in `envoy/`.

use alloc::string::String;
use alloc::vec::Vec;

use weir_base::accept::prefers;
use weir_base::language::Language;
use weir_base::problem;

use crate::answer::Answer;

/// The page's style, a subset of the style of waiting rooms.
pub const STYLE: &str = include_str!("page/style.css");

/// The page's `Content-Security-Policy`: allows only its own style, by digest.
pub const POLICY: &str = "default-src 'none'; style-src 'sha256-I6QqjeqtdlRi0MAx5TMS7YFOFFmeV/JcuJgZDRcWilo='; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

const HEAD: &str = "<!doctype html>\n<html lang=\"";
const BEFORE_STYLE: &str = "\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
    <meta name=\"robots\" content=\"noindex\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<style>";

/// The reader of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reader {
    /// The supported language that the reader prefers.
    pub language: Language,
    /// Whether a browser shows the answer.
    pub wants_page: bool,
}

/// The reason for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The gateway has too many concurrent requests.
    Overloaded,
    /// The gateway could not decide.
    Unavailable,
    /// This reader sends too many requests.
    RateLimited,
}

/// Whether this `Accept` header prefers a page to JSON.
pub fn wants_page(accept: &[u8]) -> bool {
    prefers(
        accept,
        "text/html",
        &["application/json", problem::MEDIA_TYPE],
    )
}

impl Page {
    /// Every page.
    pub const ALL: [Self; 3] = [Self::Overloaded, Self::Unavailable, Self::RateLimited];

    /// The HTML, less than 3 KiB.
    pub fn html(self, language: Language) -> String {
        let [title, message] = self.text(language);
        let mut html = String::with_capacity(2_560);
        for part in [
            HEAD,
            language.tag(),
            BEFORE_STYLE,
            STYLE,
            "</style>\n<title>",
            title,
            "</title>\n</head>\n<body>\n<main>\n<h1>",
            title,
            "</h1>\n<p>",
            message,
            "</p>\n</main>\n</body>\n</html>",
        ] {
            html.push_str(part);
        }
        html
    }

    /// An answer with this page and these additional headers.
    pub fn answer(self, status: u16, language: Language, mut headers: Vec<(&str, &str)>) -> Answer {
        headers.extend([
            ("content-type", "text/html; charset=utf-8"),
            ("content-language", language.tag()),
            ("content-security-policy", POLICY),
            // An answer is valid for one user at one moment, so no cache may store it.
            ("cache-control", "no-store"),
        ]);
        Answer::new(status, &headers, self.html(language))
    }

    /// Title and message.
    const fn text(self, language: Language) -> [&'static str; 2] {
        let [title, message] = match self {
            Self::Overloaded => [
                weir_text::PAGE_OVERLOADED_TITLE,
                weir_text::PAGE_OVERLOADED_MESSAGE,
            ],
            Self::Unavailable => [
                weir_text::PAGE_UNAVAILABLE_TITLE,
                weir_text::PAGE_UNAVAILABLE_MESSAGE,
            ],
            Self::RateLimited => [
                weir_text::PAGE_RATE_LIMITED_TITLE,
                weir_text::PAGE_RATE_LIMITED_MESSAGE,
            ],
        };
        [title.get(language), message.get(language)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_complete_short_and_in_its_language() {
        for page in Page::ALL {
            for language in Language::ALL {
                let html = page.html(language);
                assert!(html.starts_with("<!doctype html>\n<html lang=\""));
                assert!(html.contains(&alloc::format!("lang=\"{}\"", language.tag())));
                assert!(html.ends_with("</html>"));
                assert!(html.len() < 3 * 1_024, "{}", html.len());
            }
        }
        let german = Page::RateLimited.html(Language::German);
        assert!(german.contains("<h1>Zu viele Anfragen</h1>"), "{german}");
    }

    #[test]
    fn browsers_prefer_pages_and_programs_do_not() {
        assert!(wants_page(b"text/html,application/xhtml+xml,*/*;q=0.8"));
        for accept in [
            "*/*",
            "application/json",
            "application/problem+json, text/html;q=0.5",
        ] {
            assert!(!wants_page(accept.as_bytes()), "{accept}");
        }
    }
}
