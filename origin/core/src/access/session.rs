//! Sessions of the console: a key becomes a cookie, and the cookie is known again.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use super::store::StoredSession;
use super::{ADMIN_TOKEN_ID, AuthLayer, Caller, key};
use crate::clock::now_ms;
use crate::sql::SqlError;

const COOKIE: &str = "weir_session";

/// What a page of ours sends with every change. Pages of others cannot: a browser asks before it sends a header of one's own to
/// another origin, and no route of ours says yes.
pub(super) const FROM_PAGE: HeaderName = HeaderName::from_static("x-weir-console");

/// The longest life of a session, however much it is used, in milliseconds.
const LIFE_MAX_MS: u64 = 12 * 60 * 60 * 1000;

/// What a sign-in came to.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignInError {
    #[error(transparent)]
    Sql(#[from] SqlError),
    #[error(transparent)]
    NoRandom(#[from] key::NoRandom),
}

impl AuthLayer {
    /// A new session of `caller`, who has shown a key: the session's secret name, as its cookie has it.
    pub(super) async fn begin_session(
        &self,
        caller: &Caller,
    ) -> Result<(String, Caller), SignInError> {
        let (id, secret) = (key::new_id()?, key::new_secret()?);
        let now_ms = now_ms();
        // Of a key that was revoked just now nothing is known, and its session opens nothing.
        let holder = self.holder_now(&caller.0.id).await?;
        let known = holder.map(|(_, known)| known).unwrap_or_default();
        let session = StoredSession {
            id: id.clone(),
            key_id: caller.0.id.clone(),
            proof: key::proof(&secret, &known),
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

    /// Who may do what with the key of this id now, and what is known of the key.
    async fn holder_now(&self, key_id: &str) -> Result<Option<(Caller, Vec<u8>)>, SqlError> {
        if key_id == ADMIN_TOKEN_ID {
            let known = self.token.secret().to_vec();
            return Ok(Some((self.bootstrap(), known)));
        }
        let stored = self.access.0.store.key(key_id).await?;
        let Some(stored) = stored.filter(|stored| stored.is_good(now_ms())) else {
            return Ok(None);
        };
        let caller = self.access.caller_of(&stored).await?;
        Ok(caller.map(|caller| (caller, stored.hash)))
    }

    /// Whose session the cookie of a request names. One that is used lives on.
    pub(super) async fn in_session(&self, headers: &HeaderMap) -> Result<Option<Caller>, SqlError> {
        let Some((id, secret)) = cookie(headers) else {
            return Ok(None);
        };
        let (store, now_ms) = (&self.access.0.store, now_ms());
        let Some(session) = store.session(id).await? else {
            return Ok(None);
        };
        let holder = self.holder_now(&session.key_id).await?;
        let Some((caller, known)) = holder else {
            return Ok(None);
        };
        let is_good =
            now_ms < session.expires_at_ms && key::is_proof(secret, &known, &session.proof);
        if !is_good {
            return Ok(None);
        }
        let ends_ms = self.extended(&session, now_ms).await?;
        Ok(Some(caller.in_session(session.id, ends_ms)))
    }

    /// When a session ends that is used at `now_ms`. SQL is told twice in its length, not with every request.
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

/// The id and the secret in a request's cookie.
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

/// The header that sets the cookie, or takes it away. It ends with the browser, and with its row in SQL.
pub(super) fn set_cookie(value: Option<&str>, headers: &HeaderMap) -> Option<HeaderValue> {
    let secure = if is_secure(headers) { "; Secure" } else { "" };
    let ends = if value.is_none() { "; Max-Age=0" } else { "" };
    let value = value.unwrap_or_default();
    let text = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}");
    HeaderValue::from_str(&text).ok()
}

/// Whether the browser came by TLS: it says so itself with every POST, and proxies do.
fn is_secure(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let origin = text(header::ORIGIN).unwrap_or_default();
    let proxy = text(HeaderName::from_static("x-forwarded-proto")).unwrap_or_default();
    origin.starts_with("https://") || proxy.eq_ignore_ascii_case("https")
}

/// Whether a page of ours has sent it, or a program.
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
    fn the_cookie_is_found_among_others() {
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
        let gone = set_cookie(None, &HeaderMap::new()).unwrap();
        assert!(gone.to_str().unwrap().ends_with("; Max-Age=0"));
    }
}
