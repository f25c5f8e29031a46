//! Settings of the CAPTCHA.
//!
//! Turnstile, hCaptcha and reCAPTCHA share one protocol: a form with the secret and the client's response, and a JSON
//! object with the result in `success`.

use alloc::string::String;
use alloc::sync::Arc;

use serde::Deserialize;
use weir_base::FieldError;
use weir_engine::config::{Environment, SecretSource};

use super::within;

/// The maximum length of a setting in bytes.
const TEXT_LEN_MAX: usize = 1_024;

/// Bot challenge for order tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptchaConfig {
    /// Envoy cluster of the provider, with TLS: `challenges.cloudflare.com`, `api.hcaptcha.com` or
    /// `www.google.com`.
    pub cluster: String,
    /// Host of the provider.
    pub host: String,
    /// Verification path: `/turnstile/v0/siteverify`, `/siteverify` or `/recaptcha/api/siteverify`.
    pub path: String,
    /// Public key, sent to clients for the CAPTCHA widget.
    pub site_key: String,
    /// Secret key.
    pub secret: SecretSource,
    /// Timeout of the provider, 100 to 10,000. Default: 2,000.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// Send the client's address to the provider. Default: false.
    #[serde(default)]
    pub tells_address: bool,
    /// Default: `refuse`.
    #[serde(default)]
    pub if_unreachable: UnreachablePolicy,
}

/// Behaviour when the CAPTCHA provider does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnreachablePolicy {
    /// Refuse the request with 503 `unavailable`.
    #[default]
    Refuse,
    /// Issue the token without the CAPTCHA.
    Pass,
}

/// The validated CAPTCHA settings.
#[derive(Clone, Debug)]
pub struct Captcha {
    /// See [`CaptchaConfig::cluster`].
    pub cluster: Arc<str>,
    /// See [`CaptchaConfig::host`].
    pub host: String,
    /// See [`CaptchaConfig::path`].
    pub path: String,
    /// See [`CaptchaConfig::site_key`].
    pub site_key: String,
    /// The secret key.
    pub secret: Secret,
    /// See [`CaptchaConfig::timeout_ms`].
    pub timeout_ms: u64,
    /// See [`CaptchaConfig::tells_address`].
    pub tells_address: bool,
    /// See [`CaptchaConfig::if_unreachable`].
    pub if_unreachable: UnreachablePolicy,
}

/// A secret that is hidden in logs.
#[derive(Clone)]
pub struct Secret(pub String);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

impl CaptchaConfig {
    pub(super) fn checked(&self, environment: Environment<'_>) -> Result<Captcha, FieldError> {
        check_text("captcha.cluster", &self.cluster)?;
        check_text("captcha.host", &self.host)?;
        check_text("captcha.path", &self.path)?;
        check_text("captcha.site_key", &self.site_key)?;
        if !self.path.starts_with('/') {
            return Err(FieldError::new("captcha.path", "must begin with /"));
        }
        within("captcha.timeout_ms", self.timeout_ms, 100, 10_000)?;
        let secret = self.secret.read("captcha.secret", environment)?;
        let secret = String::from_utf8(secret)
            .map_err(|_| FieldError::new("captcha.secret.env", "must be UTF-8 text"))?;
        check_text("captcha.secret.env", secret.trim())?;
        Ok(Captcha {
            cluster: self.cluster.as_str().into(),
            host: self.host.clone(),
            path: self.path.clone(),
            site_key: self.site_key.clone(),
            secret: Secret(secret.trim().into()),
            timeout_ms: self.timeout_ms,
            tells_address: self.tells_address,
            if_unreachable: self.if_unreachable,
        })
    }
}

fn check_text(path: &str, text: &str) -> Result<(), FieldError> {
    let is_good = (1..=TEXT_LEN_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    match is_good {
        true => Ok(()),
        false => {
            let problem = "must be 1 to 1,024 visible ASCII characters";
            Err(FieldError::new(path, problem))
        }
    }
}

fn default_timeout_ms() -> u64 {
    2_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn checked(more: &str) -> Result<Captcha, FieldError> {
        let json = format!(
            r#"{{"cluster":"turnstile","host":"challenges.cloudflare.com","path":"/turnstile/v0/siteverify","site_key":"0x4AAA",
                "secret":{{"env":"WEIR_CAPTCHA_SECRET"}}{more}}}"#
        );
        let config: CaptchaConfig = weir_engine::config::parse(json.as_bytes())?;
        config.checked(&|name| (name == "WEIR_CAPTCHA_SECRET").then(|| b"1x00\n".to_vec()))
    }

    #[test]
    fn captcha_defaults_refuse_on_timeout_and_send_no_address() {
        let captcha = checked("").unwrap();
        assert_eq!(captcha.if_unreachable, UnreachablePolicy::Refuse);
        assert!(!captcha.tells_address);
        assert_eq!(
            (captcha.timeout_ms, captcha.secret.0.as_str()),
            (2_000, "1x00")
        );
        assert!(!format!("{captcha:?}").contains("1x00"));
    }

    #[test]
    fn invalid_captcha_fields_are_refused_with_their_paths() {
        let refused = |from: &str, to: &str| {
            let json =
                r#"{"cluster":"c","host":"h","path":"/p","site_key":"k","secret":{"env":"S"}}"#;
            assert!(json.contains(from), "{from}");
            let json = json.replacen(from, to, 1);
            let config = weir_engine::config::parse::<CaptchaConfig>(json.as_bytes());
            let checked = config.and_then(|config| {
                config.checked(&|name| (name == "S").then(|| b"secret".to_vec()))
            });
            checked.unwrap_err().path
        };
        assert_eq!(refused(r#""c""#, r#""""#), "captcha.cluster");
        assert_eq!(refused(r#""h""#, r#""a b""#), "captcha.host");
        assert_eq!(refused(r#""/p""#, r#""p""#), "captcha.path");
        assert_eq!(refused(r#""k""#, r#""ü""#), "captcha.site_key");
        assert_eq!(refused(r#""S""#, r#""NONE""#), "captcha.secret.env");
        assert_eq!(
            checked(r#","timeout_ms":99"#).unwrap_err().path,
            "captcha.timeout_ms"
        );
        assert_eq!(
            checked(r#","if_unreachable":"guess""#).unwrap_err().path,
            "if_unreachable"
        );
    }
}
