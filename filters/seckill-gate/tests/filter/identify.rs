//! The signed user of requests that do not buy, and key rings.

use super::support::{CONFIG, Gate, NOW_MS, SECRET, granted};
use weir_base::key::{KeyRing, SigningKey};
use weir_host_test::Message;
use weir_sale::identity;

const OTHER: &str = "fedcba9876543210fedcba9876543210";

fn gate() -> Gate {
    let prefixes = r#"{ "identify_prefixes": ["/sales/", "/orders/"],"#;
    Gate::ready_with(&CONFIG.replacen('{', prefixes, 1))
}

fn ring(id: &str, secret: &str) -> KeyRing {
    SigningKey::new(id, secret.as_bytes()).unwrap().into()
}

fn header(message: &Message, name: &str) -> Option<Vec<u8>> {
    message.headers.get(name).map(<[u8]>::to_vec)
}

fn upstream(gate: &Gate, path: &str, user: &[u8]) -> Message {
    let request = gate.host.request(0).method("POST").path(path);
    let request = request
        .header("x-user-id", user)
        .header("x-weir-user", "v1;1;mallory")
        .header("x-weir-user-signature", "k1;00")
        .header("x-weir-verdict", "forged")
        .header("x-weir-claim", "forged");
    request.send().upstream_request()
}

#[test]
fn request_under_a_prefix_is_forwarded_with_its_signed_user() {
    let gate = gate();
    for path in ["/sales/open/reservations", "/orders/open.0.7/pay?now=1"] {
        let headers = upstream(&gate, path, b"alice");
        let value = header(&headers, "x-weir-user").unwrap();
        let signature = header(&headers, "x-weir-user-signature").unwrap();
        let user = identity::verify(&ring("k1", SECRET), &value, &signature, NOW_MS + 50);
        assert_eq!(user.unwrap().as_str(), "alice");
        assert_eq!(headers.headers.get_all("x-weir-user").count(), 1);
        assert_eq!(header(&headers, "x-weir-claim"), None);
        assert_eq!(header(&headers, "x-weir-verdict"), None);
    }
}

#[test]
fn user_header_is_absent_without_user_and_forged_is_removed() {
    let gate = gate();
    for (path, user) in [
        ("/sales/open/reservations", b"".as_slice()),
        ("/orders/1", b"a\xff"),
        ("/orders", b"alice"),
        ("/", b"alice"),
    ] {
        let headers = upstream(&gate, path, user);
        for name in ["x-weir-user", "x-weir-user-signature", "x-weir-claim"] {
            assert_eq!(header(&headers, name), None, "{path} {name}");
        }
    }
}

#[test]
fn granted_request_carries_no_client_signed_user() {
    let gate = gate();
    let request = gate.request("open", "alice");
    let request = request
        .header("x-weir-user", "v1;1;mallory")
        .header("x-weir-user-signature", "k1;00")
        .send();
    gate.answer_claims(|_user| granted(7));
    let headers = request.upstream_request();
    assert!(header(&headers, "x-weir-claim").is_some());
    assert_eq!(header(&headers, "x-weir-user"), None);
    assert_eq!(header(&headers, "x-weir-user-signature"), None);
}

#[test]
fn first_key_of_a_ring_signs() {
    let one = r#"[{ "secret": { "env": "WEIR_CLAIM_SECRET" } }]"#;
    let two = r#"[{ "id": "k2", "secret": { "env": "NEXT" } }, { "id": "k1", "secret": { "env": "WEIR_CLAIM_SECRET" } }]"#;
    let config = CONFIG.replace(one, two);
    assert_ne!(config, CONFIG);
    let gate = Gate::builder(&config, |host| host.env("NEXT", OTHER));
    gate.make_ready();
    let buyer = gate.buy("alice");
    gate.answer_claims(|_user| granted(7));
    let text = |name| String::from_utf8(header(&buyer.upstream_request(), name).unwrap()).unwrap();
    let (claim, signature) = (text("x-weir-claim"), text("x-weir-claim-signature"));
    ring("k2", OTHER).verify(&claim, &signature).unwrap();
}
