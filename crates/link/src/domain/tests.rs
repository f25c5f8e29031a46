use super::*;

use serde_json::json;

fn read(json: Value) -> Result<Domains, String> {
    let config: DomainsConfig = serde_json::from_value(json).map_err(|e| e.to_string())?;
    config.checked().map_err(|error| error.to_string())
}

fn with(field: &str, value: Value) -> Result<Domains, String> {
    let mut domain = json!({"id": "s", "hosts": ["s.example.com"]});
    domain[field] = value;
    read(json!({"domains": [{"id": "a", "hosts": ["a.example"]}, domain]}))
}

#[test]
fn missing_domain_option_gets_the_safe_default() {
    let domains = read(json!({"domains": [{"id": "s", "hosts": ["s.example.com"]}]})).unwrap();
    let domain = domains.default_domain();
    assert_eq!(domain.length.digits(), 7);
    assert_eq!(domain.life_ms(), 30 * 24 * 60 * 60 * 1000);
    assert_eq!(
        (domain.status, domain.pass_query),
        (RedirectStatus::Found, false)
    );
    let code = Code::new("aZ3k9Qx").unwrap();
    assert_eq!(domain.url(&code), "https://s.example.com/aZ3k9Qx");
}

#[test]
fn domain_url_contains_its_port_and_scheme() {
    let mut json = json!({"domains": [{"id": "s", "hosts": ["localhost"]}]});
    json["domains"][0]["scheme"] = json!("http");
    json["domains"][0]["port"] = json!(10000);
    let domains = read(json).unwrap();
    let code = Code::new("abc").unwrap();
    let url = domains.default_domain().url(&code);
    assert_eq!(url, "http://localhost:10000/abc");
}

#[test]
fn domain_is_found_by_any_spelling_of_its_host() {
    let domains = with("hosts", json!(["s.example.com", "x.example.com"])).unwrap();
    for host in [
        "s.example.com",
        "S.EXAMPLE.com",
        "s.example.com:8443",
        "x.example.com.",
        "X.example.com.:80",
    ] {
        assert_eq!(domains.by_host(host).unwrap().id.as_str(), "s", "{host}");
    }
    for host in [
        "",
        "example.com",
        "ss.example.com",
        "s.example.com.evil.example",
        "[::1]:80",
    ] {
        assert_eq!(domains.by_host(host), None, "{host}");
    }
    assert_eq!(domains.by_id("a").unwrap().hosts, ["a.example"]);
    assert_eq!(domains.by_id("b"), None);
}

#[test]
fn refusal_names_the_field() {
    let check = |field: &str, value: Value, expected: &str| {
        let error = with(field, value).unwrap_err();
        assert!(error.starts_with(expected), "{field}: {error}");
    };
    check("hosts", json!([]), "domains[1].hosts: ");
    check("hosts", json!(["S.example"]), "domains[1].hosts[0]: ");
    check("hosts", json!(["s.example:80"]), "domains[1].hosts[0]: ");
    check(
        "hosts",
        json!(["b.example", "a.example"]),
        "domains[1].hosts[1]: ",
    );
    check("id", json!("a"), "domains[1].id: ");
    check("life_days", json!(3651), "domains[1].life_days: ");
    check("status", json!(303), "must be 301, 302, 307 or 308");
    check("port", json!(0), "domains[1].port: ");
    check(
        "denied_hosts",
        json!(["evil.example", "-x"]),
        "domains[1].denied_hosts[1]: ",
    );
    for address in ["[fd00::1]", "fd00:0::1", "FD00::1", "::ffff:10.1.2.3"] {
        let expected = "domains[1].denied_hosts[0]: must be a host in lower case";
        check("denied_hosts", json!([address]), expected);
    }
    assert!(with("denied_hosts", json!(["fd00::1"])).is_ok());
    check(
        "app_schemes",
        json!(["weixin", "JavaScript"]),
        "domains[1].app_schemes[1]: ",
    );
    check(
        "app_schemes",
        json!(["javascript"]),
        "domains[1].app_schemes[0]: is never",
    );
    check(
        "app_schemes",
        json!(["https"]),
        "domains[1].app_schemes[0]: is always",
    );
    check(
        "not_found_page",
        json!("x".repeat(65_537)),
        "domains[1].not_found_page: ",
    );
    for field in ["gone_page", "unavailable_page", "robots"] {
        check(
            field,
            json!("x".repeat(65_537)),
            &format!("domains[1].{field}: "),
        );
    }
    for home in [
        "",
        "/x",
        "javascript:alert(1)",
        "https://a b/",
        "ftp://a.example",
    ] {
        check("home", json!(home), "domains[1].home: ");
    }
    check(
        "apple_app_site_association",
        json!([]),
        "domains[1].apple_app_site_association: must be a JSON object",
    );
    check(
        "assetlinks",
        json!({}),
        "domains[1].assetlinks: must be a JSON array",
    );
    assert!(
        with("colour", json!("red"))
            .unwrap_err()
            .contains("unknown field")
    );
    assert!(
        read(json!({"domains": []}))
            .unwrap_err()
            .starts_with("domains: ")
    );
}

#[test]
fn each_bound_is_itself_allowed() {
    let long = |count: usize| "x".repeat(count);
    let labels = |last: usize| {
        let label = long(63);
        format!("{label}.{label}.{label}.{}", long(last))
    };
    let hosts =
        |count: usize| -> Vec<String> { (0..count).map(|n| format!("{n}.example")).collect() };
    let schemes = |count: usize| -> Vec<String> { (0..count).map(|n| format!("s{n}")).collect() };
    // As JSON, a list of one text has four bytes more than the text.
    for (field, good, bad) in [
        ("hosts", json!(hosts(16)), json!(hosts(17))),
        ("hosts", json!([labels(61)]), json!([labels(62)])),
        ("hosts", json!([long(63)]), json!([long(64)])),
        ("hosts", json!(["a-b"]), json!(["a-"])),
        ("denied_hosts", json!(hosts(10_000)), json!(hosts(10_001))),
        (
            "app_schemes",
            json!(schemes(10_000)),
            json!(schemes(10_001)),
        ),
        ("app_schemes", json!([long(64)]), json!([long(65)])),
        ("app_schemes", json!(["a+b-c.1"]), json!(["1a"])),
        ("life_days", json!(3_650), json!(3_651)),
        ("port", json!(1), json!(0)),
        ("gone_page", json!(long(65_536)), json!(long(65_537))),
        ("assetlinks", json!([long(131_068)]), json!([long(131_069)])),
        (
            "home",
            json!("http://a.example/"),
            json!("ftp://a.example/"),
        ),
    ] {
        assert!(with(field, good).is_ok(), "{field}");
        assert!(with(field, bad).is_err(), "{field}");
    }
    let domains = |count: usize| {
        let domain = |n| json!({"id": format!("d{n}"), "hosts": [format!("{n}.example")]});
        read(json!({"domains": (0..count).map(domain).collect::<Vec<_>>()}))
    };
    assert_eq!(domains(100).unwrap().iter().count(), 100);
    assert!(domains(101).is_err());
}

#[test]
fn lifetime_is_set_in_days_and_app_schemes_by_name() {
    let domains = with("life_days", json!(2)).unwrap();
    assert_eq!(domains.by_id("s").unwrap().life_ms(), 172_800_000);
    let domains = with("app_schemes", json!(["weixin"])).unwrap();
    let domain = domains.by_id("s").unwrap();
    assert!(domain.is_app_scheme("weixin") && !domain.is_app_scheme("alipay"));
}

#[test]
fn lifetime_depends_on_the_length_of_a_generated_code() {
    const DAY_MS: u64 = 86_400_000;
    let domains = with("life_days_by_length", json!({"5": 10, "8": 0})).unwrap();
    let domain = domains.by_id("s").unwrap();
    let lives = Length::ALL.map(|length| domain.generated_life_ms(length) / DAY_MS);
    assert_eq!(lives, [10, 30, 30, 0]);
    assert_eq!(domain.life_ms() / DAY_MS, 30, "of chosen codes");
    // The other domain gives all lengths 30 days.
    let longest = Length::ALL.map(|length| domains.longest_life_ms(length));
    let month = Some(30 * DAY_MS);
    assert_eq!(longest, [month, month, month, None]);
    let published = serde_json::to_value(domains.to_config()).unwrap();
    let first = &published["domains"][0];
    assert_eq!(
        first.get("life_days_by_length"),
        None,
        "older gateways read it"
    );
    assert_eq!(read(published).unwrap(), domains);
    for (bad, path) in [
        (
            json!({"5": 3_651}),
            "domains[1].life_days_by_length.5: must be 0",
        ),
        (json!({"4": 10}), "generated codes have 5 to 8 digits"),
        (json!({"five": 10}), "invalid"),
    ] {
        let error = with("life_days_by_length", bad).unwrap_err();
        assert!(error.starts_with(path), "{error}");
    }
}

#[test]
fn document_keeps_its_version_and_omits_unset_options() {
    let domain = json!({"id": "s", "hosts": ["s.example.com"]});
    let domains = read(json!({"version": 7, "domains": [domain]})).unwrap();
    assert_eq!(domains.version(), 7);
    let published = serde_json::to_value(domains.to_config()).unwrap();
    assert_eq!(published["version"], 7);
    assert_eq!(published["domains"][0].get("allow_private_targets"), None);
    let domains = with("allow_private_targets", json!(true)).unwrap();
    let published = serde_json::to_value(domains.to_config()).unwrap();
    assert_eq!(published["domains"][1]["allow_private_targets"], true);
}

#[test]
fn published_domains_document_round_trips() {
    let domains = with("assetlinks", json!([{"relation": ["x"]}])).unwrap();
    let published = serde_json::to_value(domains.to_config()).unwrap();
    assert_eq!(read(published).unwrap(), domains);
}
