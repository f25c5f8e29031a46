//! The claim ticket and its signature.

use weir_base::id::UserId;
use weir_base::key::{SignatureError, SigningKey};
use weir_sale::claim::Ticket;

/// [`Ticket::decode`] and [`SigningKey::verify`] of a claim and a signature, separated by a line feed. Checks that a
/// decoded ticket encodes to the same text, except for the spelling of numbers. Checks that only the key's own
/// signature of the same claim is valid, in hex of either case.
pub fn claim_ticket(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (claim, signature) = text.split_once('\n').unwrap_or((text, ""));
    if let Ok(ticket) = Ticket::decode(claim) {
        check_ticket(claim, &ticket);
    }
    check_signature(claim, signature);
}

fn check_ticket(claim: &str, ticket: &Ticket) {
    let written = ticket.encode();
    assert_eq!(Ticket::decode(&written).as_ref(), Ok(ticket));
    assert_eq!(written, claim);
    assert!(ticket.quantity > 0);
    assert_eq!(UserId::new(ticket.user.as_str()).as_ref(), Ok(&ticket.user));
    let id = ticket.claim_id();
    let parts: Vec<&str> = id.as_str().split('.').collect();
    let (shard, generation) = (ticket.shard.to_string(), ticket.generation.to_string());
    assert_eq!(parts, [ticket.sale.as_str(), &shard, &generation]);
}

fn check_signature(claim: &str, signature: &str) {
    let key = SigningKey::new("k1", &[7; 32]).expect("a good key");
    let own = key.sign(claim);
    assert_eq!(key.verify(claim, &own), Ok(()));
    assert_eq!(
        key.verify(&format!("{claim} "), &own),
        Err(SignatureError::Wrong)
    );
    let other = SigningKey::new("k1", &[8; 32]).expect("a good key");
    assert_eq!(other.verify(claim, &own), Err(SignatureError::Wrong));

    let expected = match signature.split_once(';') {
        None => Err(SignatureError::Malformed),
        Some((_, tag)) if hex::decode(tag).is_err() => Err(SignatureError::Malformed),
        Some((id, _)) if id != "k1" => Err(SignatureError::UnknownKey),
        Some((_, tag)) if own == format!("k1;{}", tag.to_ascii_lowercase()) => Ok(()),
        Some(_) => Err(SignatureError::Wrong),
    };
    assert_eq!(key.verify(claim, signature), expected);
}
