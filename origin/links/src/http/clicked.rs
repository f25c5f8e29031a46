//! What an app that was installed after a click asks: where the click would have led.

use axum::Json;
use axum::extract::Path;
use serde_json::{Value, json};

use super::links::not_found;
use crate::Links;
use crate::find::FindError;
use weir_origin_core::http::Problem;

/// For how long after a click this is told, in milliseconds: people install, and open the app later.
const TOLD_FOR_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// `GET /link-clicks/{name}`: what the link says now. Whoever has the name has followed the link.
pub(super) async fn get(links: Links, Path(name): Path<String>) -> Result<Json<Value>, Problem> {
    let click = links.read_click(name.as_bytes()).ok_or_else(unknown)?;
    let age_ms = links.now_ms().saturating_sub(click.at_ms);
    if age_ms > TOLD_FOR_MS {
        return Err(unknown());
    }
    let found = match links.finder().find(&click.link).await {
        Ok(found) => found,
        Err(FindError::Unknown) => return Err(unknown()),
        Err(failure) => return Err(not_found(failure)),
    };
    let link = &found.link;
    let has_ended = (1..=links.now_ms()).contains(&link.expires_at_ms);
    // What a password protects is for who knows it, each time.
    if link.guard.is_some() || link.is_disabled || has_ended {
        return Err(unknown());
    }
    let apps = link.apps.iter();
    let apps = apps.map(|app| json!({ "platform": app.platform, "url": app.url }));
    Ok(Json(json!({
        "domain": click.link.domain, "code": click.link.code, "clicked_at_ms": click.at_ms,
        "target": link.target, "apps": apps.collect::<Vec<_>>(),
    })))
}

fn unknown() -> Problem {
    let detail = "there is no such click, or its link leads nowhere now";
    Problem::not_found("unknown_click", "Unknown click", detail)
}
