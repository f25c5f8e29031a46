//! OpenTelemetry traces, sent to a collector by OTLP over HTTP: a span per request, with child spans for SQL statements
//! and Redis calls. Disabled without a collector.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, Request, Response};
use clap::Args;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{
    FutureExt, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HeaderExtractor, HttpError};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::warn;

use crate::http::client::{ClientError, HttpClient};

/// The tracer of the process, if a collector is configured.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Service name of all spans.
const SERVICE: &str = "weir-origin";

/// Timeout of the collector.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of an answer that is read, in bytes.
const ANSWER_LEN_MAX: usize = 64 << 10;

/// The flags of traces.
#[derive(Clone, Args)]
pub struct TraceConfig {
    /// OTLP/HTTP collector, such as http://127.0.0.1:4318/v1/traces; unset: no traces
    #[arg(long, env = "WEIR_OTLP_URL")]
    pub otlp_url: Option<String>,

    /// PEM file with the CAs of an https collector; unset: the system's CAs
    #[arg(long, env = "WEIR_OTLP_CA", requires = "otlp_url")]
    pub otlp_ca: Option<PathBuf>,

    /// Sampling ratio for requests without an upstream sampling decision, 0 to 1
    #[arg(long, env = "WEIR_OTLP_SHARE", default_value = "1", value_parser = parse_share)]
    pub otlp_share: f64,
}

pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let share = text
        .parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "must be 0 to 1".to_owned())
}

/// Why tracing cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The URL or the CA certificates are invalid.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The exporter refuses its settings.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
}

/// A running trace exporter.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts the exporter if a collector is configured. Its queue is bounded: while the collector is down, spans are
    /// dropped.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn start(config: &TraceConfig, runtime: &Handle) -> Result<Option<Self>, TraceError> {
        let Some(url) = &config.otlp_url else {
            return Ok(None);
        };
        let client = Client {
            client: Arc::new(HttpClient::new(url, config.otlp_ca.as_deref())?),
            runtime: runtime.clone(),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(url)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(TIMEOUT)
            .build()?;
        let undecided = Sampler::TraceIdRatioBased(config.otlp_share);
        let version = KeyValue::new("service.version", weir_version::long());
        let resource = Resource::builder().with_service_name(SERVICE);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Sampler::ParentBased(Box::new(undecided)))
            .with_resource(resource.with_attribute(version).build())
            .build();
        // If the process already has a tracer, it stays; this provider then receives no spans.
        let _ = TRACER.set(provider.tracer(SERVICE));
        Ok(Some(Self(provider)))
    }

    /// Sends the remaining spans. Blocks until they are sent or have failed.
    pub fn end(&self) {
        if let Err(error) = self.0.shutdown() {
            warn!(%error, "the last traces may not have reached the collector");
        }
    }
}

/// Sends spans with the origin's HTTP client, from any thread.
#[derive(Debug)]
struct Client {
    client: Arc<HttpClient>,
    runtime: Handle,
}

#[async_trait]
impl opentelemetry_http::HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let headers: Vec<_> = parts
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let client = Arc::clone(&self.client);
        let sent = self.runtime.spawn(async move {
            let sent = client.send(Method::POST, client.path(), &headers, body, ANSWER_LEN_MAX);
            tokio::time::timeout(TIMEOUT, sent).await
        });
        let (status, body) = sent.await???;
        let mut response = Response::new(body);
        *response.status_mut() = status;
        Ok(response)
    }
}

/// Attributes of a request's span.
#[derive(Debug)]
pub struct SpanRequest {
    /// The request's method.
    pub method: Method,
    /// The pattern of its path.
    pub route: String,
}

/// Runs `work` in a request's span, within the trace of its headers. `status` reads the status of the answer.
pub async fn request<T>(
    headers: &HeaderMap,
    requested: SpanRequest,
    work: impl Future<Output = T>,
    status: impl Fn(&T) -> u16,
) -> T {
    let Some(tracer) = TRACER.get() else {
        return work.await;
    };
    let parent = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
    let attributes = [
        KeyValue::new("http.request.method", requested.method.to_string()),
        KeyValue::new("http.route", requested.route.clone()),
    ];
    let span = SpanBuilder::from_name(format!("{} {}", requested.method, requested.route))
        .with_kind(SpanKind::Server)
        .with_attributes(attributes);
    let span = tracer.build_with_context(span, &parent);
    let context = parent.with_span(span);
    let done = work.with_context(context.clone()).await;
    let (span, status) = (context.span(), status(&done));
    span.set_attribute(KeyValue::new(
        "http.response.status_code",
        i64::from(status),
    ));
    if status >= 500 {
        span.set_status(Status::error(""));
    }
    span.end();
    done
}

/// Runs `work`, a call to `system`, in a child span of the current request. Background work is not traced.
pub async fn traced_call<T, E>(
    system: &'static str,
    subject: &'static str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let parent = Context::current();
    let is_traced = parent.span().span_context().is_sampled();
    let Some(tracer) = TRACER.get().filter(|_| is_traced) else {
        return work.await;
    };
    let attributes = [
        KeyValue::new("db.system.name", system),
        KeyValue::new("db.query.text", subject),
    ];
    let span = SpanBuilder::from_name(system)
        .with_kind(SpanKind::Client)
        .with_attributes(attributes);
    let span = tracer.build_with_context(span, &parent);
    let context = parent.with_span(span);
    let done = work.with_context(context.clone()).await;
    if done.is_err() {
        context.span().set_status(Status::error(""));
    }
    context.span().end();
    done
}
