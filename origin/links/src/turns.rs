//! A queue for slow work. A few tasks run at once, a few wait, and the rest are refused.
//!
//! Work belongs to a link, or to none. Many requests for one link do not block other links: the next turn goes to a
//! link without one, and a full queue makes room for a link with fewer waiters.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use weir_link::code::LinkId;

/// Maximum number of running tasks. The origin's other work is cheap.
const AT_ONCE: usize = 2;

/// Maximum number of waiting tasks.
const WAITING_MAX: usize = 6;

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// Hands out turns. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    running: Vec<Option<LinkId>>,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    link: Option<LinkId>,
    turn: oneshot::Sender<LinkTurn>,
}

/// A turn, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct LinkTurn {
    turns: Turns,
    link: Option<LinkId>,
}

impl Turns {
    /// Waits for a turn.
    pub(crate) async fn next(&self, link: Option<&LinkId>) -> Result<LinkTurn, QueueFull> {
        let (turn, waiting) = oneshot::channel();
        let link = link.cloned();
        let starts = self.with(|queue| queue.join(Waiter { link, turn }))?;
        if let Some(waiter) = starts {
            return Ok(self.turn(waiter.link));
        }
        waiting.await.map_err(|_| QueueFull)
    }

    fn turn(&self, link: Option<LinkId>) -> LinkTurn {
        LinkTurn {
            turns: self.clone(),
            link,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Queue) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Queue {
    /// Adds a waiter. Returns it if its turn begins at once.
    fn join(&mut self, waiter: Waiter) -> Result<Option<Waiter>, QueueFull> {
        // Remove clients that have disconnected.
        self.waiting.retain(|one| !one.turn.is_closed());
        if self.running.len() < AT_ONCE {
            self.running.push(waiter.link.clone());
            return Ok(Some(waiter));
        }
        if self.waiting.len() >= WAITING_MAX {
            self.make_room(&waiter.link)?;
        }
        self.waiting.push_back(waiter);
        Ok(None)
    }

    /// Refuses the last waiter of the link with the most waiters, if `link` still has fewer afterwards.
    fn make_room(&mut self, link: &Option<LinkId>) -> Result<(), QueueFull> {
        let count = |link: &Option<LinkId>| {
            let waiting = self.waiting.iter();
            waiting.filter(|one| one.link == *link).count()
        };
        let counts = self.waiting.iter().map(|one| count(&one.link));
        let most = counts.max().unwrap_or(0);
        if most <= count(link) + 1 {
            return Err(QueueFull);
        }
        let last = self
            .waiting
            .iter()
            .rposition(|one| count(&one.link) == most);
        last.and_then(|at| self.waiting.remove(at));
        Ok(())
    }

    /// Ends a turn of `link`. Returns the waiter whose turn begins.
    fn end(&mut self, link: &Option<LinkId>) -> Option<Waiter> {
        if let Some(at) = self.running.iter().position(|one| one == link) {
            self.running.swap_remove(at);
        }
        self.waiting.retain(|one| !one.turn.is_closed());
        let is_idle = |one: &Waiter| !self.running.contains(&one.link);
        let at = self.waiting.iter().position(is_idle).unwrap_or(0);
        let next = self.waiting.remove(at)?;
        self.running.push(next.link.clone());
        Some(next)
    }
}

impl Drop for LinkTurn {
    fn drop(&mut self) {
        let next = self.turns.with(|queue| queue.end(&self.link));
        if let Some(Waiter { link, turn }) = next {
            // If its client has just disconnected, the turn is dropped here and goes to the next waiter.
            drop(turn.send(self.turns.turn(link)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::task::JoinHandle;

    fn link(code: &str) -> LinkId {
        format!("d/{code}-link").parse().unwrap()
    }

    /// Requests a turn; returns when it has one or waits for one.
    async fn ask(turns: &Turns, code: &str) -> JoinHandle<Result<LinkTurn, QueueFull>> {
        let (turns, link) = (turns.clone(), link(code));
        let task = tokio::spawn(async move { turns.next(Some(&link)).await });
        tokio::time::sleep(Duration::from_millis(1)).await;
        task
    }

    async fn turn(handle: JoinHandle<Result<LinkTurn, QueueFull>>) -> LinkTurn {
        handle.await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn turns_bound_running_and_waiting_requests_and_refuse_others() {
        let turns = Turns::default();
        let running = [
            turn(ask(&turns, "aa").await).await,
            turn(ask(&turns, "ab").await).await,
        ];
        let mut waiting = Vec::new();
        for _ in 0..WAITING_MAX {
            waiting.push(ask(&turns, "ac").await);
        }
        assert_eq!(
            ask(&turns, "ac").await.await.unwrap().err(),
            Some(QueueFull)
        );
        assert!(waiting.iter().all(|requested| !requested.is_finished()));
        drop(running);
        for requested in waiting {
            drop(turn(requested).await);
        }
        assert!(turns.with(|queue| queue.running.is_empty()));
    }

    #[tokio::test]
    async fn crowded_link_leaves_turns_for_other_links() {
        let turns = Turns::default();
        let mut crowd = Vec::new();
        for _ in 0..AT_ONCE + WAITING_MAX {
            crowd.push(ask(&turns, "aa").await);
        }
        let other = ask(&turns, "ab").await;
        let refused = crowd.pop().unwrap();
        assert_eq!(refused.await.unwrap().err(), Some(QueueFull));
        // It waits for only one turn.
        drop(turn(crowd.remove(0)).await);
        let other = turn(other).await;
        assert!(crowd[1..].iter().all(|requested| !requested.is_finished()));
        drop(other);
    }

    #[tokio::test]
    async fn disconnected_client_takes_no_turn() {
        let turns = Turns::default();
        let running = [
            turn(ask(&turns, "aa").await).await,
            turn(ask(&turns, "aa").await).await,
        ];
        let answer = ask(&turns, "ab").await;
        answer.abort();
        assert!(answer.await.is_err());
        let response = ask(&turns, "ac").await;
        drop(running);
        drop(turn(response).await);
        assert!(turns.with(|queue| queue.running.is_empty() && queue.waiting.is_empty()));
    }
}
