//! The texts that buyers and visitors see: one table per language, `texts/<language>.json`, and one constant per text.
//!
//! ```
//! use weir_base::language::Language;
//!
//! let text = weir_text::SALE_SOLD_OUT;
//! assert_eq!(text.get(Language::German), "Ausverkauft.");
//! ```
//!
//! The build script generates the constants: `sale.sold_out` becomes `SALE_SOLD_OUT`. It rejects a key that a language lacks,
//! an unknown key, an empty text and placeholders that differ from the English ones. A WebAssembly filter contains only the
//! texts that it uses, because they are constants.

#![no_std]
#![forbid(unsafe_code)]

use weir_base::language::Language;

/// A text in every language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text([&'static str; Language::ALL.len()]);

impl Text {
    /// The texts are in the order of [`Language::ALL`].
    const fn new(texts: [&'static str; Language::ALL.len()]) -> Self {
        Self(texts)
    }

    /// The text in this language.
    pub const fn get(self, language: Language) -> &'static str {
        let [english, chinese, german] = self.0;
        match language {
            Language::English => english,
            Language::Chinese => chinese,
            Language::German => german,
        }
    }
}

include!(concat!(env!("OUT_DIR"), "/texts.rs"));
