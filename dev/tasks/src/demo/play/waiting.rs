//! The waiting room before the checkout.

use super::super::cast::{Bot, BotTactic, Person};
use super::super::operator;
use super::super::room::{self, Enter, Queue, QueuePoll, RoomBots, RoomResult};
use super::super::tally::Tally;
use super::{PATIENCE, POLL, RUNNING_IN_A_ROW, SalePlay};
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use weir_stack::http::{self, Method};

/// The poll interval that the room requests.
const ROUND: Duration = Duration::from_secs(1);

/// Visitors who came before the room opened.
pub(super) struct LinedUp {
    people: Vec<Person>,
    bots: u64,
    /// The room's counts from earlier demos; `before` has the counts since then.
    remaining: Queue,
    before: Queue,
}

impl LinedUp {
    pub(super) fn people(&self) -> &[Person] {
        &self.people
    }
}

/// People who have been inside, and the time from which the last one's token is valid.
pub(super) struct LetIn {
    pub(super) people: Vec<Person>,
    pub(super) usable: Option<tokio::time::Instant>,
    pub(super) waited: RoomResult,
}

impl SalePlay<'_> {
    /// All come before the sale starts: people once, bots as often as they can.
    pub(super) async fn line_up(&mut self, people: Vec<Person>, bots: &[Bot]) -> Result<LinedUp> {
        let floods = bots.iter().filter(|bot| bot.trick == BotTactic::Flood);
        let floods: Vec<Bot> = floods.cloned().collect();
        let scout = floods.first().context("a demo has bots")?.name.clone();
        let remaining = self.close_room(&scout).await?;
        let count = floods.len() as u64;
        let (crowd, botnet) = (self.people("joining the queue"), self.bots());
        let (received, bots) = tokio::try_join!(
            crowd.play(Enter(self.paths.clone()), people),
            botnet.play(RoomBots(self.paths.clone()), floods),
        )?;
        self.note(received.1, bots.1)?;
        let before = Queue::since(&*self.stack.lock().await, remaining).await?;
        let text = format!(
            "{} people and {count} bots before the start: {} positions, one each",
            received.0.len(),
            before.joined
        );
        self.teller.tell("waiting", text);
        let people = received.0.into_iter().map(QueuePoll::person).collect();
        Ok(LinedUp {
            people,
            bots: count,
            remaining,
            before,
        })
    }

    /// Closes the room until the operator opens it. Returns its counts so far.
    async fn close_room(&self, scout: &str) -> Result<Queue> {
        let stack = self.stack.lock().await;
        room::open(&stack, self.per_minute(), None, operator::now_ms()?).await?;
        let queue = Queue::find(&stack).await?.unwrap_or_default();
        drop(stack);
        self.until_scout(scout, |status| status == 503).await?;
        Ok(queue)
    }

    fn per_minute(&self) -> u64 {
        room::per_minute(self.shares.people)
    }

    /// Opens the room at the start of the sale.
    pub(super) async fn open_room(&self, starts_at_ms: u64) -> Result<()> {
        let stack = self.stack.lock().await;
        let now_ms = operator::now_ms()?;
        room::open(&stack, self.per_minute(), Some(starts_at_ms), now_ms).await
    }

    /// All return repeatedly until they have been inside. Then the room admits everyone.
    pub(super) async fn let_in(&mut self, lined_up: LinedUp, bots: &[Bot]) -> Result<LetIn> {
        let (started, deadline) = (Instant::now(), Instant::now() + PATIENCE);
        let count = lined_up.people.len();
        let (mut waiting, mut inside, mut usable) = (lined_up.people, Vec::new(), None);
        while !waiting.is_empty() {
            ensure!(
                Instant::now() < deadline,
                "{} people are still waiting; their answer was {:?}",
                waiting.len(),
                self.observed.room()
            );
            let enter = Enter(self.paths.clone());
            let (turns, observed) = self.people("waiting").play(enter, waiting).await?;
            self.note(observed, Tally::empty()?)?;
            waiting = Vec::new();
            for turn in turns {
                match turn {
                    QueuePoll::Waits(user) => waiting.push(user),
                    QueuePoll::Inside(user, when) => {
                        usable = usable.max(when);
                        inside.push(user);
                    }
                }
            }
            if !waiting.is_empty() {
                sleep(ROUND).await;
            }
        }
        let elapsed = started.elapsed();
        let text = format!(
            "random order drawn; all {count} entered within {:.1} s, at most {} per minute",
            elapsed.as_secs_f64(),
            self.per_minute()
        );
        self.teller.tell("waiting", text);
        let stack = self.stack.lock().await;
        let after = Queue::since(&stack, lined_up.remaining).await?;
        room::bypass(&stack).await?;
        drop(stack);
        let scout = bots.iter().find(|bot| bot.trick == BotTactic::Flood);
        let scout = &scout.context("a demo has bots")?.name;
        self.until_scout(scout, |status| status != 503).await?;
        Ok(LetIn {
            people: inside,
            usable,
            waited: RoomResult {
                people: count as u64,
                bots: lined_up.bots,
                before: lined_up.before,
                after,
                elapsed,
            },
        })
    }

    /// Each worker applies the operator's change separately: this many consecutive connections must show it.
    async fn until_scout(&self, scout: &str, is_it: impl Fn(u16) -> bool) -> Result<()> {
        let endpoint = self.endpoints.first().context("the sale has no endpoint")?;
        let url = format!("{}{}", endpoint.url(), self.paths.checkout);
        let deadline = Instant::now() + PATIENCE;
        let mut in_a_row = 0;
        while in_a_row < RUNNING_IN_A_ROW {
            let answer = http::send(Method::POST, &url, &[("x-user-id", scout)], "").await?;
            if is_it(answer.status) {
                in_a_row += 1;
                continue;
            }
            in_a_row = 0;
            ensure!(
                Instant::now() < deadline,
                "the waiting room does not apply its settings"
            );
            sleep(POLL).await;
        }
        Ok(())
    }
}
