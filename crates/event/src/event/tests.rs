use super::*;
use crate::json::tests::attributes;
use alloc::vec::Vec;
use proptest::prelude::*;

fn read(json: &str) -> Event {
    Event::read(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

fn refused(json: &str) -> Rejection {
    Event::read(json).expect_err(json)
}

fn customer(name: &str) -> CustomerId {
    CustomerId::new(name).unwrap()
}

/// Any event.
pub(crate) fn events() -> impl Strategy<Value = Event> {
    let id = prop::option::of("[A-Za-z0-9._:-]{1,64}");
    let person = || prop::option::of("[!-~]{1,128}");
    let fields = (
        id,
        "[a-z0-9_.-]{1,64}",
        person(),
        person(),
        any::<Option<u64>>(),
        attributes(),
    );
    fields.prop_map(
        |(id, event_type, customer, visitor, at_ms, attributes)| Event {
            id: id.map(|id| EventId::of_client(id).unwrap()),
            event_type: EventType::new(event_type).unwrap(),
            customer: customer.map(|name| CustomerId::new(name).unwrap()),
            visitor: visitor.map(|name| VisitorId::new(name).unwrap()),
            at_ms,
            attributes,
        },
    )
}

/// An event as clients write it.
pub(crate) fn written(event: &Event) -> String {
    let mut members = Attributes::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            members.insert(name.into(), value);
        }
    };
    put("id", event.id.as_ref().map(|id| id.as_str().into()));
    put("type", Some(event.event_type.as_str().into()));
    let customer = event.customer.as_ref();
    put("customer", customer.map(|name| name.as_str().into()));
    let visitor = event.visitor.as_ref();
    put("visitor", visitor.map(|name| name.as_str().into()));
    put("at_ms", event.at_ms.map(Value::from));
    put("attributes", Some(Value::Object(event.attributes.clone())));
    serde_json::to_string(&members).unwrap()
}

#[test]
fn event_is_read_with_all_fields() {
    let event = read(
        r#"{"id":"5f0c:A.b_c-1","type":"page.view","customer":"u1","visitor":"v1","at_ms":1700000000000,
            "attributes":{"sku":"a1","price":12.5}}"#,
    );
    assert_eq!(event.id.unwrap().as_str(), "5f0c:A.b_c-1");
    assert_eq!(event.event_type.as_str(), "page.view");
    assert_eq!(event.customer, Some(customer("u1")));
    assert_eq!(event.visitor.unwrap().as_str(), "v1");
    assert_eq!(event.at_ms, Some(1_700_000_000_000));
    assert_eq!(canonical(&event.attributes), r#"{"price":12.5,"sku":"a1"}"#);
}

#[test]
fn only_the_event_type_is_required() {
    let bare = read(r#"{"type":"view"}"#);
    let nulls = r#"{"type":"view","id":null,"customer":null,"visitor":null,"at_ms":null,"attributes":null}"#;
    assert_eq!(read(nulls), bare);
    assert_eq!((bare.id, bare.at_ms), (None, None));
    assert!(bare.attributes.is_empty());
}

#[test]
fn refusal_names_the_problem_and_the_field() {
    let check = |json: &str, beginning: &str| {
        let rejection = refused(json);
        assert_eq!(rejection.reason, Reason::Invalid, "{json}");
        let message = &rejection.message;
        assert!(message.starts_with(beginning), "{json}: {message}");
    };
    check("{}", "missing field `type`");
    for other in ["[]", "7", "", r#"[null,"view",null,null,null,null]"#] {
        check(other, "must be an object");
    }
    check(
        r#"{"type":"view","colour":1}"#,
        "colour: unknown field `colour`",
    );
    check(
        r#"{"type":"View"}"#,
        "type: has an invalid byte at position 0",
    );
    check(r#"{"type":""}"#, "type: is empty");
    check(r#"{"type":"view","id":"a b"}"#, "id: has an invalid byte");
    check(r#"{"type":"view","id":"~00"}"#, "id: has an invalid byte");
    check(r#"{"type":"view","id":7}"#, "id: invalid type");
    check(
        r#"{"type":"view","customer":"ü"}"#,
        "customer: has an invalid byte",
    );
    check(
        r#"{"type":"view","visitor":" "}"#,
        "visitor: has an invalid byte",
    );
    check(r#"{"type":"view","at_ms":-1}"#, "at_ms: invalid value");
    check(r#"{"type":"view","at_ms":1.5}"#, "at_ms: invalid type");
    check(r#"{"type":"view","at_ms":99999999999999999999}"#, "at_ms: ");
    check(
        r#"{"type":"view","attributes":[]}"#,
        "attributes: invalid type",
    );
    check(r#"{"type":"view","type":"view"}"#, "duplicate field `type`");
    check(r#"{"type":"view"} x"#, "trailing");
    check(r#"{"type":"view","attributes":{"a":1e999}}"#, "attributes");
    check(
        r#"{"type":"view","attributes":{"a":{"b":[12345678901234567890123]}}}"#,
        "attributes.a.b[0]: the number has too many digits",
    );
}

#[test]
fn event_length_and_depth_are_bounded() {
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"type":"view","attributes":{{"a":{open}{close}}}}}"#)
    };
    // The event and its attributes are two levels.
    assert!(Event::read(&nested(NESTING_MAX - 2)).is_ok());
    for deep in [NESTING_MAX - 1, 127, 128, 10_000] {
        assert_eq!(refused(&nested(deep)).reason, Reason::Invalid, "{deep}");
    }
    let long = |length: usize| {
        let rest = r#"{"type":"view","attributes":{"a":""}}"#.len();
        let text = "x".repeat(length - rest);
        format!(r#"{{"type":"view","attributes":{{"a":"{text}"}}}}"#)
    };
    assert!(Event::read(&long(EVENT_LEN_MAX)).is_ok());
    let rejection = refused(&long(EVENT_LEN_MAX + 1));
    assert_eq!(rejection.reason, Reason::TooLarge);
    assert_eq!(
        rejection.message,
        "the event: has 32769 bytes, the maximum is 32768"
    );
}

/// `1e15` is stored as `1000000000000000.0`.
#[test]
fn attribute_limit_applies_to_the_canonical_form() {
    let numbers = ["1e15"; 6_000].join(",");
    let json = format!(r#"{{"type":"view","attributes":{{"a":[{numbers}]}}}}"#);
    assert!(json.len() <= EVENT_LEN_MAX);
    assert_eq!(refused(&json).reason, Reason::TooLarge);
}

#[test]
fn id_is_found_in_an_invalid_event() {
    let id = |json| id_of(json).map(|id| id.as_str().to_string());
    assert_eq!(id(r#"{"id":"a","colour":1}"#).as_deref(), Some("a"));
    for none in ["{}", "[]", r#"{"id":7}"#, r#"{"id":"a b"}"#, "{"] {
        assert_eq!(id(none), None, "{none}");
    }
}

#[test]
fn only_server_keys_may_name_a_customer() {
    let (alice, bob) = (customer("alice"), customer("bob"));
    let place = Pointer::new("/attributes/user/id").unwrap();
    let of = |json: &str, kind, user| {
        let found = read(json).customer_for(kind, user, Some(&place));
        found
            .map(|name| name.map(|name| name.as_str().to_string()))
            .map_err(|error| error.reason)
    };
    let bare = r#"{"type":"view"}"#;
    let named = r#"{"type":"view","customer":"alice"}"#;
    let placed = r#"{"type":"view","attributes":{"user":{"id":"alice"}}}"#;
    let alice_found = Ok(Some("alice".into()));
    for (json, kind, user, expected) in [
        (bare, Kind::Browser, None, Ok(None)),
        (bare, Kind::Browser, Some(&alice), alice_found.clone()),
        (named, Kind::Browser, None, Err(Reason::CustomerNotAllowed)),
        (
            named,
            Kind::Browser,
            Some(&bob),
            Err(Reason::CustomerNotAllowed),
        ),
        (named, Kind::Browser, Some(&alice), alice_found.clone()),
        (placed, Kind::Browser, None, Ok(None)),
        (bare, Kind::Server, None, Ok(None)),
        (named, Kind::Server, None, alice_found.clone()),
        (named, Kind::Server, Some(&bob), alice_found.clone()),
        (placed, Kind::Server, None, alice_found),
    ] {
        assert_eq!(of(json, kind, user), expected, "{json} {kind:?} {user:?}");
    }
}

#[test]
fn customer_attribute_is_a_string_or_a_number() {
    let place = Pointer::new("/attributes/user").unwrap();
    let of = |user: &str| {
        let json = format!(r#"{{"type":"view","attributes":{{"user":{user}}}}}"#);
        let found = read(&json).customer_for(Kind::Server, None, Some(&place));
        found.map(|name| name.map(|name| name.as_str().to_string()))
    };
    assert_eq!(of("42").unwrap().as_deref(), Some("42"));
    assert_eq!(of("null").unwrap(), None);
    for bad in ["1.5", "[]", "{}", "true", r#""""#, r#""a b""#] {
        assert_eq!(of(bad).unwrap_err().reason, Reason::Invalid, "{bad}");
    }
}

#[test]
fn customer_pointer_must_point_into_the_attributes() {
    for bad in [
        "",
        "/",
        "/attributes",
        "/type",
        "attributes/a",
        "/attributesa/b",
        "/attributes/a~2",
        "/attributes/~",
    ] {
        assert_eq!(Pointer::new(bad), Err(PointerError), "{bad}");
    }
    assert!(Pointer::new(format!("/attributes/{}", "a".repeat(244))).is_ok());
    assert!(Pointer::new(format!("/attributes/{}", "a".repeat(245))).is_err());
    let json = r#"{"a/b":{"~":[1,{"c":2}]},"":3}"#;
    let attributes: Attributes = serde_json::from_str(json).unwrap();
    let find = |place: &str| Pointer::new(place).unwrap().find(&attributes).cloned();
    assert_eq!(find("/attributes/a~1b/~0/1/c"), Some(2.into()));
    assert_eq!(find("/attributes/"), Some(3.into()));
    assert_eq!(find("/attributes/a~1b/~0/2"), None);
    assert_eq!(find("/attributes/none/x"), None);
}

#[test]
fn missing_event_id_is_derived_from_key_and_content() {
    let key = |name| KeyName::new(name).unwrap();
    let id = |json: &str, name| {
        let event = read(json);
        event
            .id_for(&key(name), event.fingerprint())
            .as_str()
            .to_string()
    };
    let one = id(r#"{"type":"view","attributes":{"a":1,"b":2}}"#, "web");
    assert_eq!(
        one,
        id(r#"{"attributes":{ "b":2,"a":1 },"type":"view"}"#, "web")
    );
    assert!(one.starts_with('~') && one.len() == 33, "{one}");
    assert!(EventId::new(&one).is_ok() && EventId::of_client(&one).is_err());
    assert_ne!(
        one,
        id(r#"{"type":"view","attributes":{"a":1,"b":2}}"#, "app")
    );
    assert_eq!(id(r#"{"type":"view","id":"a"}"#, "web"), "a");
}

proptest! {
    #[test]
    fn written_value_round_trips(event in events()) {
        let read = Event::read(&written(&event)).unwrap();
        prop_assert_eq!(read.fingerprint(), event.fingerprint());
        prop_assert_eq!(canonical(&read.attributes), canonical(&event.attributes));
        prop_assert_eq!(Event { attributes: event.attributes.clone(), ..read }, event);
    }

    /// Events that differ have different fingerprints; the id does not count.
    #[test]
    fn different_events_have_different_fingerprints(a in events(), b in events()) {
        let alike = Event { id: b.id.clone(), ..a.clone() };
        prop_assert_eq!(alike.fingerprint(), a.fingerprint());
        let mixed = [
            Event { event_type: b.event_type.clone(), ..a.clone() },
            Event { customer: b.customer.clone(), ..a.clone() },
            Event { visitor: b.visitor.clone(), ..a.clone() },
            Event { at_ms: b.at_ms, ..a.clone() },
            Event { attributes: b.attributes.clone(), ..a.clone() },
        ];
        for other in mixed {
            prop_assert_eq!(other == a, other.fingerprint() == a.fingerprint());
        }
    }

    #[test]
    fn no_text_panics_the_reader(text: String, bytes: Vec<u8>) {
        let _ = Event::read(&text);
        let _ = Event::read(&String::from_utf8_lossy(&bytes));
        let _ = Pointer::new(text);
    }
}
