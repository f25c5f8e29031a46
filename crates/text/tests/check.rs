//! The checks of the build script, on small tables.

#![expect(
    clippy::unwrap_used,
    reason = "a table that is accepted fails its test"
)]

#[path = "../build/check.rs"]
mod check;

use weir_base::language::Language;

/// A table with these lines.
fn table(lines: &[(&str, &str)]) -> String {
    let lines: Vec<String> = lines
        .iter()
        .map(|(key, text)| format!("  {key:?}: {text:?}"))
        .collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// The problems of this German table, with sound ones in English and Chinese.
fn problems(german: &[(&str, &str)]) -> String {
    let english = table(&[("sale.left", "{n} left"), ("sale.sold_out", "sold out")]);
    let chinese = table(&[("sale.left", "剩余 {n} 件"), ("sale.sold_out", "已售罄")]);
    check::constants([&english, &chinese, &table(german)]).unwrap_err()
}

#[test]
fn tables_are_in_the_order_of_languages() {
    assert_eq!(check::TAGS, Language::ALL.map(Language::tag));
    for tag in check::TAGS {
        let file = format!("{}/{}", env!("CARGO_MANIFEST_DIR"), check::file(tag));
        assert!(std::path::Path::new(&file).is_file(), "{file}");
    }
}

#[test]
fn text_becomes_documented_constant() {
    let tables = ["`a` \"b\"", "甲", "ä"].map(|text| table(&[("sale.sold_out", text)]));
    let [english, chinese, german] = &tables;
    assert_eq!(
        check::constants([english, chinese, german]).unwrap(),
        "#[doc = \" `'a' \\\"b\\\"`\"]\n\
         pub const SALE_SOLD_OUT: Text = Text::new([\"`a` \\\"b\\\"\", \"甲\", \"ä\"]);\n"
    );
}

#[test]
fn missing_key_is_rejected() {
    assert_eq!(
        problems(&[("sale.left", "noch {n}")]),
        "texts/de.json: \"sale.sold_out\" is missing: translate it"
    );
}

#[test]
fn unknown_key_is_rejected() {
    assert_eq!(
        problems(&[
            ("sale.left", "noch {n}"),
            ("sale.over", "Beendet."),
            ("sale.sold_out", "Ausverkauft."),
        ]),
        "texts/de.json: \"sale.over\" is unknown in texts/en.json: add it there or remove it here"
    );
}

#[test]
fn empty_text_is_rejected() {
    assert_eq!(
        problems(&[("sale.left", "noch {n}"), ("sale.sold_out", " ")]),
        "texts/de.json: \"sale.sold_out\" is empty: write a text"
    );
}

#[test]
fn different_placeholder_is_rejected() {
    for text in ["noch einige", "noch {count}", "noch {n} von {n}"] {
        assert_eq!(
            problems(&[("sale.left", text), ("sale.sold_out", "Ausverkauft.")]),
            "texts/de.json: \"sale.left\" has other placeholders than texts/en.json: use the same names"
        );
    }
}

#[test]
fn brace_without_partner_is_rejected() {
    for text in ["{n", "n} {n}", "{n} }", "{{n}"] {
        let found = problems(&[("sale.left", text), ("sale.sold_out", "Ausverkauft.")]);
        assert!(found.contains("has a brace without a partner"), "{found}");
    }
}

#[test]
fn invalid_key_is_rejected() {
    for key in ["sold_out", "sale.", "sale.Sold", "sale.sold-out", "sale.2"] {
        let table = table(&[(key, "sold out")]);
        let found = check::constants([&table, &table, &table]).unwrap_err();
        assert!(found.contains("is no key"), "{key}: {found}");
    }
}

#[test]
fn table_in_another_form_is_rejected() {
    let sound = table(&[("sale.a", "a"), ("sale.b", "b")]);
    let unsorted = table(&[("sale.b", "b"), ("sale.a", "a")]);
    let twice = table(&[("sale.a", "b"), ("sale.a", "a"), ("sale.b", "b")]);
    let one_line = "{ \"sale.a\": \"a\", \"sale.b\": \"b\" }\n";
    for (json, line) in [
        (&*unsorted, 2),
        (&*twice, 2),
        (one_line, 1),
        (sound.trim(), 4),
    ] {
        let found = check::constants([&sound, &sound, json]).unwrap_err();
        let expected = format!("cannot use line {line} of texts/de.json: ");
        assert!(found.starts_with(&expected), "{found}");
    }
    for json in ["", "[]", "{\"sale.a\": 1}"] {
        let found = check::constants([&sound, &sound, json]).unwrap_err();
        assert!(found.starts_with("cannot read texts/de.json: "), "{found}");
    }
}
