//! Console sessions: exchange a key for a cookie, and authenticate the cookie.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use super::store::StoredSession;
use super::{ADMIN_TOKEN_ID, AuthLayer, Caller, key};
use crate::clock::now_ms;
use crate::sql::SqlError;

const COOKIE: &str = "weir_session";

/// Header that our pages send with each change. Other sites' pages cannot send it: a custom header needs a CORS
/// preflight, which the admin port never allows.
pub(super) const FROM_PAGE: HeaderName = HeaderName::from_static("x-weir-console");

/// Maximum life of a session in milliseconds, regardless of activity.
const LIFE_MAX_MS: u64 = 12 * 60 * 60 * 1000;

/// Why a sign-in failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignInError {
    #[error(transparent)]
    Sql(#[from] SqlError),
    #[error(transparent)]
    NoRandom(#[from] key::NoRandom),
}

impl AuthLayer {
    /// Starts a session for `caller`, who has presented a key. Returns the cookie's value, which contains the session's
    /// secret.
    pub(super) async fn begin_session(
        &self,
        caller: &Caller,
    ) -> Result<(String, Caller), SignInError> {
        let (id, secret) = (key::new_id()?, key::new_secret()?);
        let now_ms = now_ms();
        // If the key was revoked a moment ago, the proof uses an empty key, and the session never authenticates.
        let holder = self.holder_now(&caller.0.id).await?;
        let existing = holder.map(|(_, existing)| existing).unwrap_or_default();
        let session = StoredSession {
            id: id.clone(),
            key_id: caller.0.id.clone(),
            proof: key::proof(&secret, &existing),
            created_at_ms: now_ms,
            expires_at_ms: now_ms + self.session_ms(),
        };
        self.access.0.store.add_session(&session).await?;
        let cookie = format!("{id}.{secret}");
        Ok((cookie, caller.clone().in_session(id, session.expires_at_ms)))
    }

    fn session_ms(&self) -> u64 {
        let length = self.access.0.settings.session;
        u64::try_from(length.as_millis()).unwrap_or(LIFE_MAX_MS)
    }

    /// Returns the caller with this key id at present, and the hash or secret that the session's proof uses.
    async fn holder_now(&self, key_id: &str) -> Result<Option<(Caller, Vec<u8>)>, SqlError> {
        if key_id == ADMIN_TOKEN_ID {
            let existing = self.token.secret().to_vec();
            return Ok(Some((self.bootstrap(), existing)));
        }
        let stored = self.access.0.store.key(key_id).await?;
        let Some(stored) = stored.filter(|stored| stored.is_good(now_ms())) else {
            return Ok(None);
        };
        let caller = self.access.caller_of(&stored).await?;
        Ok(caller.map(|caller| (caller, stored.hash)))
    }

    /// Returns the caller of the session in the request's cookie. Activity extends the session.
    pub(super) async fn in_session(&self, headers: &HeaderMap) -> Result<Option<Caller>, SqlError> {
        let Some((id, secret)) = cookie(headers) else {
            return Ok(None);
        };
        let (store, now_ms) = (&self.access.0.store, now_ms());
        let Some(session) = store.session(id).await? else {
            return Ok(None);
        };
        let holder = self.holder_now(&session.key_id).await?;
        let Some((caller, existing)) = holder else {
            return Ok(None);
        };
        let is_good =
            now_ms < session.expires_at_ms && key::is_proof(secret, &existing, &session.proof);
        if !is_good {
            return Ok(None);
        }
        let ends_ms = self.extended(&session, now_ms).await?;
        Ok(Some(caller.in_session(session.id, ends_ms)))
    }

    /// Returns when a session ends after activity at `now_ms`. It writes to SQL at most twice per session length, not
    /// on each request.
    async fn extended(&self, session: &StoredSession, now_ms: u64) -> Result<u64, SqlError> {
        let length_ms = self.session_ms();
        let last_ms = session.created_at_ms.saturating_add(LIFE_MAX_MS);
        let ends_ms = last_ms.min(now_ms + length_ms);
        let is_due = session.expires_at_ms.saturating_sub(now_ms) < length_ms / 2;
        if !is_due || ends_ms <= session.expires_at_ms {
            return Ok(session.expires_at_ms);
        }
        let store = &self.access.0.store;
        store.extend_session(&session.id, ends_ms).await?;
        Ok(ends_ms)
    }
}

/// The session's id and secret from the request's cookie.
fn cookie(headers: &HeaderMap) -> Option<(&str, &str)> {
    let lines = headers.get_all(header::COOKIE).iter();
    let mut cookies = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'));
    cookies.find_map(|cookie| {
        let value = cookie.trim().strip_prefix(COOKIE)?.strip_prefix('=')?;
        value.split_once('.')
    })
}

/// The header that sets or deletes the cookie. The cookie ends with the browser or with the session's row in SQL.
pub(super) fn set_cookie(value: Option<&str>, headers: &HeaderMap) -> Option<HeaderValue> {
    let secure = if is_secure(headers) { "; Secure" } else { "" };
    let ends = if value.is_none() { "; Max-Age=0" } else { "" };
    let value = value.unwrap_or_default();
    let text = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}");
    HeaderValue::from_str(&text).ok()
}

/// Whether the browser uses TLS: its `origin` header of each POST shows it, or the proxy's `x-forwarded-proto`.
fn is_secure(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let origin = text(header::ORIGIN).unwrap_or_default();
    let proxy = text(HeaderName::from_static("x-forwarded-proto")).unwrap_or_default();
    origin.starts_with("https://") || proxy.eq_ignore_ascii_case("https")
}

/// Whether the request has the header that our pages send.
pub(super) fn is_from_page(headers: &HeaderMap) -> bool {
    headers.contains_key(FROM_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |&(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn session_cookie_is_found_among_others() {
        let found = headers(&[("cookie", "a=1; weir_session=i.s; b=2")]);
        assert_eq!(cookie(&found), Some(("i", "s")));
        for other in [
            "",
            "weir_session",
            "weir_session=x",
            "xweir_session=i.s",
            "weir_sessions=i.s",
        ] {
            let none = headers(&[("cookie", other)]);
            assert_eq!(cookie(&none), None, "{other}");
        }
    }

    #[test]
    fn cookie_stays_in_browser_and_requires_tls_when_available() {
        let plain = set_cookie(Some("i.s"), &headers(&[("origin", "http://a")])).unwrap();
        let expected = "weir_session=i.s; Path=/; HttpOnly; SameSite=Strict";
        assert_eq!(plain, expected);
        for tls in [("origin", "https://a"), ("x-forwarded-proto", "HTTPS")] {
            let secure = set_cookie(Some("i.s"), &headers(&[tls])).unwrap();
            assert_eq!(secure, format!("{expected}; Secure"));
        }
        let removed = set_cookie(None, &HeaderMap::new()).unwrap();
        assert!(removed.to_str().unwrap().ends_with("; Max-Age=0"));
    }
}
