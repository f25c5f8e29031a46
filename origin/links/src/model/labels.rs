//! Labels of a link: a team's own data about it, which gateways and edges never get.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Maximum number of tags of a link.
pub const TAGS_MAX: usize = 16;

/// Maximum length of a tag, in characters.
pub const TAG_LEN_MAX: usize = 64;

/// Maximum length of a folder's name or of an external id, in characters: one less than a tag, for the prefix in SQL.
pub const NAME_LEN_MAX: usize = TAG_LEN_MAX - 1;

/// Maximum length of a title, in characters.
pub const TITLE_LEN_MAX: usize = 200;

/// Maximum length of a note, in characters.
pub const NOTE_LEN_MAX: usize = 2_000;

/// Starts the search key of a folder. A tag contains no control character, so no tag is equal to a key.
pub const FOLDER_PREFIX: char = '\u{1e}';

/// Starts the search key of an external id.
const EXTERNAL_ID_PREFIX: char = '\u{1f}';

/// The labels of a link. Empty text: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Labels {
    /// Tags for searching.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The title for the team.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// A note for the team.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The folder, such as a campaign.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub folder: String,
    /// The id in another system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub external_id: String,
}

/// A label that SQL has an index for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelFilter {
    /// Links with this tag.
    Tag(String),
    /// Links in this folder.
    Folder(String),
    /// Links with this id in another system.
    ExternalId(String),
}

impl LabelFilter {
    /// The key in the table `link_tags`.
    pub fn key(&self) -> Cow<'_, str> {
        match self {
            Self::Tag(tag) => tag.into(),
            Self::Folder(name) => format!("{FOLDER_PREFIX}{name}").into(),
            Self::ExternalId(id) => format!("{EXTERNAL_ID_PREFIX}{id}").into(),
        }
    }

    /// Whether a link has the label.
    pub fn is_met_by(&self, labels: &Labels) -> bool {
        match self {
            Self::Tag(tag) => labels.tags.contains(tag),
            Self::Folder(name) => labels.folder == *name,
            Self::ExternalId(id) => labels.external_id == *id,
        }
    }
}

impl Labels {
    /// Labels with only these tags.
    pub fn tagged(tags: Vec<String>) -> Self {
        Self {
            tags,
            ..Self::default()
        }
    }

    /// The keys by which SQL finds the link.
    pub fn keys(&self) -> Vec<String> {
        let named = [
            (FOLDER_PREFIX, &self.folder),
            (EXTERNAL_ID_PREFIX, &self.external_id),
        ];
        let named = named.into_iter().filter(|(_, name)| !name.is_empty());
        let named = named.map(|(prefix, name)| format!("{prefix}{name}"));
        self.tags.iter().cloned().chain(named).collect()
    }

    /// Texts that a search reads.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let texts = [&self.title, &self.note, &self.folder, &self.external_id];
        self.tags.iter().chain(texts).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_labels_never_collide() {
        let labels = Labels {
            tags: vec!["x".into()],
            folder: "x".into(),
            external_id: "x".into(),
            ..Labels::default()
        };
        let filters = [
            LabelFilter::Tag("x".into()),
            LabelFilter::Folder("x".into()),
            LabelFilter::ExternalId("x".into()),
        ];
        let keys: Vec<_> = filters.iter().map(|filter| filter.key()).collect();
        assert_eq!(keys, labels.keys());
        assert!(filters.iter().all(|filter| filter.is_met_by(&labels)));
        assert_eq!(keys, ["x", "\u{1e}x", "\u{1f}x"]);
    }

    #[test]
    fn labels_round_trip_without_empty_members() {
        let labels = Labels {
            title: "Spring".into(),
            ..Labels::default()
        };
        let json = serde_json::to_string(&labels).unwrap();
        assert_eq!(json, r#"{"title":"Spring"}"#);
        assert_eq!(serde_json::from_str::<Labels>(&json).unwrap(), labels);
        assert_eq!(
            serde_json::from_str::<Labels>("{}").unwrap(),
            Labels::default()
        );
    }
}
