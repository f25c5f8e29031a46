//! The admin's routes of QR codes.

use axum::body::Bytes;
use axum::extract::Query;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use weir_link::click::SCAN_MARKER;

use super::links::{NamedLink, found};
use crate::Links;
use crate::logo::Logo;
use crate::qr::{self, Colour, Level, QrError, Style};
use weir_origin_core::http::Problem;

/// How the code is to be drawn; `domain` belongs to the link's name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QrQuery {
    #[serde(rename = "domain")]
    _domain: Option<String>,
    size: Option<u32>,
    margin: Option<u32>,
    level: Option<String>,
    dark: Option<String>,
    light: Option<String>,
    /// Whether the code has what tells scans apart.
    scans: Option<bool>,
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

/// `GET /links/{code}/qr.svg`.
pub(super) async fn svg(
    links: Links,
    named: NamedLink,
    asked: Result<Query<QrQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    svg_with(&links, named, asked, None).await
}

/// `POST /links/{code}/qr.svg`: the body is a picture for its middle.
pub(super) async fn svg_with_logo(
    links: Links,
    named: NamedLink,
    asked: Result<Query<QrQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    svg_with(&links, named, asked, Some(&logo(body)?)).await
}

async fn svg_with(
    links: &Links,
    named: NamedLink,
    asked: Result<Query<QrQuery>, QueryRejection>,
    logo: Option<&Logo>,
) -> Result<Response, Problem> {
    let (url, style) = drawn(links, named, asked).await?;
    let image = qr::svg(&url, style, logo).map_err(|error| refused(&error))?;
    // It comes with the token only, and may still be opened by itself: it runs nothing.
    let policy = "default-src 'none'; img-src data:";
    let policy = (header::CONTENT_SECURITY_POLICY, policy);
    Ok(([kind("image/svg+xml"), policy], image).into_response())
}

/// `GET /links/{code}/qr.png`.
pub(super) async fn png(
    links: Links,
    named: NamedLink,
    asked: Result<Query<QrQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    png_with(&links, named, asked, None).await
}

/// `POST /links/{code}/qr.png`: the body is a picture for its middle.
pub(super) async fn png_with_logo(
    links: Links,
    named: NamedLink,
    asked: Result<Query<QrQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    png_with(&links, named, asked, Some(&logo(body)?)).await
}

async fn png_with(
    links: &Links,
    named: NamedLink,
    asked: Result<Query<QrQuery>, QueryRejection>,
    logo: Option<&Logo>,
) -> Result<Response, Problem> {
    let (url, style) = drawn(links, named, asked).await?;
    let image = qr::png(&url, style, logo).map_err(|error| refused(&error))?;
    Ok(([kind("image/png")], image).into_response())
}

fn logo(body: Result<Bytes, BytesRejection>) -> Result<Logo, Problem> {
    let file = body.map_err(|_| QrError::Logo("has more than 256 KiB"));
    let logo = file.and_then(|file| Logo::read(&file));
    logo.map_err(|error| {
        Problem::unprocessable("invalid_picture", "No such picture", error.to_string())
    })
}

const fn kind(kind: &'static str) -> (header::HeaderName, &'static str) {
    (header::CONTENT_TYPE, kind)
}

async fn drawn(
    links: &Links,
    NamedLink(id): NamedLink,
    asked: Result<Query<QrQuery>, QueryRejection>,
) -> Result<(String, Style), Problem> {
    let Query(asked) = asked.map_err(|error| Problem::invalid_query(error.body_text()))?;
    let is_marked = asked.scans.unwrap_or(true);
    let style = asked.style().map_err(|error| refused(&error))?;
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
