//! Static files of the domains' pages, embedded in the program.

use axum::Router;
use axum::extract::Path;
use axum::http::HeaderName;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

use serde_json::{Map, Value, json};

use super::no_route;
use super::refusal::{NO_ROUTE, Refusal};

/// The content type of HTML.
pub const HTML: &str = "text/html; charset=utf-8";
/// The content type of style sheets.
pub const CSS: &str = "text/css; charset=utf-8";
/// The content type of SVG images.
pub const SVG: &str = "image/svg+xml";
/// The content type of scripts.
pub const JS: &str = "text/javascript; charset=utf-8";

/// A file of a page.
pub struct File {
    /// Its name below the page's path.
    pub name: &'static str,
    /// Its content type.
    pub kind: &'static str,
    /// Its text.
    pub body: &'static str,
}

/// Lists files by name and content type, from the folder `page` next to the source.
#[macro_export]
macro_rules! files {
    ($($name:literal: $kind:expr,)*) => {
        [$($crate::http::files::File {
            name: $name,
            kind: $kind,
            body: include_str!(concat!("page/", $name)),
        },)*]
    };
}
pub use crate::files;

/// The response at a page's path.
pub enum Index {
    /// HTML.
    Html(&'static [File; 1]),
    /// A redirect to this relative URL: another page loads the files as modules.
    Moved(&'static str),
}

/// A page: its security policy, its index and its files.
pub struct Page {
    /// Path of the page; its files are below it.
    pub path: &'static str,
    /// Its name in the OpenAPI document, such as `LinksPage`.
    pub id: &'static str,
    /// Its title, such as `The page of links`.
    pub title: &'static str,
    /// Its content security policy.
    pub policy: &'static str,
    /// The response at the page's path.
    pub index: Index,
    /// The files below the page's path.
    pub files: &'static [File],
}

/// Content security policy of a page: only resources from the origin, nothing inline, no framing. Trusted Types forbid
/// HTML from strings. The literal names the allowed image sources.
#[macro_export]
macro_rules! policy {
    ($pictures:literal) => {
        concat!(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src ",
            $pictures,
            "; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'; trusted-types 'none'"
        )
    };
}
pub use crate::policy;

impl Page {
    /// The OpenAPI operations of its routes: path, description, refusals.
    pub(crate) fn described(&self) -> [(String, Map<String, Value>, &'static [Refusal]); 2] {
        let Self {
            path, id, title, ..
        } = self;
        let responses = match self.index {
            Index::Html(_) => json!({ "200": {
                "description": "The page",
                "content": { "text/html": { "schema": { "type": "string" } } },
            } }),
            Index::Moved(_) => json!({ "308": { "description": "The view in the console" } }),
        };
        let page = json!({
            "operationId": format!("get{id}"),
            "summary": title,
            "responses": responses,
        });
        let file = json!({
            "operationId": format!("get{id}File"),
            "summary": format!("A file of the page at `{path}`"),
            "parameters": [{ "name": "file", "in": "path", "required": true, "description": "Its name",
                "schema": { "type": "string" } }],
            "responses": { "200": { "description": "The file" } },
        });
        let members = |described: Value| match described {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        [
            ((*path).to_owned(), members(page), &[]),
            (format!("{path}/{{file}}"), members(file), &[NO_ROUTE]),
        ]
    }

    /// GET routes of the page and its files.
    pub(crate) fn routes<S: Clone + Send + Sync + 'static>(&'static self) -> Router<S> {
        let index = move || async move {
            match self.index {
                Index::Html([file]) => file.answer(self.policy),
                Index::Moved(to) => Redirect::permanent(to).into_response(),
            }
        };
        let file = move |Path(name): Path<String>| async move {
            match self.files.iter().find(|file| file.name == name) {
                Some(file) => file.answer(self.policy),
                None => no_route().await.into_response(),
            }
        };
        Router::new()
            .route(self.path, get(index))
            .route(&format!("{}/{{file}}", self.path), get(file))
    }
}

impl File {
    /// The file as a response with this content security policy.
    fn answer(&self, policy: &'static str) -> Response {
        let headers: [(HeaderName, &str); 5] = [
            (CONTENT_TYPE, self.kind),
            (CONTENT_SECURITY_POLICY, policy),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            // Files change with the origin's version.
            (CACHE_CONTROL, "no-cache"),
        ];
        (headers, self.body).into_response()
    }
}
