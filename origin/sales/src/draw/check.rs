//! `weir-origin check-draw`: verifies a draw from its published data, without network.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;

use crate::model::draw_order::{ALGORITHM, commitment, is_ticket, list_hash, places};

/// Verify a draw from its published data. The command uses no network.
#[derive(Clone, Debug, Args)]
pub struct CheckDrawCommand {
    /// File with the final answer of GET /sales/{id}/draw
    #[arg(long, value_name = "FILE")]
    pub draw: PathBuf,

    /// File with all tickets, one per line: the concatenated pages of GET /sales/{id}/draw/entries
    #[arg(long, value_name = "FILE")]
    pub entries: PathBuf,

    /// The commitment that was published before reservations opened
    #[arg(long, value_name = "HEX")]
    pub commitment: Option<String>,

    /// Also print the rank of this ticket; repeatable
    #[arg(long, value_name = "TICKET")]
    pub ticket: Vec<String>,
}

/// The published data of a draw.
#[derive(Debug, Deserialize)]
struct PublishedDraw {
    algorithm: String,
    commitment: String,
    entries: Option<u64>,
    list_sha256: Option<String>,
    seed: Option<String>,
    winners: u64,
}

/// Recomputes the draw and returns the report.
///
/// # Errors
/// When the published data is invalid, or does not match.
pub fn run(command: &CheckDrawCommand) -> Result<String> {
    let draw = read(&command.draw)?;
    let entries = read(&command.entries)?;
    let draw: PublishedDraw = serde_json::from_str(&draw).with_context(|| {
        format!(
            "\"{}\" is not the answer of GET /sales/{{id}}/draw",
            command.draw.display()
        )
    })?;
    if let Some(expected) = &command.commitment {
        ensure!(
            *expected == draw.commitment,
            "the commitment differs from the given one: {}",
            draw.commitment
        );
    }
    check(&draw, &entries, &command.ticket)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read \"{}\"", path.display()))
}

fn check(draw: &PublishedDraw, entries: &str, requested: &[String]) -> Result<String> {
    ensure!(
        draw.algorithm == ALGORITHM,
        "unsupported algorithm \"{}\", expected \"{ALGORITHM}\"",
        draw.algorithm
    );
    let seed = draw
        .seed
        .as_ref()
        .context("the seed is not published yet")?;
    let seed = hex::decode(seed).context("the seed is not hex")?;
    ensure!(
        commitment(&seed) == draw.commitment,
        "the seed does not match the commitment"
    );
    let mut tickets: Vec<&str> = entries.lines().collect();
    tickets.sort_unstable();
    if let Some(odd) = tickets.iter().find(|ticket| !is_ticket(ticket)) {
        bail!("not a ticket: {odd:?}");
    }
    let count = tickets.len() as u64;
    let published_count = draw
        .entries
        .context("the number of tickets is not published yet")?;
    ensure!(
        published_count == count,
        "the file has {count} tickets, but {published_count} were published"
    );
    let hash = list_hash(tickets.iter().copied());
    ensure!(
        draw.list_sha256.as_ref() == Some(&hash),
        "the list does not match the published hash: its hash is {hash}"
    );
    let places = places(&seed, &hash, &tickets);
    let mut message = format!(
        "the seed matches the commitment, and the list matches its hash: {} of {count} tickets have won\n",
        draw.winners.min(count)
    );
    for ticket in requested {
        let place = places.iter().position(|existing| existing == ticket);
        let place = place.with_context(|| format!("{ticket} is not in the list"))? as u64 + 1;
        let has_won = if place <= draw.winners {
            "won"
        } else {
            "not won"
        };
        // Writing to a `String` cannot fail.
        let _ = writeln!(message, "{ticket}: rank {place}, {has_won}");
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(entries: &str) -> PublishedDraw {
        let seed = [7; 32];
        let hash = list_hash(entries.lines());
        PublishedDraw {
            algorithm: ALGORITHM.to_owned(),
            commitment: commitment(&seed),
            entries: Some(entries.lines().count() as u64),
            list_sha256: Some(hash),
            seed: Some(hex::encode(seed)),
            winners: 2,
        }
    }

    fn entries() -> String {
        (0..5).map(|n| format!("{n:032x}\n")).collect()
    }

    #[test]
    fn valid_draw_is_confirmed_with_ranks() {
        let entries = entries();
        let (third, first) = (format!("{:032x}", 0), format!("{:032x}", 2));
        let expected = check(&published(&entries), &entries, &[third, first]).unwrap();
        assert!(expected.contains("2 of 5 tickets have won"), "{expected}");
        assert!(expected.contains("rank 3, not won"), "{expected}");
        assert!(expected.contains("rank 1, won"), "{expected}");
    }

    #[test]
    fn changed_draw_is_rejected_with_the_difference() {
        let entries = entries();
        let fails = |change: fn(&mut PublishedDraw), expected: &str| {
            let mut draw = published(&entries);
            change(&mut draw);
            let error = check(&draw, &entries, &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        fails(|draw| draw.seed = Some(hex::encode([8; 32])), "commitment");
        fails(|draw| draw.seed = None, "not published yet");
        fails(
            |draw| draw.entries = Some(6),
            "the file has 5 tickets, but 6 were published",
        );
        fails(|draw| draw.entries = None, "not published yet");
        fails(
            |draw| draw.algorithm = "weir-draw-2".to_owned(),
            "unsupported algorithm",
        );
        fails(
            |draw| draw.list_sha256 = Some("00".to_owned()),
            "its hash is",
        );
        let more = format!("{entries}{:032x}\n", 9);
        assert!(
            check(&published(&entries), &more, &[]).is_err(),
            "one was added"
        );
        let unknown = format!("{:032x}", 77);
        assert!(check(&published(&entries), &entries, &[unknown]).is_err());
    }
}
