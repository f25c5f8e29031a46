//! Verifies that each host accepts what another one signed.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;
use weir_base::headers::{CLAIM, CLAIM_SIGNATURE, ORDER_TOKEN};
use weir_base::key::SigningKey;

use crate::host::Host;
use crate::make::{ACCEPTS, MINTS, SECRETS, minted};
use crate::vector::{Outcome, Vector};

/// The name for the origin's code, in place of a host.
const ORIGIN: &str = "origin";

/// The results of each host's tokens and claims on the others.
#[derive(Debug)]
pub struct Matrix {
    names: Vec<&'static str>,
    /// The outcomes, by the issuing and the receiving host.
    tokens: BTreeMap<(&'static str, &'static str), String>,
    /// The origin's verdict on each host's claim.
    claims: BTreeMap<&'static str, String>,
    /// Hosts that grant no claims: a gateway does it for them.
    edges: Vec<&'static str>,
}

/// Sends every host's token to every host, and every host's claim to the origin's code.
///
/// # Errors
/// A host fails.
pub fn matrix(hosts: &mut [Box<dyn Host>], vectors: &[Vector]) -> Result<Matrix> {
    let find = |name: &str| {
        let found = vectors.iter().find(|vector| vector.name == name);
        found
            .cloned()
            .with_context(|| format!("there is no {name}"))
    };
    let (mints, accepts) = (find(MINTS)?, find(ACCEPTS)?);
    let mut tokens = vec![(ORIGIN, minted("s", "alice", mints.steps[0].at_ms))];
    for host in &mut *hosts {
        let outcome = first_outcome(host.as_mut(), &mints)?;
        let token =
            token_of(&outcome).with_context(|| format!("{} mints {outcome:?}", host.name()))?;
        tokens.push((host.name(), token));
    }
    let mut matrix = Matrix {
        names: hosts.iter().map(|host| host.name()).collect(),
        tokens: BTreeMap::new(),
        claims: BTreeMap::new(),
        edges: hosts
            .iter()
            .filter(|host| !host.claims())
            .map(|host| host.name())
            .collect(),
    };
    for host in &mut *hosts {
        let numbered = tokens.iter().enumerate();
        let presented = numbered.map(|(number, (_, token))| with_token(&accepts, token, number));
        let presented: Vec<Vector> = presented.collect::<Result<_>>()?;
        for ((minter, _), replay) in tokens.iter().zip(host.replay(&presented)?) {
            let outcome = replay?.outcomes.into_iter().next().unwrap_or_default();
            matrix
                .tokens
                .insert((*minter, host.name()), outcome.summary());
            matrix.claims.insert(host.name(), claim_in(&outcome));
        }
    }
    Ok(matrix)
}

fn first_outcome(host: &mut dyn Host, vector: &Vector) -> Result<Outcome> {
    let replay = host
        .replay(std::slice::from_ref(vector))?
        .into_iter()
        .next();
    let replay = replay.context("no replay")??;
    replay.outcomes.into_iter().next().context("no outcome")
}

fn token_of(outcome: &Outcome) -> Option<String> {
    let Outcome::Answered { body, .. } = outcome else {
        return None;
    };
    let json: Value = serde_json::from_str(body).ok()?;
    Some(json.get("token")?.as_str()?.to_owned())
}

/// The same vector with another token and its own Redis keys, because a host may run several of them at once.
fn with_token(vector: &Vector, token: &str, number: usize) -> Result<Vector> {
    let prefix = vector.key_prefix().context("no keys in Redis")?;
    let text = serde_json::to_string(vector)?.replace(prefix, &format!("{prefix}-{number}"));
    let mut vector: Vector = serde_json::from_str(&text)?;
    for (name, value) in &mut vector.steps[0].request.headers {
        if name == ORDER_TOKEN {
            *value = token.to_owned();
        }
    }
    Ok(vector)
}

/// The origin code's verdict on the claim in a forwarded request.
fn claim_in(outcome: &Outcome) -> String {
    let Outcome::WentOn { added, .. } = outcome else {
        return NO_CLAIM.into();
    };
    let find = |name: &str| {
        added
            .iter()
            .find(|(existing, _)| existing == name)
            .map(|(_, value)| value.as_str())
    };
    let (Some(claim), Some(signature)) = (find(CLAIM), find(CLAIM_SIGNATURE)) else {
        return NO_CLAIM.into();
    };
    let (_, secret) = SECRETS[0];
    match SigningKey::new("k1", secret.as_bytes()).map(|key| key.verify(claim, signature)) {
        Ok(Ok(())) => GOOD_CLAIM.into(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    }
}

const GOOD_TOKEN: &str = "goes on: granted";
const GOOD_CLAIM: &str = "accepted";

/// The outcome of a valid token at an edge, and its entry for claims.
const SENT_ON: &str = "goes on";
const NO_CLAIM: &str = "no claim";

impl Matrix {
    /// Whether all tokens and claims were accepted.
    pub fn is_right(&self) -> bool {
        let tokens = self.names.len() * (self.names.len() + 1);
        self.tokens.len() == tokens
            && self
                .tokens
                .iter()
                .all(|((_, host), word)| word == self.good(host).0)
            && self.claims.len() == self.names.len()
            && self
                .claims
                .iter()
                .all(|(host, word)| word == self.good(host).1)
    }

    /// The correct outcomes for this host: of a valid token, and of a claim.
    fn good(&self, host: &str) -> (&'static str, &'static str) {
        match self.edges.contains(&host) {
            true => (SENT_ON, NO_CLAIM),
            false => (GOOD_TOKEN, GOOD_CLAIM),
        }
    }

    /// The table.
    pub fn table(&self) -> String {
        let mut text = format!("{:<22}", "token minted on");
        for name in &self.names {
            text += &format!("{name:>18}");
        }
        for minter in [ORIGIN].iter().chain(&self.names) {
            text += &format!("\n{minter:<22}");
            for name in &self.names {
                let word = self
                    .tokens
                    .get(&(*minter, *name))
                    .map_or("nothing", String::as_str);
                text += &format!("{word:>18}");
            }
        }
        text += &format!("\n{:<22}", "claim, at the origin");
        for name in &self.names {
            let word = self.claims.get(name).map_or("nothing", String::as_str);
            text += &format!("{word:>18}");
        }
        text + "\n"
    }
}
