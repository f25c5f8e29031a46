use super::*;
use alloc::vec;
use proptest::prelude::*;

fn whole() -> Link {
    Link {
        status: RedirectStatus::PermanentRedirect,
        pass_query: true,
        expires_at_ms: 9,
        version: 3,
        apps: vec![App {
            platform: Platform::Ios,
            url: "weixin://a".into(),
            fallback: Some("https://f.example/".into()),
        }],
        rules: vec![Rule {
            platforms: vec![Platform::Android],
            languages: vec!["zh".into()],
            target: "https://r.example/".into(),
            ..Rule::default()
        }],
        life_ms: 5,
        max_clicks: 7,
        ..Link::to("https://t.example/")
    }
}

#[test]
fn link_record_is_encoded_as_in_the_contract() {
    let plain = Link::to("https://t.example/");
    assert_eq!(plain.encode(), br#"0 0 {"t":"https://t.example/"}"#);
    assert_eq!(Link::decode(&plain.encode()).unwrap().version, 1);
    assert_eq!(
        String::from_utf8(whole().encode()).unwrap(),
        r#"5 7 {"t":"https://t.example/","s":308,"q":true,"e":9,"v":3,"a":[{"p":"ios","u":"weixin://a","f":"https://f.example/"}],"r":[{"p":["android"],"l":["zh"],"t":"https://r.example/"}]}"#
    );
}

#[test]
fn disabled_link_is_not_renewed_or_counted_and_keeps_its_data() {
    let disabled = Link {
        is_disabled: true,
        ..whole()
    };
    assert!(disabled.encode().starts_with(b"0 0 {"));
    let read = Link::decode(&disabled.encode()).unwrap();
    assert_eq!(read, disabled);
    let enabled = Link {
        is_disabled: false,
        ..read
    };
    assert!(enabled.encode().starts_with(b"5 7 {"));
}

#[test]
fn record_fields_of_a_later_version_are_accepted() {
    let read = Link::decode(br#"0 0 {"t":"https://t.example/","z":[1]}"#);
    assert_eq!(read, Ok(Link::to("https://t.example/")));
}

#[test]
fn invalid_link_record_is_rejected() {
    let check = |record: &str, expected: RecordError| {
        assert_eq!(Link::decode(record.as_bytes()), Err(expected), "{record}");
    };
    for head in [
        "",
        "0 0",
        "0  {}",
        "-1 0 {}",
        "+1 0 {}",
        "0 a {}",
        "99999999999999999999 0 {}",
    ] {
        check(head, RecordError::Head);
    }
    for address in [
        "",
        "https://a.example/\\r\\nset-cookie: a",
        "https://a.example/ b",
        "https://ä.example/",
    ] {
        check(&format!(r#"0 0 {{"t":"{address}"}}"#), RecordError::Target);
    }
    let long = "a".repeat(TARGET_LEN_MAX + 1);
    check(&format!(r#"0 0 {{"t":"{long}"}}"#), RecordError::Target);
    check(
        r#"0 0 {"t":"a","a":[{"p":"any","u":"a b"}]}"#,
        RecordError::Target,
    );
    let rules = [r#"{"t":"b"}"#; RULES_MAX + 1].join(",");
    check(
        &format!(r#"0 0 {{"t":"a","r":[{rules}]}}"#),
        RecordError::Parts,
    );
    check(&"0".repeat(RECORD_LEN_MAX + 1), RecordError::TooLong);
    for json in [r#"0 0 {"t":"a","s":303}"#, r#"0 0 {"t":"a"}x"#, "0 0 "] {
        let read = Link::decode(json.as_bytes());
        assert!(matches!(read, Err(RecordError::Json(_))), "{json}");
    }
}

#[test]
fn link_has_at_most_the_allowed_number_of_parts() {
    let app = |_| App {
        platform: Platform::Any,
        url: "a".into(),
        fallback: None,
    };
    let rule = |_| Rule {
        target: "a".into(),
        ..Rule::default()
    };
    type Fill<'a> = &'a dyn Fn(&mut Link, usize);
    let parts: [(&str, usize, Fill<'_>); 5] = [
        ("percent", 100, &|link, percent| {
            link.rules = vec![Rule {
                percent: u8::try_from(percent).unwrap(),
                ..rule(0)
            }];
        }),
        ("apps", APPS_MAX, &|link, count| {
            link.apps = (0..count).map(app).collect();
        }),
        ("rules", RULES_MAX, &|link, count| {
            link.rules = (0..count).map(rule).collect();
        }),
        ("platforms", LISTED_MAX, &|link, count| {
            link.rules = vec![Rule {
                platforms: vec![Platform::Any; count],
                ..rule(0)
            }];
        }),
        ("languages", LISTED_MAX, &|link, count| {
            link.rules = vec![Rule {
                languages: vec!["zh".into(); count],
                ..rule(0)
            }];
        }),
    ];
    for (subject, most, fill) in parts {
        let check = |count| {
            let mut link = Link::to("a");
            fill(&mut link, count);
            link.check()
        };
        assert_eq!(check(most), Ok(()), "{subject}");
        assert_eq!(check(most + 1), Err(RecordError::Parts), "{subject}");
    }
    assert_eq!(Link::to("a".repeat(TARGET_LEN_MAX)).check(), Ok(()));
    let spaces = " ".repeat(RECORD_LEN_MAX - r#"0 0 {"t":"a"}"#.len());
    let longest = format!(r#"0 0 {{{spaces}"t":"a"}}"#);
    assert_eq!(Link::decode(longest.as_bytes()), Ok(Link::to("a")));
}

#[test]
fn target_language_round_trips() {
    let link = Link {
        language: "zh-TW".into(),
        ..Link::to("a")
    };
    assert_eq!(link.encode(), br#"0 0 {"t":"a","l":"zh-TW"}"#);
    assert_eq!(Link::decode(&link.encode()), Ok(link));
}

#[test]
fn platform_labels_match_their_json_names() {
    for platform in Platform::ALL {
        let json = serde_json::to_value(platform).unwrap();
        assert_eq!(json, platform.label());
        assert_eq!(Platform::from_label(platform.label()), Some(platform));
    }
    assert_eq!(Platform::from_label("IOS"), None);
}

fn address() -> impl Strategy<Value = String> {
    "[!-~]{1,40}"
}

fn any_link() -> impl Strategy<Value = Link> {
    let platform = || prop::sample::select(&Platform::ALL[..]);
    let app = (platform(), address(), prop::option::of(address()));
    let app = app.prop_map(|(platform, url, fallback)| App {
        platform,
        url,
        fallback,
    });
    let platforms = prop::collection::vec(platform(), 0..3);
    let languages = prop::collection::vec("[a-z]{2,3}", 0..3);
    let rule = (platforms, languages, address());
    let rule = rule.prop_map(|(platforms, languages, target)| Rule {
        platforms,
        languages,
        percent: u8::try_from(target.len() % 100).unwrap(),
        target,
        ..Rule::default()
    });
    let numbers: (_, _, _, _) = (any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>());
    let flags = (any::<bool>(), any::<bool>());
    let status = prop::sample::select(&RedirectStatus::ALL[..]);
    let lists = (
        prop::collection::vec(app, 0..3),
        prop::collection::vec(rule, 0..3),
        prop::option::of("[$-~]{0,9}".prop_map(PasswordGuard::new)),
    );
    (address(), status, flags, numbers, lists).prop_map(
        |(target, status, flags, numbers, lists)| Link {
            target,
            language: String::new(),
            status,
            pass_query: flags.0,
            is_disabled: flags.1,
            expires_at_ms: numbers.0,
            version: numbers.1,
            life_ms: numbers.2,
            max_clicks: numbers.3,
            apps: lists.0,
            rules: lists.1,
            ended_target: String::new(),
            preview: flags.1.then(Preview::default),
            is_tracked: flags.0,
            guard: lists.2,
        },
    )
}

#[test]
fn gateways_store_no_password_protected_data() {
    let mut link = Link {
        apps: vec![App {
            platform: Platform::Ios,
            url: "secret://app".into(),
            fallback: Some("https://secret.example/app".into()),
        }],
        rules: vec![Rule {
            target: "https://secret.example/rule".into(),
            ..Rule::default()
        }],
        preview: Some(Preview {
            title: "secret".into(),
            ..Preview::default()
        }),
        ended_target: "https://t.example/over".into(),
        guard: Some(PasswordGuard::new("secret-hash")),
        expires_at_ms: 9,
        life_ms: 7,
        version: 3,
        ..Link::to("https://secret.example/")
    };
    let displayed = link.for_gateways();
    let reply = r#"7 0 {"e":9,"v":3,"x":"https://t.example/over","g":""}"#;
    assert_eq!(String::from_utf8(displayed.clone()).unwrap(), reply);
    let face = Link::decode(&displayed).unwrap();
    assert!(face.is_face() && !link.is_face());
    assert!(!format!("{:?}", link.guard).contains("secret"));
    link.guard = None;
    assert_eq!(link.for_gateways(), link.encode());
}

#[test]
fn only_a_guarded_link_may_omit_its_target() {
    assert_eq!(Link::decode(b"0 0 {}"), Err(RecordError::Target));
    let hashed = br#"0 0 {"g":"hash"}"#;
    assert_eq!(Link::decode(hashed), Err(RecordError::Target));
    assert!(Link::decode(br#"0 0 {"g":""}"#).is_ok());
    assert!(matches!(
        Link::decode(br#"0 0 {"g":1}"#),
        Err(RecordError::Json(_))
    ));
}

proptest! {
    #[test]
    fn every_link_round_trips_through_its_record(link in any_link()) {
        prop_assert_eq!(Link::decode(&link.encode()), Ok(link));
    }

    #[test]
    fn no_bytes_panic_the_reader(record: Vec<u8>) {
        let _ = Link::decode(&record);
    }
}
