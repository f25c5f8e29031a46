//! The admin routes of QR codes.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::openapi::Object;
use weir_link::click::SCAN_MARKER;

use super::CodeParam;
use super::links::{DomainQuery, NamedLink, found};
use super::refusals::INVALID_PICTURE;
use crate::Links;
use crate::model::logo::Logo;
use crate::model::qr::{self, Colour, Level, QrError, Style};
use weir_origin_core::api::words;
use weir_origin_core::http::{Problem, ReadQuery};

/// Options of the QR code; `domain` selects the link.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct QrQuery {
    /// The domain's id. Default: the first domain.
    #[serde(rename = "domain")]
    #[param(pattern = "^[a-z0-9-]{1,16}$")]
    _domain: Option<String>,
    /// Side length in pixels.
    #[param(minimum = 64, maximum = 2048, default = 512)]
    size: Option<u32>,
    /// Margin in modules.
    #[param(maximum = 16, default = 4)]
    margin: Option<u32>,
    /// Error correction level: recovers 7, 15, 25 or 30 %.
    #[param(schema_with = levels)]
    level: Option<String>,
    /// The darker colour, RRGGBB.
    #[param(pattern = "^[0-9A-Fa-f]{6}$", default = "000000")]
    dark: Option<String>,
    /// The lighter colour; the contrast must be 3 or more.
    #[param(pattern = "^[0-9A-Fa-f]{6}$", default = "ffffff")]
    light: Option<String>,
    /// Whether scans are counted separately, with a parameter in the URL.
    #[param(default = true)]
    scans: Option<bool>,
}

fn levels() -> Object {
    let description = "Error correction level: recovers 7, 15, 25 or 30 %.";
    let mut levels = words(description, ["L", "M", "Q", "H"]);
    levels.default = Some("M".into());
    levels
}

impl QrQuery {
    fn style(self) -> Result<Style, QrError> {
        let usual = Style::default();
        let colour = |name, text: Option<String>, usual| match text {
            Some(text) => Colour::parse(name, &text),
            None => Ok(usual),
        };
        Ok(Style {
            size_px: self.size.unwrap_or(usual.size_px),
            margin: self.margin.unwrap_or(usual.margin),
            level: match self.level {
                Some(letter) => Level::parse(&letter)?,
                None => usual.level,
            },
            dark: colour("dark", self.dark, usual.dark)?,
            light: colour("light", self.light, usual.light)?,
        })
    }
}

/// Get the link's QR code as SVG
#[utoipa::path(
    get,
    path = "/links/{code}/qr.svg",
    operation_id = "getLinkQrSvg",
    params(
        CodeParam,
        DomainQuery, QrQuery,
    ),
    responses((status = 200, description = "The picture", body = String, content_type = "image/svg+xml")),
)]
pub(super) async fn svg(
    links: Links,
    named: NamedLink,
    ReadQuery(query): ReadQuery<QrQuery>,
) -> Result<Response, Problem> {
    svg_with(&links, named, query, None).await
}

/// Get the link's QR code with a logo in the middle
///
/// The body is the logo: a PNG of at most 256 KiB and 1,024 pixels per side. The code uses level H. Weir stores nothing.
#[utoipa::path(
    post,
    path = "/links/{code}/qr.svg",
    operation_id = "drawLinkQrSvg",
    params(
        CodeParam,
        DomainQuery, QrQuery,
    ),
    request_body(content = String, content_type = "image/png"),
    responses((status = 200, description = "The picture", body = String, content_type = "image/svg+xml")),
)]
pub(super) async fn svg_with_logo(
    links: Links,
    named: NamedLink,
    ReadQuery(query): ReadQuery<QrQuery>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    svg_with(&links, named, query, Some(&logo(body)?)).await
}

async fn svg_with(
    links: &Links,
    named: NamedLink,
    query: QrQuery,
    logo: Option<&Logo>,
) -> Result<Response, Problem> {
    let (url, style) = drawn(links, named, query).await?;
    let image = qr::svg(&url, style, logo).map_err(|error| refused(&error))?;
    // The image is served with the token only, and may be opened directly. The policy blocks scripts.
    let policy = "default-src 'none'; img-src data:";
    let policy = (header::CONTENT_SECURITY_POLICY, policy);
    Ok(([kind("image/svg+xml"), policy], image).into_response())
}

/// Get the link's QR code as PNG
#[utoipa::path(
    get,
    path = "/links/{code}/qr.png",
    operation_id = "getLinkQrPng",
    params(
        CodeParam,
        DomainQuery, QrQuery,
    ),
    responses((status = 200, description = "The picture", body = String, content_type = "image/png")),
)]
pub(super) async fn png(
    links: Links,
    named: NamedLink,
    ReadQuery(query): ReadQuery<QrQuery>,
) -> Result<Response, Problem> {
    png_with(&links, named, query, None).await
}

/// Get the link's QR code with a logo in the middle
///
/// The body is the logo: a PNG of at most 256 KiB and 1,024 pixels per side. The code uses level H. Weir stores nothing.
#[utoipa::path(
    post,
    path = "/links/{code}/qr.png",
    operation_id = "drawLinkQrPng",
    params(
        CodeParam,
        DomainQuery, QrQuery,
    ),
    request_body(content = String, content_type = "image/png"),
    responses((status = 200, description = "The picture", body = String, content_type = "image/png")),
)]
pub(super) async fn png_with_logo(
    links: Links,
    named: NamedLink,
    ReadQuery(query): ReadQuery<QrQuery>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    png_with(&links, named, query, Some(&logo(body)?)).await
}

async fn png_with(
    links: &Links,
    named: NamedLink,
    query: QrQuery,
    logo: Option<&Logo>,
) -> Result<Response, Problem> {
    let (url, style) = drawn(links, named, query).await?;
    let image = qr::png(&url, style, logo).map_err(|error| refused(&error))?;
    Ok(([kind("image/png")], image).into_response())
}

fn logo(body: Result<Bytes, BytesRejection>) -> Result<Logo, Problem> {
    let file = body.map_err(|_| QrError::Logo("is larger than 256 KiB"));
    let logo = file.and_then(|file| Logo::read(&file));
    logo.map_err(|error| INVALID_PICTURE.because(error.to_string()))
}

const fn kind(kind: &'static str) -> (header::HeaderName, &'static str) {
    (header::CONTENT_TYPE, kind)
}

async fn drawn(
    links: &Links,
    NamedLink(id): NamedLink,
    query: QrQuery,
) -> Result<(String, Style), Problem> {
    let is_marked = query.scans.unwrap_or(true);
    let style = query.style().map_err(|error| refused(&error))?;
    let mut url = found(links, &id).await?.url;
    if is_marked {
        url.push('?');
        url.push_str(SCAN_MARKER);
    }
    Ok((url, style))
}

fn refused(error: &QrError) -> Problem {
    Problem::invalid_query(error.to_string())
}
