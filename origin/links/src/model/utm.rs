//! UTM parameters: the five query parameters of a target that analytics tools evaluate.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Maximum length of a value, in characters.
pub const UTM_LEN_MAX: usize = 128;

/// UTM parameters. They replace UTM parameters of the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LinkUtm)]
pub struct Utm {
    /// Source, such as `newsletter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 128)]
    pub source: Option<String>,
    /// Medium, such as `email`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 128)]
    pub medium: Option<String>,
    /// Campaign, such as `spring`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 128)]
    pub campaign: Option<String>,
    /// Search term.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 128)]
    pub term: Option<String>,
    /// Content variant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 128)]
    pub content: Option<String>,
}

impl Utm {
    fn parameters(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("source", &self.source),
            ("medium", &self.medium),
            ("campaign", &self.campaign),
            ("term", &self.term),
            ("content", &self.content),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }

    /// Adds the parameters to the query of `target`, after the existing ones.
    ///
    /// # Errors
    /// The name of a field that is empty, too long or contains a control character.
    pub fn compose<'a>(&self, target: &'a str) -> Result<Cow<'a, str>, &'static str> {
        for (name, value) in self.parameters() {
            let len = value.chars().count();
            if !(1..=UTM_LEN_MAX).contains(&len) || value.chars().any(char::is_control) {
                return Err(name);
            }
        }
        if self.parameters().next().is_none() {
            return Ok(Cow::Borrowed(target));
        }
        let (page, fragment) = target.split_at(target.find('#').unwrap_or(target.len()));
        let (path, query) = page.split_once('?').unwrap_or((page, ""));
        let is_replaced = |part: &&str| {
            let name = part.split('=').next().unwrap_or_default();
            let name = name.strip_prefix("utm_");
            name.is_some_and(|name| self.parameters().any(|(existing, _)| existing == name))
        };
        let retained = query.split('&').filter(|part| !part.is_empty());
        let retained = retained
            .filter(|part| !is_replaced(part))
            .map(str::to_owned);
        let ours = self
            .parameters()
            .map(|(name, value)| format!("utm_{name}={}", encoded(value)));
        let query: Vec<String> = retained.chain(ours).collect();
        Ok(Cow::Owned(format!("{path}?{}{fragment}", query.join("&"))))
    }
}

/// Encodes a query value: percent-encodes everything except the unreserved characters of RFC 3986.
pub(crate) fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utm(source: &str, campaign: Option<&str>) -> Utm {
        Utm {
            source: Some(source.to_owned()),
            campaign: campaign.map(str::to_owned),
            ..Utm::default()
        }
    }

    #[test]
    fn utm_parameters_replace_existing_ones_of_the_same_name() {
        let cases = [
            (
                "https://t.example/",
                "https://t.example/?utm_source=a%20b%26c",
            ),
            (
                "https://t.example/p?x=1#f?g",
                "https://t.example/p?x=1&utm_source=a%20b%26c#f?g",
            ),
            (
                "https://t.example/?utm_source=old&utm_medium=mail&utm_sources",
                "https://t.example/?utm_medium=mail&utm_sources&utm_source=a%20b%26c",
            ),
        ];
        for (target, expected) in cases {
            assert_eq!(utm("a b&c", None).compose(target).unwrap(), expected);
        }
        let both = utm("ü", Some("spring")).compose("https://t.example");
        let expected = "https://t.example?utm_source=%C3%BC&utm_campaign=spring";
        assert_eq!(both.unwrap(), expected);
        assert_eq!(
            Utm::default().compose("x?utm_source=1").unwrap(),
            "x?utm_source=1"
        );
    }

    #[test]
    fn utm_value_is_short_without_control_characters() {
        for wrong in ["", "a\nb", &"x".repeat(UTM_LEN_MAX + 1)] {
            assert_eq!(
                utm(wrong, None).compose("https://t.example/"),
                Err("source")
            );
        }
    }
}
