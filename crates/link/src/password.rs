//! The password page. It works without a script, and its form posts to the link's own URL.

use alloc::format;

use super::agent::Language;
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

/// The language of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageLanguage {
    /// English.
    #[default]
    English,
    /// Chinese.
    Chinese,
    /// German.
    German,
}

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

/// The texts of the page.
struct Texts {
    tag: &'static str,
    title: &'static str,
    hint: &'static str,
    label: &'static str,
    button: &'static str,
    wrong: &'static str,
    too_many: &'static str,
    busy: &'static str,
}

const ENGLISH: Texts = Texts {
    tag: "en",
    title: "This link is protected",
    hint: "Enter the password to continue.",
    label: "Password",
    button: "Continue",
    wrong: "Wrong password.",
    too_many: "Too many attempts. Please wait a few minutes.",
    busy: "Please try again in a moment.",
};

const CHINESE: Texts = Texts {
    tag: "zh",
    title: "此链接受密码保护",
    hint: "请输入密码以继续。",
    label: "密码",
    button: "继续",
    wrong: "密码不正确。",
    too_many: "尝试次数过多，请稍等几分钟。",
    busy: "请稍后再试。",
};

const GERMAN: Texts = Texts {
    tag: "de",
    title: "Dieser Link ist geschützt",
    hint: "Bitte geben Sie das Passwort ein.",
    label: "Passwort",
    button: "Weiter",
    wrong: "Das Passwort ist falsch.",
    too_many: "Zu viele Versuche. Bitte warten Sie einige Minuten.",
    busy: "Bitte versuchen Sie es gleich erneut.",
};

impl PageLanguage {
    /// The available language that the client prefers.
    pub fn preferred(accept_language: &[u8]) -> Self {
        let language = Language::preferred(accept_language);
        match language
            .as_ref()
            .and_then(|tag| tag.as_str().split('-').next())
        {
            Some("zh") => Self::Chinese,
            Some("de") => Self::German,
            _ => Self::English,
        }
    }

    const fn texts(self) -> &'static Texts {
        match self {
            Self::English => &ENGLISH,
            Self::Chinese => &CHINESE,
            Self::German => &GERMAN,
        }
    }

    /// The page, with the reason why it is shown again.
    pub fn page(self, refusal: Option<Refusal>) -> Reply<'static> {
        let texts = self.texts();
        let (status, told, wait_s) = match refusal {
            None => (200, None, None),
            Some(Refusal::Wrong) => (403, Some(texts.wrong), None),
            Some(Refusal::TooMany { wait_s }) => (429, Some(texts.too_many), Some(wait_s)),
            Some(Refusal::Busy { wait_s }) => (503, Some(texts.busy), Some(wait_s)),
        };
        let Texts {
            tag,
            title,
            hint,
            label,
            button,
            ..
        } = texts;
        let head = page::head(tag, title);
        let told = told.map_or_else(Default::default, |told| {
            format!("<p role=\"alert\" id=\"told\">{told}</p>")
        });
        let described = match told.is_empty() {
            true => "",
            false => " aria-invalid=\"true\" aria-describedby=\"told\"",
        };
        let body = format!(
            "{head}<main><h1>{title}</h1><p>{hint}</p>{told}<form method=\"post\">\
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_page_speaks_the_clients_language() {
        for (accepted, title) in [
            (&b""[..], "This link is protected"),
            (b"fr", "This link is protected"),
            (b"de-AT,en;q=0.5", "Dieser Link ist geschützt"),
            (b"zh-TW", "此链接受密码保护"),
        ] {
            let page = PageLanguage::preferred(accepted).page(None);
            assert_eq!(page.status, 200);
            assert!(page.body.contains(&format!("<h1>{title}</h1>")), "{page:?}");
            assert!(page.body.contains("<form method=\"post\">"), "{page:?}");
        }
    }

    #[test]
    fn a_refusal_says_why_and_when_to_come_back() {
        let wait = |page: &Reply<'_>| {
            let mut headers = page.headers.iter();
            let found = headers.find(|(name, _)| *name == "retry-after");
            found.map(|(_, value)| value.to_string())
        };
        for (refusal, status, text, wait_s) in [
            (Refusal::Wrong, 403, ENGLISH.wrong, None),
            (
                Refusal::TooMany { wait_s: 90 },
                429,
                ENGLISH.too_many,
                Some("90"),
            ),
            (Refusal::Busy { wait_s: 1 }, 503, ENGLISH.busy, Some("1")),
        ] {
            let page = PageLanguage::English.page(Some(refusal));
            assert_eq!(page.status, status);
            assert!(page.body.contains(text) && page.body.contains("aria-invalid"));
            assert_eq!(wait(&page).as_deref(), wait_s);
        }
    }
}
