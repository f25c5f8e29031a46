//! The password page. It works without a script, and its form posts to the link's own URL.

use alloc::format;

use weir_base::language::Language;

use super::answer::Reply;
use super::page;

/// Maximum length of a password, in bytes.
pub const PASSWORD_LEN_MAX: usize = 128;

/// The name of the form field.
pub const FIELD: &str = "password";

/// The content security policy: no scripts or external resources. Form targets are unrestricted, because browsers apply
/// that rule to the redirect after the form, too.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";

/// Why the page is shown again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The password is wrong.
    Wrong,
    /// Too many attempts.
    TooMany {
        /// Seconds until the next attempt.
        wait_s: u64,
    },
    /// Too many passwords are being checked.
    Busy {
        /// Seconds until the next attempt.
        wait_s: u64,
    },
}

/// The page, with why it comes again.
pub fn form_page(language: Language, refusal: Option<Refusal>) -> Reply<'static> {
    let (status, refused, wait_s) = match refusal {
        None => (200, None, None),
        Some(Refusal::Wrong) => (403, Some(weir_text::LINK_PASSWORD_WRONG), None),
        Some(Refusal::TooMany { wait_s }) => {
            (429, Some(weir_text::LINK_PASSWORD_TOO_MANY), Some(wait_s))
        }
        Some(Refusal::Busy { wait_s }) => (503, Some(weir_text::LINK_PASSWORD_BUSY), Some(wait_s)),
    };
    let title = weir_text::LINK_PASSWORD_TITLE.get(language);
    let hint = weir_text::LINK_PASSWORD_HINT.get(language);
    let label = weir_text::LINK_PASSWORD_LABEL.get(language);
    let button = weir_text::LINK_PASSWORD_BUTTON.get(language);
    let head = page::head(language.tag(), title);
    let alert = refused.map_or_else(Default::default, |refused| {
        let text = refused.get(language);
        format!("<p role=\"alert\" id=\"told\">{text}</p>")
    });
    let described = match alert.is_empty() {
        true => "",
        false => " aria-invalid=\"true\" aria-describedby=\"told\"",
    };
    let body = format!(
        "{head}<main><h1>{title}</h1><p>{hint}</p>{alert}<form method=\"post\">\
         <label for=\"password\">{label}</label>\
         <input id=\"password\" name=\"{FIELD}\" type=\"password\" required autofocus \
         autocomplete=\"off\" maxlength=\"{PASSWORD_LEN_MAX}\"{described}>\
         <button>{button}</button></form></main>"
    );
    let mut reply = page::page(status, body.into(), POLICY);
    if let Some(wait_s) = wait_s {
        let wait_s = format!("{wait_s}");
        reply.headers.push(("retry-after", wait_s.into()));
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn password_page_uses_the_client_language() {
        for (accepted, title) in [
            (&b""[..], "This link is protected"),
            (b"fr", "This link is protected"),
            (b"de-AT,en;q=0.5", "Dieser Link ist geschützt"),
            (b"zh-TW", "此链接受密码保护"),
        ] {
            let page = form_page(Language::accepted(accepted), None);
            assert_eq!(page.status, 200);
            assert!(page.body.contains(&format!("<h1>{title}</h1>")), "{page:?}");
            assert!(page.body.contains("<form method=\"post\">"), "{page:?}");
        }
    }

    #[test]
    fn password_refusal_shows_the_reason_and_retry_time() {
        let wait = |page: &Reply<'_>| {
            let mut headers = page.headers.iter();
            let found = headers.find(|(name, _)| *name == "retry-after");
            found.map(|(_, value)| value.to_string())
        };
        for (refusal, status, text, wait_s) in [
            (Refusal::Wrong, 403, weir_text::LINK_PASSWORD_WRONG, None),
            (
                Refusal::TooMany { wait_s: 90 },
                429,
                weir_text::LINK_PASSWORD_TOO_MANY,
                Some("90"),
            ),
            (
                Refusal::Busy { wait_s: 1 },
                503,
                weir_text::LINK_PASSWORD_BUSY,
                Some("1"),
            ),
        ] {
            let page = form_page(Language::English, Some(refusal));
            assert_eq!(page.status, status);
            let text = text.get(Language::English);
            assert!(page.body.contains(text) && page.body.contains("aria-invalid"));
            assert_eq!(wait(&page).as_deref(), wait_s);
        }
    }
}
