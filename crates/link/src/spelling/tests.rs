use super::*;
use alloc::format;
use alloc::string::ToString;
use proptest::prelude::*;

const PLAIN: CodeOptions = CodeOptions {
    trailing_slash: false,
    ignore_case: false,
    unicode: false,
    segments: false,
};

const ALL: CodeOptions = CodeOptions {
    trailing_slash: true,
    ignore_case: true,
    unicode: true,
    segments: true,
};

/// The code that a path names.
fn named(options: CodeOptions, path: &str) -> Option<String> {
    let read = options.read(path.as_bytes())?;
    Code::new(&*read).ok().map(|code| code.to_string())
}

fn chosen(options: CodeOptions, text: &str) -> Result<String, String> {
    let code = options.choose(text);
    code.map(|code| code.to_string())
        .map_err(|error| error.to_string())
}

#[test]
fn path_without_spelling_options_is_taken_literally() {
    assert_eq!(named(PLAIN, "Spring-24").as_deref(), Some("Spring-24"));
    for path in [
        "spring/",
        "a/bc",
        "gr%C3%B6%C3%9Fe",
        "größe",
        "spr%69ng",
        "",
        "/",
    ] {
        assert_eq!(named(PLAIN, path), None, "{path}");
    }
}

#[test]
fn each_spelling_option_allows_only_its_own_variants() {
    let trailing_slash = CodeOptions {
        trailing_slash: true,
        ..PLAIN
    };
    let ignore_case = CodeOptions {
        ignore_case: true,
        ..PLAIN
    };
    let unicode = CodeOptions {
        unicode: true,
        ..PLAIN
    };
    let segments = CodeOptions {
        segments: true,
        ..PLAIN
    };
    for (options, path, expected) in [
        (trailing_slash, "Spring/", Some("Spring")),
        (trailing_slash, "Spring", Some("Spring")),
        (trailing_slash, "Spring//", None),
        (trailing_slash, "/", None),
        (trailing_slash, "a/bc", None),
        (ignore_case, "SPRING-24", Some("spring-24")),
        (ignore_case, "SPRING/", None),
        (unicode, "gr%C3%B6%C3%9Fe", Some("xn--gre-6ka8i")),
        (unicode, "gr%c3%b6%c3%9fe", Some("xn--gre-6ka8i")),
        (unicode, "größe", Some("xn--gre-6ka8i")),
        (unicode, "gro\u{308}ße", Some("xn--gre-6ka8i")),
        (unicode, "Größe", Some("xn--Gre-6ka8i")),
        (unicode, "xn--gre-6ka8i", Some("xn--gre-6ka8i")),
        (unicode, "促销", Some("xn--0tqx10o")),
        (unicode, "促销/", None),
        (segments, "spring/24", Some("spring/24")),
        (segments, "Spring/24/x", Some("Spring/24/x")),
        (segments, "spring/24/", None),
        (segments, "spring//24", None),
        (segments, "größe/24", None),
        (ALL, "SPRING/Größe/", Some("spring/xn--gre-6ka8i")),
    ] {
        assert_eq!(named(options, path).as_deref(), expected, "{path}");
    }
}

#[test]
fn escape_never_decodes_to_another_ascii_character() {
    for path in [
        "spring%2F24",
        "spring%2f24",
        "%73pring",
        "..%2Fspring",
        "spring%00",
        "a%25C3%25B6",
        "ab%",
        "ab%C",
        "ab%C3",
        "ab%+3x",
        "ab%C3%28",
        "%ED%A0%80abc",
        "../spring",
        "./spring",
        "spring;x",
        "spring\\x",
    ] {
        assert_eq!(named(ALL, path), None, "{path}");
    }
}

#[test]
fn path_is_parsed_in_bounded_time() {
    let longest = "\u{10ffff}".repeat(32);
    for path in [
        "a".repeat(1 << 20),
        "ö".repeat(1 << 20),
        "%C3%B6".repeat(1 << 17),
        "a/".repeat(1 << 19),
        longest,
    ] {
        assert_eq!(named(ALL, &path), None);
    }
    assert_eq!(named(ALL, &"é".repeat(28)), None, "33 bytes or more");
}

#[test]
fn chosen_code_is_found_by_its_displayed_path() {
    for (text, code, displayed) in [
        ("Spring", "spring", "spring"),
        ("größe", "xn--gre-6ka8i", "gr%C3%B6%C3%9Fe"),
        ("GRÖSSE", "xn--grsse-kua", "gr%C3%B6sse"),
        ("xn--gre-6ka8i", "xn--gre-6ka8i", "gr%C3%B6%C3%9Fe"),
        ("促销/24", "xn--0tqx10o/24", "%E4%BF%83%E9%94%80/24"),
        (
            "sale/Größe/x_1",
            "sale/xn--gre-6ka8i/x_1",
            "sale/gr%C3%B6%C3%9Fe/x_1",
        ),
    ] {
        let chosen = ALL.choose(text).unwrap();
        assert_eq!(chosen.as_str(), code);
        assert_eq!(ALL.in_url(&chosen), displayed);
        assert_eq!(named(ALL, displayed).as_deref(), Some(code));
        assert_eq!(named(ALL, &format!("{displayed}/")).as_deref(), Some(code));
    }
    assert_eq!(
        chosen(PLAIN, "xn--gre-6ka8i").as_deref(),
        Ok("xn--gre-6ka8i")
    );
}

#[test]
fn forbidden_chosen_code_is_refused_with_its_reason() {
    let character = |text, position| {
        let allowed = "use 0-9, A-Z, a-z, - and _";
        format!("has the invalid character {text} at position {position}: {allowed}")
    };
    for (options, text, error) in [
        (PLAIN, "größe", character("'ö'", 3)),
        (PLAIN, "a/bc", character("'/'", 2)),
        (ALL, "spring.24", character("'.'", 7)),
        (ALL, "促销🎉", character("'🎉'", 3)),
        (ALL, "sale\u{200b}x", character("'\\u{200b}'", 5)),
        (ALL, "sale\u{202e}x", character("'\\u{202e}'", 5)),
        (ALL, "sale%2F24", character("'%'", 5)),
    ] {
        assert_eq!(chosen(options, text), Err(error), "{text}");
    }
    for (text, error) in [
        ("a//b", "has an empty segment"),
        ("/abc", "has an empty segment"),
        ("abc/", "has an empty segment"),
        ("pаypal", "mixes scripts"),
        (
            "раураӏ",
            "mixes scripts, or has letters that look like ASCII",
        ),
        ("xn--99999999", "has a segment that starts with xn--"),
        ("xn--abc-", "has a segment that starts with xn--"),
        ("links/ui", "is reserved"),
        ("ui/main", "is reserved"),
        ("L/abc", "is reserved"),
        ("spring/history", "is reserved"),
        ("apple-app-site-association", "is reserved"),
        ("ab", "is shorter than"),
        ("éééééééééééééééééééééééééééé", "is longer than 32 bytes"),
    ] {
        let refused = chosen(ALL, text).unwrap_err();
        assert!(refused.starts_with(error), "{text}: {refused}");
    }
    let reserved = chosen(PLAIN, "apple-app-site-association").unwrap_err();
    assert!(reserved.starts_with("is reserved"));
}

#[test]
fn generated_codes_are_in_lower_case_if_case_is_ignored() {
    let code = Code::new("0000z").unwrap();
    let lower = ALL.generated(code.clone());
    assert_eq!(lower.as_str(), "00001p");
    assert_eq!(ALL.as_generated(&lower), Some(code.clone()));
    assert_eq!(ALL.as_generated(&code), None, "it has five digits");
    assert_eq!(PLAIN.generated(code.clone()), code);
    assert_eq!(PLAIN.as_generated(&code), Some(code));
    assert_eq!(PLAIN.as_generated(&Code::new("sale-24").unwrap()), None);
}

#[test]
fn disabled_spelling_options_are_not_serialized() {
    let one = r#"{"unicode":true}"#;
    let options: CodeOptions = serde_json::from_str(one).unwrap();
    assert!(options.unicode && !options.is_plain());
    assert_eq!(serde_json::to_string(&options).unwrap(), one);
    assert!(serde_json::from_str::<CodeOptions>(r#"{"colour":true}"#).is_err());
}

proptest! {
    /// Every custom code is found by its text and by its URL, and choosing it again gives the same code.
    #[test]
    fn every_chosen_code_is_found(text in "[a-zA-Z0-9äöüßéñçабвгд促销買い/_-]{1,16}", options in 0..16_u8) {
        let is_on = |bit: u8| options & bit != 0;
        let options = CodeOptions {
            trailing_slash: is_on(1), ignore_case: is_on(2), unicode: is_on(4), segments: is_on(8),
        };
        if let Ok(code) = options.choose(&text) {
            let stored = Some(code.to_string());
            prop_assert_eq!(&named(options, &text), &stored);
            prop_assert_eq!(&named(options, &options.in_url(&code)), &stored);
            prop_assert_eq!(&named(options, code.as_str()), &stored);
            prop_assert_eq!(options.choose(code.as_str()), Ok(code));
        }
    }

    #[test]
    fn arbitrary_path_never_panics_and_has_one_code(path: Vec<u8>) {
        for options in [PLAIN, ALL] {
            if let Some(read) = options.read(&path) && let Ok(code) = Code::new(&*read) {
                let again = options.read(code.as_str().as_bytes()).map(Cow::into_owned);
                prop_assert_eq!(again.as_deref(), Some(code.as_str().as_bytes()));
            }
        }
    }
}
