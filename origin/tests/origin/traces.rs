//! Traces, as a collector receives them.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio_util::sync::CancellationToken;
use weir_origin::http::server::serve;
use weir_stack::http::{self, Method};

use crate::probes::start;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// All spans that a collector received.
#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<Span>>>);

impl Collected {
    /// Listens and returns the address.
    async fn listen(&self) -> String {
        let take = async |State(all): State<Self>, body: Bytes| {
            let sent = ExportTraceServiceRequest::decode(body).unwrap();
            let scopes = sent
                .resource_spans
                .into_iter()
                .flat_map(|one| one.scope_spans);
            let spans = scopes.flat_map(|scope| scope.spans);
            all.0.lock().unwrap().extend(spans);
        };
        let routes = Router::new().route("/v1/traces", post(take));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = routes.with_state(self.clone());
        tokio::spawn(serve(listener, routes, CancellationToken::new()));
        format!("http://{address}/v1/traces")
    }

    fn spans(&self) -> Vec<Span> {
        self.0.lock().unwrap().clone()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value of an attribute as text.
fn attribute(span: &Span, key: &str) -> Option<String> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let all = span.attributes.iter();
    let value = all
        .clone()
        .find(|one| one.key == key)?
        .value
        .clone()?
        .value?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn request_is_a_span_of_its_named_trace() {
    let collected = Collected::default();
    let url = collected.listen().await;
    let dir = tempfile::tempdir().unwrap();
    // Only the request's own trace decides.
    let flags = ["--otlp-url", &url, "--otlp-share", "0"].map(str::to_owned);
    let mut origin = start(&dir, dir.path(), &flags).await;
    let bearer = format!("Bearer {}", crate::support::TOKEN);
    let ask = async |path: &str, traceparent: Option<String>| {
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(traceparent.as_deref().map(|value| ("traceparent", value)));
        let url = format!("{}{path}", origin.admin_url());
        let answer = http::send(Method::GET, &url, &headers, String::new());
        answer.await.unwrap().status
    };
    assert_eq!(ask("/sales", None).await, 200);
    let not_sampled = format!("00-{}-{PARENT}-00", "a".repeat(32));
    assert_eq!(ask("/sales", Some(not_sampled)).await, 200);
    let sampled = format!("00-{TRACE}-{PARENT}-01");
    assert_eq!(ask("/sales/none", Some(sampled)).await, 404);
    // Pending spans are sent before the process ends.
    origin.process().stop();
    let spans = collected.spans();
    let is_of_trace = |span: &&Span| hex(&span.trace_id) == TRACE;
    assert!(spans.iter().all(|span| is_of_trace(&span)), "{spans:#?}");
    let request = spans.iter().find(|span| span.name == "GET /sales/{id}");
    let request = request.unwrap();
    assert_eq!(hex(&request.parent_span_id), PARENT);
    let expected = |key| attribute(request, key).unwrap();
    assert_eq!(expected("http.request.method"), "GET");
    assert_eq!(expected("http.route"), "/sales/{id}");
    assert_eq!(expected("http.response.status_code"), "404");
    let requested = spans
        .iter()
        .find(|span| span.parent_span_id == request.span_id);
    let requested = requested.unwrap();
    assert_eq!(requested.name, "sql");
    // The statement without its values.
    let statement = attribute(requested, "db.query.text").unwrap();
    assert!(
        statement.contains("SELECT") && !statement.contains("none"),
        "{statement}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_trace_collector_stops_no_request() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = "http://127.0.0.1:9/v1/traces";
    let flags = ["--otlp-url", nowhere].map(str::to_owned);
    let mut origin = start(&dir, dir.path(), &flags).await;
    let health = format!("{}/healthz", origin.admin_url());
    for _ in 0..20 {
        assert_eq!(http::get(&health).await.unwrap().status, 200);
    }
    origin.process().stop();
    let log = std::fs::read_to_string(dir.path().join("origin.log")).unwrap();
    assert!(log.contains("\"stopped\""), "{log}");
}
