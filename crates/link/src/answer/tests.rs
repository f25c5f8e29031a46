use super::*;
use crate::record::Platform;
use crate::rule::Rule;
use alloc::vec;
use proptest::prelude::*;

const IPHONE: &[u8] = b"Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) Mobile/15E148";

fn link() -> Link {
    Link::to("https://t.example/")
}

fn domain() -> Domain {
    serde_json::from_str(r#"{"id":"s","hosts":["s.example"]}"#).unwrap()
}

fn location(link: &Link, visit: &Visit<'_>) -> String {
    match answer(link, visit) {
        Answer::Redirect { location, .. } => location.into_owned(),
        other => panic!("{other:?}"),
    }
}

fn cache(link: &Link, visit: &Visit<'_>) -> String {
    let domain = domain();
    let reply = answer(link, visit).reply(&domain, b"");
    let mut headers = reply.headers.into_iter();
    let found = headers.find(|(name, _)| *name == "cache-control");
    found.unwrap().1.into_owned()
}

#[test]
fn plain_link_redirects_without_copying() {
    let link = link();
    let answer = answer(&link, &Visit::default());
    assert!(matches!(
        &answer,
        Answer::Redirect {
            location: Cow::Borrowed(_),
            ..
        }
    ));
    let domain = domain();
    let reply = answer.reply(&domain, b"");
    assert_eq!((reply.status, reply.body.len()), (302, 0));
    assert_eq!(reply.headers[0], ("location", "https://t.example/".into()));
}

#[test]
fn visits_count_as_clicks_unless_automated() {
    let bot = b"Googlebot/2.1";
    for (method, is_prefetch, user_agent, is_counted, is_click) in [
        (&b"GET"[..], false, IPHONE, true, true),
        (b"GET", false, b"curl/8.5.0", true, true),
        (b"GET", false, bot, true, false),
        (b"GET", true, IPHONE, false, false),
        (b"HEAD", false, IPHONE, false, false),
        (b"POST", false, IPHONE, false, false),
        (b"get", false, IPHONE, false, false),
    ] {
        let visit = Visit {
            method: Method::read(method),
            is_prefetch,
            user_agent,
            ..Visit::default()
        };
        let actual = (visit.is_counted(), visit.is_click());
        assert_eq!(actual, (is_counted, is_click), "{visit:?}");
    }
    assert_eq!(Method::read(b"HEAD"), Method::Head);
}

#[test]
fn link_without_remaining_lifetime_has_ended() {
    let idle = Link {
        life_ms: 1_000,
        ended_target: "https://over.example/".into(),
        ..link()
    };
    let with = |left_ms| Visit {
        left_ms,
        ..Visit::default()
    };
    assert!(answer(&idle, &with(Some(1))).leads_on());
    assert!(answer(&idle, &with(None)).leads_on());
    let target = "https://over.example/";
    let why = InactiveReason::Expired;
    assert_eq!(answer(&idle, &with(Some(0))), Answer::Ended { why, target });
    let disabled = Link {
        is_disabled: true,
        ..idle
    };
    let answered = answer(&disabled, &with(Some(0)));
    assert_eq!(answered, Answer::Gone(InactiveReason::Disabled));
}

#[test]
fn response_caching_ends_with_the_link() {
    let visit = Visit {
        now_ms: 1_000,
        ..Visit::default()
    };
    let with = |status, max_clicks, expires_at_ms| Link {
        status,
        max_clicks,
        expires_at_ms,
        ..link()
    };
    use RedirectStatus::{Found, MovedPermanently, PermanentRedirect, TemporaryRedirect};
    assert_eq!(cache(&with(Found, 0, 0), &visit), "private, no-cache");
    assert_eq!(
        cache(&with(TemporaryRedirect, 0, 0), &visit),
        "private, no-cache"
    );
    assert_eq!(
        cache(&with(MovedPermanently, 0, 0), &visit),
        "public, max-age=3600"
    );
    assert_eq!(
        cache(&with(PermanentRedirect, 0, 61_999), &visit),
        "public, max-age=60"
    );
    assert_eq!(cache(&with(PermanentRedirect, 1, 0), &visit), "no-store");
    let dying = Visit {
        left_ms: Some(5_500),
        ..visit
    };
    assert_eq!(
        cache(&with(MovedPermanently, 0, 0), &dying),
        "public, max-age=5"
    );
    let ruled = Link {
        rules: vec![Rule {
            platforms: vec![],
            languages: vec![],
            target: "a:b".into(),
            ..Rule::default()
        }],
        ..with(MovedPermanently, 0, 0)
    };
    assert_eq!(cache(&ruled, &visit), "private, max-age=3600");
}

#[test]
fn ended_link_returns_gone() {
    let at = |now_ms| Visit {
        now_ms,
        ..Visit::default()
    };
    let ending = Link {
        expires_at_ms: 10,
        ..link()
    };
    assert!(answer(&ending, &at(9)).leads_on());
    assert_eq!(
        answer(&ending, &at(10)),
        Answer::Gone(InactiveReason::Expired)
    );
    let disabled = Link {
        is_disabled: true,
        ..link()
    };
    assert_eq!(
        answer(&disabled, &at(9)),
        Answer::Gone(InactiveReason::Disabled)
    );
    assert_eq!(answer(&disabled, &at(9)).reply(&domain(), b"").status, 410);
}

/// Dashboards query these labels.
#[test]
fn metrics_show_why_a_link_is_gone() {
    let words = [
        InactiveReason::Disabled,
        InactiveReason::Expired,
        InactiveReason::UsedUp,
    ]
    .map(InactiveReason::label);
    assert_eq!(words, ["disabled", "expired", "used_up"]);
}

#[test]
fn only_statuses_that_keep_the_method_redirect_a_post() {
    let post = Visit {
        method: Method::read(b"POST"),
        ..Visit::default()
    };
    for status in RedirectStatus::ALL {
        let link = Link { status, ..link() };
        let is_kept = status.code() >= 307;
        assert_eq!(answer(&link, &post).leads_on(), is_kept, "{status:?}");
    }
    assert_eq!(Answer::NotAllowed.reply(&domain(), b"").status, 405);
}

#[test]
fn query_string_is_inserted_before_the_fragment() {
    let check = |target: &str, query: &[u8], expected: &str| {
        let link = Link {
            pass_query: true,
            ..Link::to(target)
        };
        let visit = Visit {
            query,
            ..Visit::default()
        };
        assert_eq!(location(&link, &visit), expected);
    };
    check("https://t.example/a", b"x=1", "https://t.example/a?x=1");
    check("https://t.example/a?y", b"x=1", "https://t.example/a?y&x=1");
    check("https://t.example/a?", b"x=1", "https://t.example/a?x=1");
    check("https://t.example/a?y&", b"x", "https://t.example/a?y&x");
    check(
        "https://t.example/a#f?g",
        b"x=1",
        "https://t.example/a?x=1#f?g",
    );
    check("https://t.example/a", b"", "https://t.example/a");
    check(
        "https://t.example/a",
        b"\xff \r\n#\"",
        "https://t.example/a?%FF%20%0D%0A%23\"",
    );
    let longest = "x".repeat(QUERY_LEN_MAX);
    let with_longest = alloc::format!("https://t.example/a?{longest}");
    check("https://t.example/a", longest.as_bytes(), &with_longest);
    check(
        "https://t.example/a",
        &[b'x'; QUERY_LEN_MAX + 1],
        "https://t.example/a",
    );
    let visit = Visit {
        query: b"x=1",
        ..Visit::default()
    };
    assert_eq!(location(&link(), &visit), "https://t.example/");
}

#[test]
fn first_matching_rule_chooses_the_target() {
    let rule = |platforms: &[Platform], languages: &[&str], target: &str| Rule {
        platforms: platforms.to_vec(),
        languages: languages
            .iter()
            .map(|language| String::from(*language))
            .collect(),
        target: target.into(),
        ..Rule::default()
    };
    let rules = vec![
        rule(&[Platform::Ios], &["zh"], "a:ios-zh"),
        rule(&[Platform::Android, Platform::Ios], &[], "a:phone"),
        rule(&[], &["ZH", "ja"], "a:east"),
    ];
    let link = Link { rules, ..link() };
    let check = |user_agent, accept_language, expected: &str| {
        let visit = Visit {
            user_agent,
            accept_language,
            ..Visit::default()
        };
        assert_eq!(location(&link, &visit), expected);
    };
    check(IPHONE, &b"zh-CN,en;q=0.5"[..], "a:ios-zh");
    check(IPHONE, b"en,zh;q=0.5", "a:ios-zh");
    check(IPHONE, b"en,ja;q=0.5", "a:phone");
    check(b"", b"zh-TW", "a:east");
    check(b"", b"fr,de;q=0.9,ja;q=0.1", "a:east");
    check(b"", b"fr,ja;q=0", "https://t.example/");
    check(b"", b"", "https://t.example/");
    // Clients that prefer the target's own language get the target.
    let link = Link {
        language: "en".into(),
        ..link.clone()
    };
    let at = |accept_language| {
        let user_agent = b"";
        let visit = Visit {
            user_agent,
            accept_language,
            ..Visit::default()
        };
        location(&link, &visit)
    };
    assert_eq!(at(b"en-GB,zh;q=0.5"), "https://t.example/");
    assert_eq!(at(b"en;q=0.4,zh;q=0.5"), "a:east");
}

#[test]
fn rule_with_the_best_language_match_is_chosen() {
    let rule = |languages: &[&str], target: &str| Rule {
        platforms: vec![],
        languages: languages.iter().map(|tag| String::from(*tag)).collect(),
        target: target.into(),
        ..Rule::default()
    };
    let rules = vec![
        rule(&["zh"], "a:zh"),
        rule(&["zh-TW", "zh-HK"], "a:zh-tw"),
        rule(&["en"], "a:en"),
        rule(&[], "a:rest"),
        rule(&["de"], "a:never"),
    ];
    let link = Link { rules, ..link() };
    let check = |accept_language, expected: &str| {
        let visit = Visit {
            accept_language,
            ..Visit::default()
        };
        assert_eq!(location(&link, &visit), expected);
    };
    check(&b"zh-TW,zh;q=0.9,en;q=0.8"[..], "a:zh-tw");
    check(b"zh-Hant-HK", "a:zh-tw");
    check(b"zh-CN,zh;q=0.9", "a:zh");
    check(b"zh;q=0.1,en;q=0.9", "a:en");
    check(b"de", "a:rest");
}

#[test]
fn prefetch_of_a_click_limited_link_is_deferred() {
    let counted = Link {
        max_clicks: 3,
        ..link()
    };
    let prefetch = Visit {
        is_prefetch: true,
        ..Visit::default()
    };
    assert_eq!(answer(&counted, &prefetch), Answer::NotBeforeClick);
    assert_eq!(cache(&counted, &prefetch), "no-store");
    assert!(answer(&link(), &prefetch).leads_on());
}

#[test]
fn app_is_opened_on_supported_platforms() {
    let app = |platform, url: &str, fallback: Option<&str>| App {
        platform,
        url: url.into(),
        fallback: fallback.map(String::from),
    };
    let with = |app: App| Link {
        apps: vec![app],
        ..link()
    };
    let visit = Visit {
        user_agent: IPHONE,
        ..Visit::default()
    };
    let custom = with(app(Platform::Ios, "openapp://x", None));
    let expected = Answer::App {
        url: "openapp://x",
        fallback: "https://t.example/".into(),
        options: PageOptions::default(),
    };
    assert_eq!(answer(&custom, &visit), expected);
    let bot = Visit {
        user_agent: b"iPhone Googlebot/2.1",
        ..Visit::default()
    };
    for other in [bot, Visit::default()] {
        assert_eq!(location(&custom, &other), "https://t.example/");
    }
    let universal = with(app(Platform::Ios, "https://app.example/x", None));
    assert_eq!(location(&universal, &visit), "https://app.example/x");
    let both = with(app(
        Platform::Any,
        "https://app.example/x",
        Some("https://web.example/"),
    ));
    let expected = Answer::App {
        url: "https://app.example/x",
        fallback: "https://web.example/".into(),
        options: PageOptions::default(),
    };
    assert_eq!(answer(&both, &visit), expected);
}

#[test]
fn page_detects_embedding_app_and_uses_visitor_language() {
    let app = App {
        platform: Platform::Any,
        url: "openapp://x".into(),
        fallback: None,
    };
    let link = Link {
        apps: vec![app],
        ..link()
    };
    let displayed = |user_agent, accept_language| {
        let visit = Visit {
            user_agent,
            accept_language,
            ..Visit::default()
        };
        match answer(&link, &visit) {
            Answer::App {
                options: displayed, ..
            } => (displayed.in_app, displayed.language),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        displayed(IPHONE, b"en,zh;q=0.5"),
        (false, Language::English)
    );
    assert_eq!(
        displayed(IPHONE, b"zh-TW,en;q=0.5"),
        (false, Language::Chinese)
    );
    assert_eq!(
        displayed(IPHONE, b"de-AT,en;q=0.5"),
        (false, Language::German)
    );
    let wechat = b"Mozilla/5.0 (iPhone) Mobile/15E148 MicroMessenger/8.0.50";
    assert_eq!(displayed(wechat, b"zha"), (true, Language::English));
}

#[test]
fn ended_link_shows_the_page_of_its_domain() {
    let mut domain = domain();
    let removed = || Answer::Gone(InactiveReason::UsedUp);
    for (accepted, title) in [(&b""[..], "has expired"), (b"de", "ist abgelaufen")] {
        let reply = removed().reply(&domain, accepted);
        assert!(reply.body.contains(title), "{}", reply.body);
    }
    domain.gone_page = Some("<p>over".into());
    let reply = removed().reply(&domain, b"de");
    assert_eq!((reply.status, reply.body.as_ref()), (410, "<p>over"));
}

#[test]
fn scan_marker_is_not_passed_to_the_target() {
    let link = Link {
        target: "https://t.example/?x".into(),
        pass_query: true,
        ..link()
    };
    for (query, expected) in [
        ("qr", "https://t.example/?x"),
        ("a=1&qr&b", "https://t.example/?x&a=1&b"),
        ("qr&a", "https://t.example/?x&a"),
        ("qr=1&&", "https://t.example/?x&qr=1&&"),
    ] {
        let visit = Visit {
            query: query.as_bytes(),
            ..Visit::default()
        };
        assert_eq!(location(&link, &visit), expected, "{query}");
    }
}

proptest! {
    #[test]
    fn query_string_never_breaks_the_location_header(query: Vec<u8>) {
        let link = Link { pass_query: true, ..link() };
        let visit = Visit { query: &query, ..Visit::default() };
        prop_assert!(location(&link, &visit).bytes().all(|byte| byte.is_ascii_graphic()));
    }
}

#[test]
fn previewer_gets_the_preview_and_others_the_redirect() {
    let preview = Preview {
        title: "A title".into(),
        ..Default::default()
    };
    let link = Link {
        preview: Some(preview),
        ..link()
    };
    let by = |user_agent| Visit {
        user_agent,
        ..Visit::default()
    };
    let displayed = answer(&link, &by(b"facebookexternalhit/1.1"));
    assert!(matches!(&displayed, Answer::Preview(preview) if preview.title == "A title"));
    assert_eq!(location(&link, &by(IPHONE)), "https://t.example/");
    let post = Visit {
        method: Method::Other,
        ..Visit::default()
    };
    assert_eq!(answer(&link, &post), Answer::NotAllowed);
}

#[test]
fn ended_link_uses_its_or_domain_fallback_unless_disabled() {
    let mut domain = domain();
    let at = |link: &Link, domain: &Domain| {
        let visit = Visit {
            now_ms: 10,
            ..Visit::default()
        };
        let reply = answer(link, &visit).reply(domain, b"");
        (reply.status, reply.headers[0].1.clone().into_owned())
    };
    let plain = Link {
        expires_at_ms: 10,
        ..link()
    };
    let own = Link {
        ended_target: "https://own.example/".into(),
        ..plain.clone()
    };
    let disabled = Link {
        is_disabled: true,
        ..own.clone()
    };
    assert_eq!(at(&plain, &domain).0, 410);
    domain.ended_target = Some("https://all.example/".into());
    assert_eq!(at(&plain, &domain), (302, "https://all.example/".into()));
    assert_eq!(at(&own, &domain), (302, "https://own.example/".into()));
    assert_eq!(at(&disabled, &domain).0, 410);
}

#[test]
fn tracked_link_adds_the_click_tag_to_the_target() {
    let tracked = |target: &str, pass_query| Link {
        is_tracked: true,
        pass_query,
        ..Link::to(target)
    };
    let named = |query| Visit {
        query,
        click_tag: Some("1.s.abc"),
        ..Visit::default()
    };
    let nothing: &[u8] = b"";
    for (target, pass_query, query, expected) in [
        (
            "https://t.example/",
            false,
            nothing,
            "https://t.example/?weir_click=1.s.abc",
        ),
        (
            "https://t.example/?a=1#x",
            false,
            b"b=2",
            "https://t.example/?a=1&weir_click=1.s.abc#x",
        ),
        (
            "https://t.example/?",
            true,
            b"b=2&qr",
            "https://t.example/?b=2&weir_click=1.s.abc",
        ),
        // The ID of another click is dropped.
        (
            "https://t.example/",
            true,
            b"weir_click=old&b=2&weir_clicks=3&weir_click",
            "https://t.example/?b=2&weir_clicks=3&weir_click=1.s.abc",
        ),
        (
            "https://t.example/",
            true,
            b"weir_click=old",
            "https://t.example/?weir_click=1.s.abc",
        ),
        (
            "https://play.google.com/store/apps/details?id=a.b",
            false,
            nothing,
            "https://play.google.com/store/apps/details?id=a.b&referrer=weir_click%3D1.s.abc",
        ),
    ] {
        let link = tracked(target, pass_query);
        assert_eq!(location(&link, &named(query)), expected);
        assert_eq!(cache(&link, &named(query)), "no-store");
    }
    // Links without tracking add no click ID and pass on the query unchanged.
    let plain = Link {
        is_tracked: false,
        ..tracked("https://t.example/", true)
    };
    assert_eq!(location(&plain, &named(nothing)), "https://t.example/");
    let passed = location(&plain, &named(b"weir_click=old"));
    assert_eq!(passed, "https://t.example/?weir_click=old");
    let unnamed = location(&tracked("https://t.example/", false), &Visit::default());
    assert_eq!(unnamed, "https://t.example/");
}
