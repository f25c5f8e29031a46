//! Events from clients and in the log.

use weir_event::answer::{MESSAGE_LEN_MAX, Rejection};
use weir_event::batch::Batch;
use weir_event::clock::{AHEAD_MS_MAX, DAY_MS, occurred_ms};
use weir_event::consent::Consent;
use weir_event::engine::config::Config;
use weir_event::envelope::{ENVELOPE_LEN_MAX, Envelope, EventAttribution};
use weir_event::event::Event;
use weir_event::limits::{EVENTS_MAX, QUERY_LEN_MAX};
use weir_event::name::{EventId, KeyName};
use weir_event::pixel;
use weir_event::routes::Routes;
use weir_event::stamps::{Kind, Stamps};

use crate::config::{check_nothing_follows, check_refusal};

const NOW_MS: u64 = 1_700_000_000_000;

/// A body of events. Checks that each part is parsed or refused with a reason, that parsed events survive the log
/// unchanged, and that a repeated event is recognized.
pub fn event_batch(data: &[u8]) {
    let batch = match Batch::read(data) {
        Ok(batch) => batch,
        Err(refusal) => {
            assert!([400, 413].contains(&refusal.status()));
            return;
        }
    };
    assert!((1..=EVENTS_MAX).contains(&batch.events.len()));
    for sent in &batch.events {
        match sent.read() {
            Ok(event) => {
                assert_eq!(sent.id(), event.id);
                assert_eq!(sent.read().as_ref(), Ok(&event));
                check_event(event, batch.sent_at_ms);
            }
            Err(rejection) => check_rejection(&rejection),
        }
    }
}

/// The query string of an image request.
pub fn event_pixel(data: &[u8]) {
    let rest = pixel::without(data, pixel::KEY);
    assert_eq!(pixel::parameter(&rest, pixel::KEY), None);
    match pixel::read(data) {
        Ok(event) => {
            assert!(data.len() <= QUERY_LEN_MAX && event.customer.is_none());
            assert_eq!(pixel::read(&rest).as_ref(), Ok(&event));
            check_event(event, None);
        }
        Err(rejection) => check_rejection(&rejection),
    }
}

/// The configuration of the filter. Checks that an accepted one is within its bounds, and that a refusal names the
/// field and the reason without showing a secret.
pub fn events_config(data: &[u8]) {
    const SECRET: &str = "f7Gq-secret-of-a-server";
    let environment = |_: &str| -> Option<Vec<u8>> { Some(SECRET.into()) };
    let checked =
        weir_engine::config::parse::<Config>(data).and_then(|config| config.checked(&environment));
    let accepted = match checked {
        Ok(accepted) => accepted,
        Err(refusal) => {
            assert!(!refusal.to_string().contains(SECRET));
            return check_refusal(&refusal);
        }
    };
    check_nothing_follows::<Config>(data);
    assert!(accepted.collect.is_some() || accepted.observe.is_some());
    assert!((1..=256).contains(&accepted.keys.len()));
    assert!(accepted.trusted_hops.is_none_or(|hops| hops <= 16));
    if let Some(collect) = &accepted.collect {
        assert!(collect.path != collect.pixel_path);
        assert!(collect.path.starts_with('/') && collect.pixel_path.starts_with('/'));
    }
    if let Some(observe) = &accepted.observe {
        assert!(accepted.keys.iter().any(|key| key.name == observe.key));
        assert!((1..=EVENTS_MAX).contains(&observe.outbox.events_max));
        assert!((100..=60_000).contains(&observe.outbox.flush_ms));
        assert!((1..=1_000).contains(&observe.outbox.batches_max));
    }
}

/// An envelope. Checks that a parsed one encodes to the same bytes.
pub fn event_envelope(data: &[u8]) {
    let Ok(envelope) = Envelope::decode(data) else {
        return;
    };
    assert_eq!(envelope.encode(), data);
    assert!(data.len() <= ENVELOPE_LEN_MAX);
    assert!(!envelope.partition_key().is_empty());
    let is_json = envelope.read_attributes().is_ok();
    // One parser reads the attributes as an object, the other as any value.
    assert!(!is_json || serde_json::to_string(&envelope).is_ok());
}

fn check_event(event: Event, sent_at_ms: Option<u64>) {
    let fingerprint = event.fingerprint();
    if let Ok(at_ms) = occurred_ms(event.at_ms, sent_at_ms, NOW_MS, DAY_MS) {
        assert!((NOW_MS - DAY_MS..=NOW_MS + AHEAD_MS_MAX).contains(&at_ms));
    }
    let named = event.customer.clone();
    let allowed = event.customer_for(Kind::Browser, None, None);
    assert_eq!(allowed.is_ok(), named.is_none());
    for consent in [Consent::Full, Consent::Anonymous] {
        let stamps = Stamps {
            key: KeyName::new("web").expect("a name"),
            kind: Kind::Server,
            received_ms: NOW_MS,
            address: None,
            consent,
        };
        let decided = EventAttribution {
            customer: named.clone(),
            at_ms: NOW_MS,
            topics: Routes::default().topics(&event),
        };
        let envelope = Envelope::new(event.clone(), &stamps, decided);
        let bytes = envelope.encode();
        assert!(bytes.len() <= ENVELOPE_LEN_MAX);
        assert_eq!(Envelope::decode(&bytes).as_ref(), Ok(&envelope));
        let attributes = envelope.read_attributes().expect("an object");
        let again = Event {
            attributes,
            ..event.clone()
        };
        assert_eq!(again.fingerprint(), fingerprint);
        match consent {
            Consent::Full => assert_eq!(envelope.fingerprint, fingerprint),
            _ => assert!(envelope.customer.is_none() && envelope.visitor.is_none()),
        }
    }
}

fn check_rejection(rejection: &Rejection) {
    assert!((1..=MESSAGE_LEN_MAX).contains(&rejection.message.len()));
    assert!(EventId::new(rejection.reason.label()).is_ok());
}
