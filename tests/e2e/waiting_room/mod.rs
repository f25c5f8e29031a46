//! The waiting room in real Envoys with a real Redis: who enters when, despite crashes.

mod draw;
mod failures;
mod operators;
mod page;
mod queue;
mod sale;

use std::time::Duration;

use anyhow::Result;
use weir_tests::{Person, Rooms};

/// Visitors come one after the other, each at another gateway than the previous one. Returns them, and the indices of
/// those who entered immediately.
async fn come(rooms: &Rooms, count: usize) -> Result<(Vec<Person>, Vec<usize>)> {
    let (mut people, mut entered) = (Vec::new(), Vec::new());
    for number in 0..count {
        let person = Person::default();
        if rooms.visit(number % rooms.envoys.len(), &person).await? {
            entered.push(number);
        }
        people.push(person);
    }
    Ok((people, entered))
}

/// All waiting visitors poll repeatedly, the last ones first, until `count` are inside. Returns the order in which they
/// entered.
async fn enter_all(
    rooms: &Rooms,
    people: &[Person],
    mut entered: Vec<usize>,
    count: usize,
) -> Result<Vec<usize>> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while entered.len() < count {
        anyhow::ensure!(
            tokio::time::Instant::now() < deadline,
            "only {entered:?} entered"
        );
        let mut next = Vec::new();
        for (number, person) in people.iter().enumerate().rev() {
            if !entered.contains(&number)
                && rooms.visit(number % rooms.envoys.len(), person).await?
            {
                next.push(number);
            }
        }
        next.sort_unstable();
        entered.append(&mut next);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(entered)
}
