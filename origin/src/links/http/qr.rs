//! The admin's routes of QR codes.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::links::{NamedLink, found};
use crate::http::Problem;
use crate::links::Links;
use crate::links::qr::{self, Colour, Level, QrError, Style};

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
    let (url, style) = drawn(&links, named, asked).await?;
    let image = qr::svg(&url, style).map_err(|error| refused(&error))?;
    // It comes with the token only, and may still be opened by itself: it runs nothing.
    let policy = (header::CONTENT_SECURITY_POLICY, "default-src 'none'");
    Ok(([kind("image/svg+xml"), policy], image).into_response())
}

/// `GET /links/{code}/qr.png`.
pub(super) async fn png(
    links: Links,
    named: NamedLink,
    asked: Result<Query<QrQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let (url, style) = drawn(&links, named, asked).await?;
    let image = qr::png(&url, style).map_err(|error| refused(&error))?;
    Ok(([kind("image/png")], image).into_response())
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
    let style = asked.style().map_err(|error| refused(&error))?;
    Ok((found(links, &id).await?.url, style))
}

fn refused(error: &QrError) -> Problem {
    Problem::invalid_query(error.to_string())
}
