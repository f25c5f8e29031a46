//! Filters accept the configurations in the cookbook.

use weir_registry::{Filter, engines};

use super::SECRET;

/// The blocks of JSON, each with the filter that the paragraph before it names.
fn configurations(text: &str) -> Vec<(&'static Filter, &str)> {
    let mut found = Vec::new();
    let mut before = "";
    for part in text.split("```json\n") {
        let paragraph = before.trim_end().rsplit("\n\n").next().unwrap();
        let names = paragraph.split('`').skip(1).step_by(2);
        if let Some((json, _)) = part.split_once("```").filter(|_| !before.is_empty()) {
            let filter = names.filter_map(Filter::of_module).next();
            let filter = filter.unwrap_or_else(|| panic!("{paragraph:?} names no filter"));
            found.push((filter, json));
        }
        before = part;
    }
    found
}

#[test]
fn filters_accept_the_configurations_of_the_cookbook() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cookbook.md");
    let text = std::fs::read_to_string(page).unwrap();
    let configurations = configurations(&text);
    assert_eq!(configurations.len(), text.matches("```json").count());
    assert!(configurations.len() >= 5, "{}", configurations.len());
    let environment = |_: &str| Some(SECRET.as_bytes().to_vec());
    for (filter, json) in configurations {
        let read = engines::read(filter, json.as_bytes(), false, &environment);
        if let Err(error) = read {
            panic!("{}: {error}: {json}", filter.envoy_name);
        }
    }
}
