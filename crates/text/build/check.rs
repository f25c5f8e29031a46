//! Checks the tables of texts and turns them into constants. The build script and the tests include this file.

use std::collections::BTreeMap;

/// A tag for each table, in the order of `Language::ALL`.
pub(crate) const TAGS: [&str; 3] = ["en", "zh", "de"];

/// The texts of one language by key.
type Table = BTreeMap<String, String>;

/// The path of a table in the crate's folder.
pub(crate) fn file(tag: &str) -> String {
    format!("texts/{tag}.json")
}

/// The constants for these tables, as Rust. The tables are in the order of [`TAGS`].
///
/// # Errors
/// All problems of the tables, one a line.
pub(crate) fn constants(sources: [&str; TAGS.len()]) -> Result<String, String> {
    let [english, chinese, german] = sources;
    let [en, zh, de] = TAGS;
    let english = parse(en, english)?;
    let translations = [(zh, parse(zh, chinese)?), (de, parse(de, german)?)];
    let mut problems = check_english(&english);
    for (tag, table) in &translations {
        problems.extend(check_translation(&english, tag, table));
    }
    if !problems.is_empty() {
        return Err(problems.join("\n"));
    }
    let [(_, chinese), (_, german)] = &translations;
    let mut rust = String::new();
    for (key, text) in &english {
        let texts = [&english, chinese, german].map(|table| table.get(key));
        let [Some(english), Some(chinese), Some(german)] = texts else {
            return Err(format!("cannot write {key:?}: a language does not have it"));
        };
        let name = key.replace('.', "_").to_ascii_uppercase();
        let doc = format!(" `{}`", text.replace('`', "'"));
        rust += &format!(
            "#[doc = {doc:?}]\npub const {name}: Text = Text::new([{english:?}, {chinese:?}, {german:?}]);\n"
        );
    }
    Ok(rust)
}

/// Reads a table. Its file has one form only, so that changes of texts are changes of single lines.
fn parse(tag: &str, json: &str) -> Result<Table, String> {
    let file = file(tag);
    let table: Table = serde_json::from_str(json)
        .map_err(|error| format!("cannot read {file}: {error}; write one object of strings"))?;
    let canonical = serde_json::to_string_pretty(&table)
        .map_err(|error| format!("cannot format {file}: {error}"))?
        + "\n";
    if canonical != json {
        let mut lines = canonical.split('\n').zip(json.split('\n'));
        let same = lines.position(|(expected, line)| expected != line);
        let line = same.map_or_else(|| canonical.lines().count(), |index| index + 1);
        return Err(format!(
            "cannot use line {line} of {file}: sort the keys, write each once, one per line, indented by two spaces, and end with a line break"
        ));
    }
    Ok(table)
}

fn check_english(english: &Table) -> Vec<String> {
    let [tag, ..] = TAGS;
    let mut problems = Vec::new();
    for (key, text) in english {
        if !is_key(key) {
            problems.push(problem(
                tag,
                key,
                "is no key: name it like \"sale.sold_out\"",
            ));
        }
        problems.extend(check_text(tag, key, text));
    }
    problems
}

fn check_translation(english: &Table, tag: &str, table: &Table) -> Vec<String> {
    let mut problems = Vec::new();
    for key in english.keys().filter(|key| !table.contains_key(*key)) {
        problems.push(problem(tag, key, "is missing: translate it"));
    }
    for (key, text) in table {
        problems.extend(check_text(tag, key, text));
        match english.get(key) {
            None => {
                let advice = "is unknown in texts/en.json: add it there or remove it here";
                problems.push(problem(tag, key, advice));
            }
            Some(original) if placeholders(original) != placeholders(text) => {
                let advice = "has other placeholders than texts/en.json: use the same names";
                problems.push(problem(tag, key, advice));
            }
            Some(_) => {}
        }
    }
    problems
}

/// What is wrong with a text by itself.
fn check_text(tag: &str, key: &str, text: &str) -> Option<String> {
    if text.trim().is_empty() {
        return Some(problem(tag, key, "is empty: write a text"));
    }
    let is_closed = placeholders(text).is_some();
    (!is_closed).then(|| problem(tag, key, "has a brace without a partner: write {name}"))
}

fn problem(tag: &str, key: &str, advice: &str) -> String {
    format!("{}: {key:?} {advice}", file(tag))
}

/// Whether the key is `domain.name`, which becomes the constant `DOMAIN_NAME`.
fn is_key(key: &str) -> bool {
    let is_word = |word: &str| {
        word.starts_with(|letter: char| letter.is_ascii_lowercase())
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    key.split_once('.')
        .is_some_and(|(domain, name)| is_word(domain) && is_word(name))
}

/// The names in braces, sorted. `None` if a brace has no partner.
fn placeholders(text: &str) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}')?;
        if before.contains('}') || name.contains('{') {
            return None;
        }
        names.push(name);
        rest = after;
    }
    names.sort_unstable();
    (!rest.contains('}')).then_some(names)
}
