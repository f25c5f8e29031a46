//! The codes in paths of short links with each option of a domain, and paths that no option allows.

use serde_json::{Value, json};
use weir_link::record::Link;
use weir_link::redis::keys::LinkKeys;

use super::Draft;
use super::links::{TARGET, config, gateway, record, redirects_to, visit};
use crate::vector::Entry;

/// The codes of links, as stored.
const CODES: [&str; 6] = [
    "Spring",
    "spring",
    "spring/24",
    "xn--gre-6ka8i",
    "xn--0tqx10o/24",
    "xn--Gre-6ka8i",
];

pub(super) fn drafts() -> Vec<Draft> {
    let all =
        json!({ "trailing_slash": true, "ignore_case": true, "unicode": true, "segments": true });
    let mut drafts = of(
        "plain",
        json!({}),
        &[
            ("/Spring", Some("Spring")),
            ("/spring", Some("spring")),
            ("/spring/", None),
            ("/spring/24", None),
            ("/gr%C3%B6%C3%9Fe", None),
            ("/xn--gre-6ka8i", Some("xn--gre-6ka8i")),
        ],
    );
    drafts.extend(of(
        "trailing-slash",
        json!({ "trailing_slash": true }),
        &[
            ("/spring/", Some("spring")),
            ("/spring/?a=b", Some("spring")),
            ("/spring//", None),
            ("/spring/24", None),
        ],
    ));
    drafts.extend(of(
        "ignore-case",
        json!({ "ignore_case": true }),
        &[
            ("/SPRING", Some("spring")),
            ("/Spring", Some("spring")),
            ("/SPRING/", None),
        ],
    ));
    drafts.extend(of(
        "unicode",
        json!({ "unicode": true }),
        &[
            ("/gr%C3%B6%C3%9Fe", Some("xn--gre-6ka8i")),
            ("/gr%c3%b6%c3%9fe", Some("xn--gre-6ka8i")),
            ("/gro%CC%88%C3%9Fe", Some("xn--gre-6ka8i")),
            ("/Gr%C3%B6%C3%9Fe", Some("xn--Gre-6ka8i")),
            ("/%73pring", None),
            ("/gr%C3%B6%C3", None),
            ("/%E4%BF%83%E9%94%80/24", None),
        ],
    ));
    drafts.extend(of(
        "segments",
        json!({ "segments": true }),
        &[
            ("/spring/24", Some("spring/24")),
            ("/spring%2F24", None),
            ("/spring//24", None),
            ("/spring/24/", None),
        ],
    ));
    drafts.extend(of(
        "all",
        all,
        &[
            ("/SPRING/24/", Some("spring/24")),
            ("/GR%C3%96%C3%9FE/", Some("xn--gre-6ka8i")),
            ("/%E4%BF%83%E9%94%80/24", Some("xn--0tqx10o/24")),
            ("/%E4%BF%83%E9%94%80%2F24", None),
            ("/robots.txt/", None),
        ],
    ));
    drafts
}

/// A vector for each path, with the code that it contains, if any.
fn of(name: &str, options: Value, paths: &[(&str, Option<&str>)]) -> Vec<Draft> {
    let target = |code: &str| format!("{TARGET}?code={code}");
    let draft = |(n, (path, code)): (usize, &(&str, Option<&str>))| {
        let domain = json!({ "codes": options });
        let draft = gateway(&format!("code/{name}-{n}"), config(), domain);
        let draft = CODES.iter().fold(draft, |draft, code| {
            let id = format!("s/{code}").parse().expect("a link");
            let key = LinkKeys::new(&draft.prefix(), &id).record();
            draft.stored(key, Entry::string(record(&Link::to(target(code)))))
        });
        let expected = code.map_or_else(|| "404".to_owned(), |code| redirects_to(&target(code)));
        draft.ask(visit("GET", path), expected)
    };
    paths.iter().enumerate().map(draft).collect()
}
