//! What is signed on one host counts on another.

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

/// In the place of a host: the code that the origin uses.
const ORIGIN: &str = "origin";

/// Whether what each one has signed counted with each other one.
#[derive(Debug)]
pub struct Matrix {
    names: Vec<&'static str>,
    /// What came of it, by who minted and who was brought the token.
    tokens: BTreeMap<(&'static str, &'static str), String>,
    /// What the origin found in the claim of each.
    claims: BTreeMap<&'static str, String>,
    /// Those that claim nothing: a gateway does it for them.
    edges: Vec<&'static str>,
}

/// Brings every host's token to every host, and every host's claim to the origin's code.
///
/// # Errors
/// When a host does not run.
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
        let brought = numbered.map(|(number, (_, token))| with_token(&accepts, token, number));
        let brought: Vec<Vector> = brought.collect::<Result<_>>()?;
        for ((minter, _), replay) in tokens.iter().zip(host.replay(&brought)?) {
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

/// The same vector with another token, and keys of its own in Redis: a host may have several of them at once.
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

/// What the origin's code says of the claim that a request has gone on with.
fn claim_in(outcome: &Outcome) -> String {
    let Outcome::WentOn { added, .. } = outcome else {
        return NO_CLAIM.into();
    };
    let find = |name: &str| {
        added
            .iter()
            .find(|(known, _)| known == name)
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

/// What an edge does with a good token, and what it signs.
const SENT_ON: &str = "goes on";
const NO_CLAIM: &str = "no claim";

impl Matrix {
    /// Whether everything counted everywhere.
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

    /// What is right for this host: with a good token, and of a claim.
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
