//! Deferred deep links: reports the target of a click to an app that was installed after it.

use axum::Json;
use axum::extract::Path;
use serde::Serialize;
use utoipa::ToSchema;
use weir_link::code::{Code, DomainId};
use weir_link::record::{App, Platform};

use super::links::not_found;
use super::refusals::UNKNOWN_CLICK;
use crate::Links;
use crate::find::FindError;
use crate::state::State;
use weir_origin_core::http::Problem;

/// Maximum age of a click, in milliseconds: users open an app some time after the installation.
const TOLD_FOR_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Target of a click, for an app that was installed after it.
#[derive(Serialize, ToSchema)]
pub(super) struct ClickedLink {
    /// The domain of the link.
    #[schema(value_type = String)]
    domain: DomainId,
    /// Its code.
    #[schema(value_type = String)]
    code: Code,
    /// Click time, in milliseconds since the Unix epoch.
    clicked_at_ms: u64,
    /// Current target.
    target: String,
    /// Apps of the link.
    apps: Vec<ClickedApp>,
}

/// An app that a link opens.
#[derive(Serialize, ToSchema)]
struct ClickedApp {
    /// Platform.
    platform: Platform,
    /// URL for the app.
    url: String,
}

/// Get the current fields of a clicked link, for 7 days after the click. An app uses it after installation, with the
/// click id from the app store.
#[utoipa::path(
    get,
    path = "/clicks/{id}",
    operation_id = "getClickedLink",
    params(("id" = String, Path, description = "Click id, from the parameter `weir_click`.", max_length = 256)),
    responses((status = 200, description = "The link's current fields", body = ClickedLink)),
)]
pub(super) async fn get(
    links: Links,
    Path(id): Path<String>,
) -> Result<Json<ClickedLink>, Problem> {
    let click = links.read_click(id.as_bytes()).ok_or_else(unknown)?;
    let age_ms = links.now_ms().saturating_sub(click.at_ms);
    if age_ms > TOLD_FOR_MS {
        return Err(unknown());
    }
    let found = match links.finder().find(&click.link).await {
        Ok(found) => found,
        Err(FindError::Unknown) => return Err(unknown()),
        Err(failure) => return Err(not_found(failure)),
    };
    let state = links.states().of_one(&found).await?.state;
    let link = &found.link;
    // The fields of a password-protected link require the password each time.
    if link.guard.is_some() || matches!(state, State::Disabled | State::Ended) {
        return Err(unknown());
    }
    let app = |app: &App| ClickedApp {
        platform: app.platform,
        url: app.url.clone(),
    };
    Ok(Json(ClickedLink {
        domain: click.link.domain,
        code: click.link.code,
        clicked_at_ms: click.at_ms,
        target: link.target.clone(),
        apps: link.apps.iter().map(app).collect(),
    }))
}

fn unknown() -> Problem {
    UNKNOWN_CLICK.because("there is no such click, or its link no longer exists")
}
