use super::*;
use crate::event::tests::events;
use crate::partition::{PARTITIONS, partition};
use crate::routes::Routes;
use crate::stamps::Kind;
use alloc::string::ToString;
use alloc::vec;
use core::net::IpAddr;
use proptest::prelude::*;

fn stamps(consent: Consent) -> Stamps {
    Stamps {
        key: KeyName::new("shop-web").unwrap(),
        kind: Kind::Browser,
        received_ms: 1_700_000_000_000,
        address: Network::from_address(b"203.0.113.7:80"),
        consent,
    }
}

fn view() -> Event {
    let json = r#"{"id":"5f0c","type":"view","visitor":"v1","at_ms":1699999995000,"attributes":{"sku":"a1"}}"#;
    Event::read(json).unwrap()
}

fn decided() -> EventAttribution {
    EventAttribution {
        customer: Some(CustomerId::new("u1").unwrap()),
        at_ms: 1_699_999_995_000,
        topics: Routes::default().topics(&view()),
    }
}

fn envelope() -> Envelope {
    Envelope::new(view(), &stamps(Consent::Full), decided())
}

/// Any envelope.
pub(crate) fn envelopes() -> impl Strategy<Value = Envelope> {
    let topics = prop::collection::vec("[a-z0-9_.-]{1,64}", 0..=TOPICS_MAX);
    let rest = (
        any::<u64>(),
        any::<u64>(),
        any::<Option<IpAddr>>(),
        topics,
        any::<[u8; 16]>(),
        prop::option::of("[!-~]{1,128}"),
    );
    (events(), rest).prop_map(
        |(event, (at_ms, received_ms, address, topics, fingerprint, customer))| {
            let stamps = Stamps {
                received_ms,
                address: address.map(Network::of_ip),
                ..stamps(Consent::Full)
            };
            let topics = topics.into_iter().map(|topic| Topic::new(topic).unwrap());
            let decided = EventAttribution {
                customer: customer.map(|name| CustomerId::new(name).unwrap()),
                at_ms,
                topics: topics.collect(),
            };
            Envelope {
                fingerprint: Fingerprint(fingerprint),
                ..Envelope::new(event, &stamps, decided)
            }
        },
    )
}

/// Stored logs depend on this version: it may never change.
#[test]
fn envelope_encoding_matches_fixed_bytes() {
    let mut envelope = envelope();
    envelope.fingerprint = Fingerprint(*b"0123456789abcdef");
    let expected = [
        // Version, flags: customer, visitor, an IPv4 network.
        b"\x01\x07".as_slice(),
        // 1,700,000,000,000, and 5,000 before it.
        b"\x80\xd0\x95\xff\xbc\x31",
        b"\x8f\x4e",
        b"0123456789abcdef",
        b"\x045f0c\x04view\x08shop-web\x02u1\x02v1",
        &[203, 0, 113],
        b"\x01\x06events",
        b"\x0c{\"sku\":\"a1\"}",
    ];
    assert_eq!(envelope.encode(), expected.concat());
    assert_eq!(Envelope::decode(&expected.concat()), Ok(envelope));
}

#[test]
fn encoded_view_is_at_most_120_bytes() {
    let mut event = view();
    event.id = Some(EventId::new("0196a5b0-7f0c-7c53-9a3e-2f4f0c6d9b11").unwrap());
    let length = Envelope::new(event, &stamps(Consent::Full), decided())
        .encode()
        .len();
    assert!(length <= 120, "{length}");
}

#[test]
fn anonymous_event_contains_no_personal_data() {
    let anonymous = Envelope::new(view(), &stamps(Consent::Anonymous), decided());
    assert_eq!(
        (&anonymous.customer, &anonymous.visitor, anonymous.address),
        (&None, &None, None)
    );
    let bytes = anonymous.encode();
    let contains = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    assert!(!contains(b"u1") && !contains(b"v1") && contains(b"a1"));
    // Nor by its fingerprint: knowing a visitor does not help to find the event.
    let mut other = view();
    other.visitor = Some(VisitorId::new("v2").unwrap());
    let other = Envelope::new(other, &stamps(Consent::Anonymous), decided());
    assert_eq!(other.fingerprint, anonymous.fingerprint);
    assert_ne!(envelope().fingerprint, anonymous.fingerprint);
}

#[test]
fn events_of_a_customer_share_one_partition() {
    let of = |envelope: &Envelope| partition(&envelope.partition_key(), PARTITIONS);
    let first = envelope();
    let second = Envelope {
        id: EventId::new("other").unwrap(),
        visitor: None,
        ..first.clone()
    };
    assert_eq!(first.partition_key(), "u1");
    assert_eq!(of(&first), of(&second));
    let guest = Envelope {
        customer: None,
        ..first.clone()
    };
    assert_eq!(guest.partition_key(), "g:v1");
    let anonymous = Envelope {
        visitor: None,
        ..guest
    };
    assert_eq!(anonymous.partition_key(), "5f0c");
}

#[test]
fn envelope_is_displayed_as_json() {
    let mut envelope = envelope();
    assert_eq!(
        serde_json::to_string(&envelope).unwrap(),
        concat!(
            r#"{"id":"5f0c","type":"view","customer":"u1","visitor":"v1","at_ms":1699999995000,"#,
            r#""received_ms":1700000000000,"key":"shop-web","address":"203.0.113.0/24","#,
            r#""topics":["events"],"attributes":{"sku":"a1"}}"#
        )
    );
    envelope.attributes = "nonsense".into();
    assert!(serde_json::to_string(&envelope).is_err());
    assert_eq!(
        envelope.read_attributes(),
        Err(EnvelopeError::Bad("attributes"))
    );
}

#[test]
fn invalid_envelope_fields_are_refused() {
    let bytes = envelope().encode();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes.splice(at..=at, new.iter().copied());
        Envelope::decode(&bytes)
    };
    assert_eq!(with(0, &[2]), Err(EnvelopeError::Version(2)));
    assert_eq!(with(1, &[0x17]), Err(EnvelopeError::Bad("flags")));
    assert_eq!(with(1, &[0x0f]), Err(EnvelopeError::Bad("flags")));
    // The same number in a longer encoding.
    assert_eq!(with(7, &[0xb1, 0]), Err(EnvelopeError::Bad("receipt")));
    let endless = [&[1, 0], [0xff; 12].as_slice()].concat();
    assert_eq!(
        Envelope::decode(&endless),
        Err(EnvelopeError::Bad("receipt"))
    );
    let more = [bytes.as_slice(), b"x"].concat();
    assert_eq!(Envelope::decode(&more), Err(EnvelopeError::Trailing(1)));
    assert_eq!(Envelope::decode(b""), Err(EnvelopeError::CutOff));
}

#[test]
fn longest_envelope_is_within_the_length_limit() {
    let long = |length: usize| "x".repeat(length);
    let topics = (10..10 + TOPICS_MAX).map(|n| Topic::new(format!("{n}{}", long(62))).unwrap());
    let envelope = Envelope {
        id: EventId::new(long(64)).unwrap(),
        event_type: EventType::new(long(64)).unwrap(),
        customer: Some(CustomerId::new(long(128)).unwrap()),
        visitor: Some(VisitorId::new(long(128)).unwrap()),
        at_ms: 0,
        received_ms: u64::MAX,
        key: KeyName::new(long(64)).unwrap(),
        address: Network::from_address(b"2001:db8::1"),
        topics: topics.collect(),
        attributes: long(EVENT_LEN_MAX),
        fingerprint: Fingerprint([0xff; 16]),
    };
    let bytes = envelope.encode();
    assert!(bytes.len() <= ENVELOPE_LEN_MAX, "{}", bytes.len());
    assert_eq!(Envelope::decode(&bytes), Ok(envelope.clone()));
    let too_long = Envelope {
        attributes: long(EVENT_LEN_MAX + 1),
        ..envelope
    };
    assert_eq!(
        Envelope::decode(&too_long.encode()),
        Err(EnvelopeError::Bad("attributes"))
    );
}

proptest! {
    #[test]
    fn encoded_envelope_round_trips(envelope in envelopes()) {
        let bytes = envelope.encode();
        prop_assert!(bytes.len() <= ENVELOPE_LEN_MAX);
        prop_assert_eq!(Envelope::decode(&bytes), Ok(envelope));
    }

    #[test]
    fn truncated_envelope_is_refused(envelope in envelopes(), at: prop::sample::Index) {
        let bytes = envelope.encode();
        let at = at.index(bytes.len());
        prop_assert_eq!(Envelope::decode(&bytes[..at]), Err(EnvelopeError::CutOff));
    }

    /// Every envelope that decodes encodes to the same bytes.
    #[test]
    fn changed_envelope_is_refused_or_reencodes_to_the_same_bytes(
        envelope in envelopes(), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = envelope.encode();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(read) = Envelope::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_the_envelope_decoder(bytes: Vec<u8>) {
        let _ = Envelope::decode(&bytes);
        let _ = Envelope::decode(&[vec![VERSION], bytes].concat());
    }

    #[test]
    fn zigzag_encoding_round_trips(a: u64) {
        prop_assert_eq!(unzigzag(zigzag(a)), a);
    }
}

#[test]
fn zigzag_maps_small_differences_to_small_numbers() {
    let of = |difference: i64| zigzag(difference.cast_unsigned());
    assert_eq!([0, -1, 1, -2].map(of), [0, 1, 2, 3]);
    assert_eq!(
        Envelope::decode(&[9]).unwrap_err().to_string(),
        "unsupported envelope version 9, expected 1"
    );
}
