//! Malicious requests.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use weir_stack::http::{Connection, HeaderName, HeaderValue, Request};
use weir_tests::{Limiters, RedisPath, Setup};

use super::{PATIENT, config};

/// The source of all requests: without a proxy chain, the peer address is part of the key.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 3);

/// A rule that reads all parts of a request, for each store.
fn rules() -> Vec<String> {
    ["local", "redis"]
        .iter()
        .map(|store| {
            format!(
                r#"{{ "name": "{store}", "match": {{ "path": {{ "prefix": "/{store}" }} }}, "store": "{store}",
                  "key": [{{ "header": "x-key" }}, {{ "cookie": "c" }}, {{ "query": "q" }}, {{ "segment": 1 }},
                    {{ "forwarded": {{ "trusted_hops": 2 }} }}, "user"],
                  "limit": {{ "rate": 1, "per": "1h" }} }}"#
            )
        })
        .collect()
}

/// One request with these headers; the status of its answer.
async fn ask(limiters: &Limiters, path: &str, headers: &[(&str, &[u8])]) -> Result<u16> {
    let authority = limiters.authority(0);
    let mut connection = Connection::open_from(CLIENT, &authority).await?;
    let mut request = Request::get(path)
        .header("host", &authority)
        .body(Default::default())?;
    for (name, value) in headers {
        let (name, value) = (
            HeaderName::try_from(*name)?,
            HeaderValue::from_bytes(value)?,
        );
        request.headers_mut().append(name, value);
    }
    let answer = connection.send_request(request).await?;
    Ok(answer.status)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hostile_request_is_answered() -> Result<()> {
    let setup = Setup {
        gateways: 1,
        workers: 2,
        redis: RedisPath::Straight,
        config: &config(&rules(), PATIENT),
    };
    let mut limiters = setup.start().await?;
    let pid = limiters.envoys[0].process().pid().context("it runs")?;
    let long = vec![b'x'; 64 * 1_024];
    let chain = "6.6.6.6, ".repeat(6_000) + "::1";
    let long_cookie = [b"c=".as_slice(), &long].concat();
    let values: [&[u8]; 6] = [b"", b"\xff\xfe\x80", &long, b"a,b;c=1", b"\t x", b"%00%ff"];
    for store in ["local", "redis"] {
        // Each is an ordinary key: the first request passes, and the next one does not.
        for value in values {
            for name in ["x-key", "x-user-id"] {
                let path = format!("/{store}/{name}");
                let headers = [(name, value)];
                let name = format!("{store} {name} {} bytes", value.len());
                assert_eq!(ask(&limiters, &path, &headers).await?, 200, "{name}");
                assert_eq!(ask(&limiters, &path, &headers).await?, 429, "{name}");
            }
        }
        for (subject, name, value) in [
            ("chain", "x-forwarded-for", chain.as_bytes()),
            ("commas", "x-forwarded-for", &[b','; 60_000]),
            ("cookie", "cookie", &long_cookie),
            ("cookies", "cookie", &b"c; ".repeat(20_000)),
        ] {
            let path = format!("/{store}/{subject}");
            assert_eq!(
                ask(&limiters, &path, &[(name, value)]).await?,
                200,
                "{subject}"
            );
        }
        // As many headers as Envoy accepts.
        let repeated: Vec<_> = (0..90).map(|_| ("x-key", b"again".as_slice())).collect();
        let path = format!("/{store}/repeated");
        assert_eq!(ask(&limiters, &path, &repeated).await?, 200);
        assert_eq!(ask(&limiters, &path, &repeated).await?, 429);
        let more: Vec<_> = repeated.iter().copied().cycle().take(100).collect();
        let status = ask(&limiters, &path, &more).await?;
        assert!(matches!(status, 429 | 431), "{status}");
        // Queries and paths of any length and any escapes.
        let long = format!("/{store}/q?q={}", "%ff%00%".repeat(8_000));
        assert_eq!(ask(&limiters, &long, &[]).await?, 200);
        assert_eq!(ask(&limiters, &long, &[]).await?, 429);
        let deep = format!("/{store}{}", "/a".repeat(20_000));
        assert_eq!(ask(&limiters, &deep, &[]).await?, 200);
    }
    assert_eq!(limiters.envoys[0].process().pid(), Some(pid));
    limiters.check()
}
