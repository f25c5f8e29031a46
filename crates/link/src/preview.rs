//! Link previews for programs.

use alloc::string::String;

use serde::{Deserialize, Serialize};

/// Maximum length of a preview text, in bytes.
pub const PREVIEW_LEN_MAX: usize = 2_048;

/// What programs that preview links are shown in place of the target's own page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    /// The title.
    #[serde(rename = "t")]
    pub title: String,
    /// A sentence or two; empty: none.
    #[serde(rename = "d", default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The address of a picture; empty: none.
    #[serde(rename = "i", default, skip_serializing_if = "String::is_empty")]
    pub image: String,
}

impl Preview {
    /// Approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        96 + self.title.len() + self.text.len() + self.image.len()
    }

    /// Whether its texts are within the length limit.
    pub(crate) fn is_small(&self) -> bool {
        let texts = [&self.title, &self.text, &self.image];
        texts.iter().all(|text| text.len() <= PREVIEW_LEN_MAX)
    }
}
