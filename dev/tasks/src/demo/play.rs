//! The sale from its creation to the last paid unit, step by step.

mod waiting;

use super::SaleArguments;
use super::acts::{Buy, CheckOut, Paths, PurchaseOutcome, Reserve, TryEarly};
use super::bots::{CheckoutBots, Forge};
use super::cast::{self, Bot, BotTactic, Person, Role, Shares};
use super::client::Endpoint;
use super::counters::Counters;
use super::crowd::Crowd;
use super::operator::{self, Audit, Plan};
use super::room::RoomResult;
use super::sql::{Sql, SqlCounts};
use super::tally::{Tallies, Tally};
use super::teller::StoryPrinter;
use super::visitor::SaleSnapshot;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::time::sleep;
use weir_sale::verdict::Verdict;
use weir_stack::Stack;

/// The maximum wait for an expected event on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// The countdown interval.
const TICK: Duration = Duration::from_secs(1);

/// One connection reaches one worker, and each detects returned units separately. This many consecutive requests must
/// report the sale as running.
const RUNNING_IN_A_ROW: u32 = 10;

/// The maximum number of rounds. Each round pays most of the remaining units, so a few are enough.
const ROUNDS_MAX: u32 = 20;

/// Bots have their own connections: one per this many of people's.
const CONNECTIONS_PER_BOT_LINE: u32 = 8;

/// A running sale.
pub(super) struct SalePlay<'a> {
    pub(super) stack: &'a Mutex<Stack>,
    endpoints: Arc<[Endpoint]>,
    database: PathBuf,
    sale: String,
    shares: Shares,
    plan: Plan,
    paths: Arc<Paths>,
    connections: u32,
    seed: u64,
    /// Whether a waiting room is before the checkout.
    pub(super) has_room: bool,
    /// Expired orders at the last reopening of the sale.
    expired: u64,
    pub(super) teller: StoryPrinter,
    /// What all clients observed in all steps.
    pub(super) observed: Tallies,
}

/// One rush: from the first request to buy to the last answer.
#[derive(Debug)]
pub(super) struct SaleRush {
    pub(super) observed: Tallies,
    pub(super) counters: Counters,
    pub(super) elapsed: Duration,
    /// The number of people.
    pub(super) arrived: usize,
    /// Paid orders.
    pub(super) paid: usize,
    /// Unpaid orders.
    pub(super) unpaid: usize,
}

impl SaleRush {
    /// Exchanges per second.
    pub(super) fn requests_per_s(&self) -> f64 {
        self.observed.requests() as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }
}

/// The results of a whole sale.
pub(super) struct PlayResult {
    pub(super) rushes: Vec<SaleRush>,
    pub(super) reserved: SqlCounts,
    pub(super) audit: Audit,
    pub(super) room: Option<RoomResult>,
}

impl<'a> SalePlay<'a> {
    pub(super) async fn new(
        stack: &'a Mutex<Stack>,
        sale: &str,
        arguments: &SaleArguments,
        endpoints: Vec<Endpoint>,
    ) -> Result<Self> {
        let database = stack.lock().await.database_path().to_owned();
        Ok(Self {
            stack,
            endpoints: endpoints.into(),
            database,
            sale: sale.to_owned(),
            shares: arguments.shares(),
            plan: Plan {
                stock: arguments.stock,
                shards: arguments.shards,
            },
            paths: Paths::for_sale(sale),
            connections: arguments.connections,
            seed: arguments.seed,
            has_room: false,
            expired: 0,
            teller: StoryPrinter::new(),
            observed: Tallies::empty()?,
        })
    }

    /// Runs all steps.
    pub(super) async fn run(&mut self) -> Result<PlayResult> {
        let people = cast::people(&self.shares, self.seed);
        let bots = cast::bots(&self.shares);
        self.make().await?;
        let reserved = self.reserve(&people, &bots).await?;
        let (people, bots, room) = match self.has_room {
            true => self.wait_and_check_out(people, bots).await?,
            false => {
                self.count_down(&people).await?;
                let (people, bots) = self.check_out(people, bots).await?;
                (people, bots, None)
            }
        };
        let rushes = self.sell(people, bots).await?;
        let audit = self.settled().await?;
        Ok(PlayResult {
            rushes,
            reserved,
            audit,
            room,
        })
    }

    async fn make(&mut self) -> Result<()> {
        operator::make(
            &*self.stack.lock().await,
            &self.sale,
            &self.shares,
            self.plan,
        )
        .await?;
        let Plan { stock, shards } = self.plan;
        let pay_within = operator::PAY_WITHIN.as_secs();
        self.teller.tell(
            "sale",
            format!("{} created: {stock} units in {shards} shards", self.sale),
        );
        self.teller.tell(
            "sale",
            format!("reservation and order token required, {pay_within} s to pay an order"),
        );
        self.tell_of_few();
        Ok(())
    }

    /// Reports if there are fewer people than units: then the sale cannot sell out.
    fn tell_of_few(&mut self) {
        let (eligible, stock) = (self.shares.eligible(), self.plan.stock);
        if eligible < stock {
            let rest = stock - eligible;
            let text = format!("only {eligible} people for {stock} units: {rest} will remain");
            self.teller.tell("sale", text);
        }
    }

    /// People and flood bots reserve, while the origin runs its risk check.
    async fn reserve(&mut self, people: &[Person], bots: &[Bot]) -> Result<SqlCounts> {
        let reserving = people.iter().filter(|user| user.role != Role::Stranger);
        let reserving = reserving.map(|user| user.name.clone()).collect();
        let floods = bots.iter().filter(|bot| bot.trick == BotTactic::Flood);
        let floods = floods.map(|bot| bot.name.clone()).collect();
        let started = Instant::now();
        let (people, bots) = (self.people("reserving"), self.bots());
        let (people, bots) = tokio::try_join!(
            people.play(Reserve(self.paths.clone()), reserving),
            bots.play(Reserve(self.paths.clone()), floods),
        )?;
        self.note(people.1, bots.1)?;
        let reserved = people
            .0
            .into_iter()
            .chain(bots.0)
            .filter(|recorded| *recorded);
        let text = format!("{} reserved in {}", reserved.count(), seconds(started));
        self.teller.tell("reservation", text);
        self.check_risk().await
    }

    async fn check_risk(&mut self) -> Result<SqlCounts> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let checked = SqlCounts::read(&self.database, &self.sale).await?;
            if checked.pending == 0 {
                let SqlCounts {
                    reserved, blocked, ..
                } = checked;
                let text = format!("{blocked} of {reserved} blocked, in the background");
                self.teller.tell("risk check", text);
                return Ok(checked);
            }
            let waiting = checked.pending;
            ensure!(
                Instant::now() < deadline,
                "{waiting} are still waiting for the risk check"
            );
            sleep(POLL).await;
        }
    }

    /// Sets the start, and waits for warming. Visitors watch the countdown, and some try too early.
    async fn count_down(&mut self, people: &[Person]) -> Result<()> {
        let starts_at_ms = operator::set_start(&*self.stack.lock().await, &self.sale).await?;
        if self.has_room {
            self.open_room(starts_at_ms).await?;
        }
        self.stack.lock().await.wait_until_known(&self.sale).await?;
        self.wait_until_gateways_list_the_sale().await?;
        self.teller.tell(
            "warm-up",
            "start set, reservations closed, stock loaded into Redis",
        );
        let early = people.iter().take(self.shares.early as usize);
        let early = early.map(|user| user.name.clone()).collect();
        let (_, observed) = self
            .people("too early")
            .play(TryEarly(self.paths.clone()), early)
            .await?;
        let (attempted, refused) = (self.shares.early, observed.of(Verdict::NotStarted));
        self.note(observed, Tally::empty()?)?;
        let text = format!("{attempted} people try to buy early: {refused} not_started");
        self.teller.tell("countdown", text);
        loop {
            let current = self.sale_snapshot().await?;
            let remaining = current.starts_in;
            let text = format!(
                "{:.1} s, {}, {} left",
                remaining.as_secs_f64(),
                current.state,
                current.remaining
            );
            self.teller.tell("countdown", text);
            if remaining.is_zero() {
                break;
            }
            sleep(remaining.min(TICK)).await;
        }
        Ok(())
    }

    /// All people get tokens and wait until they are valid, while bots try without.
    async fn check_out(
        &mut self,
        people: Vec<Person>,
        bots: Vec<Bot>,
    ) -> Result<(Vec<Person>, Vec<Bot>)> {
        let started = Instant::now();
        let (crowd, botnet) = (self.people("checkout"), self.bots());
        let pester = self.checkout_bots()?;
        let (people, bots) = tokio::try_join!(
            crowd.play(CheckOut(self.paths.clone()), people),
            botnet.play(pester, bots),
        )?;
        let minted = people.1.of(Verdict::TokenMinted);
        let text = format!("{minted} people got a token within {}", seconds(started));
        self.teller.tell("checkout", text);
        self.note(people.1, Tally::empty()?)?;
        let usable = people.0.iter().map(|(_, usable)| *usable).max();
        let bots = self.tell_bots(bots, usable).await?;
        let people = people.0.into_iter().map(|(user, _)| user).collect();
        Ok((people, bots))
    }

    /// The same behind the waiting room: people get their tokens as they enter.
    async fn wait_and_check_out(
        &mut self,
        people: Vec<Person>,
        bots: Vec<Bot>,
    ) -> Result<(Vec<Person>, Vec<Bot>, Option<RoomResult>)> {
        let lined_up = self.line_up(people, &bots).await?;
        self.count_down(lined_up.people()).await?;
        let let_in = self.let_in(lined_up, &bots).await?;
        let bots = self.bots().play(self.checkout_bots()?, bots).await?;
        let bots = self.tell_bots(bots, let_in.usable).await?;
        Ok((let_in.people, bots, Some(let_in.waited)))
    }

    /// Reports the bots' results, and waits until people's tokens are valid.
    async fn tell_bots(
        &mut self,
        (bots, observed): (Vec<Bot>, Tally),
        usable: Option<tokio::time::Instant>,
    ) -> Result<Vec<Bot>> {
        let text = format!(
            "bots meanwhile: {} attempts, {} units",
            observed.requests,
            self.sql().await?.bots
        );
        self.teller.tell("checkout", text);
        self.note(Tally::empty()?, observed)?;
        if let Some(usable) = usable {
            tokio::time::sleep_until(usable).await;
        }
        Ok(bots)
    }

    /// Repeats rushes until each unit that an eligible person may buy is paid.
    async fn sell(&mut self, mut people: Vec<Person>, mut bots: Vec<Bot>) -> Result<Vec<SaleRush>> {
        let target = self.plan.stock.min(self.shares.eligible());
        let mut rushes = Vec::new();
        for round in 0..ROUNDS_MAX {
            let order = cast::shuffled(people, self.seed.wrapping_add(round.into()));
            let (rush, back) = self.rush(order, std::mem::take(&mut bots)).await?;
            rushes.push(rush);
            people = back;
            let sql = self.sql().await?;
            if sql.paid >= u64::from(target) || people.is_empty() {
                break;
            }
            self.reopen().await?;
        }
        Ok(rushes)
    }

    /// All people try to buy. Those who may try again return.
    async fn rush(
        &mut self,
        people: Vec<Person>,
        bots: Vec<Bot>,
    ) -> Result<(SaleRush, Vec<Person>)> {
        let before = self.counters().await?;
        let (received, started) = (people.len(), Instant::now());
        let (crowd, botnet) = (self.people("rush"), self.bots());
        let pester = self.checkout_bots()?;
        let (people, bots) = tokio::try_join!(
            crowd.play(Buy(self.paths.clone()), people),
            botnet.play(pester, bots),
        )?;
        let elapsed = started.elapsed();
        let of = |outcome| people.0.iter().filter(|(_, its)| *its == outcome).count();
        let rush = SaleRush {
            observed: Tallies {
                people: people.1,
                bots: bots.1,
            },
            counters: self.counters().await?.since(&before),
            elapsed,
            arrived: received,
            paid: of(PurchaseOutcome::Paid),
            unpaid: of(PurchaseOutcome::Unpaid),
        };
        self.observed.add(&rush.observed)?;
        self.tell_rush(&rush).await?;
        let again = people.0.into_iter();
        let again = again.filter(|(_, outcome)| {
            !matches!(outcome, PurchaseOutcome::Paid | PurchaseOutcome::Refused)
        });
        let again = again
            .map(|(user, _)| user)
            .filter(|user| user.role == Role::Buyer);
        Ok((rush, again.collect()))
    }

    async fn tell_rush(&mut self, rush: &SaleRush) -> Result<()> {
        let SaleRush {
            arrived: received,
            paid,
            unpaid,
            ..
        } = rush;
        let elapsed = rush.elapsed.as_secs_f64();
        let text =
            format!("{received} people in {elapsed:.1} s: {paid} paid, {unpaid} did not pay");
        self.teller.tell("rush", text);
        let current = self.standing_after_rush().await?;
        let text = format!("{}, {} left", current.state, current.remaining);
        self.teller.tell("rush", text);
        Ok(())
    }

    /// A worker without a request for the last unit learns from the catalogue, which the origin updates, that it is
    /// gone. That takes about a second, in which units may return.
    async fn standing_after_rush(&self) -> Result<SaleSnapshot> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let current = self.sale_snapshot().await?;
            let is_told = !current.has_free_units() || self.sql().await?.remaining > 0;
            if is_told || Instant::now() >= deadline {
                return Ok(current);
            }
            sleep(POLL).await;
        }
    }

    /// Waits until every unpaid order has expired and each worker sells again.
    async fn reopen(&mut self) -> Result<()> {
        let epoch = self.audit().await?.epoch;
        // On a busy machine, some expired during the rush, and their units are already back.
        let before = self.sql().await?.expired;
        let deadline = Instant::now() + PATIENCE;
        let (expired, since) = loop {
            let sql = self.sql().await?;
            if sql.unpaid() == 0 {
                break (sql.expired - self.expired, sql.expired - before);
            }
            ensure!(
                Instant::now() < deadline,
                "{} orders did not expire",
                sql.unpaid()
            );
            sleep(POLL).await;
        };
        self.expired += expired;
        self.running_everywhere(deadline).await?;
        let after = self.audit().await?.epoch;
        ensure!(
            since == 0 || after > epoch,
            "the shards' epochs were not incremented"
        );
        let how = match since {
            0 => "reopened during the rush",
            _ => "reopened, the shards' epochs incremented",
        };
        let text = format!("{expired} not paid in time; {how}");
        self.teller.tell("expiry", text);
        Ok(())
    }

    async fn running_everywhere(&self, deadline: Instant) -> Result<()> {
        let mut in_a_row = 0;
        while in_a_row < RUNNING_IN_A_ROW {
            if self.is_running_at_each_door().await? {
                in_a_row += 1;
                continue;
            }
            in_a_row = 0;
            ensure!(Instant::now() < deadline, "the sale did not reopen");
            sleep(POLL).await;
        }
        Ok(())
    }

    /// The audit once no units are in transit, or after a timeout.
    async fn settled(&mut self) -> Result<Audit> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let audit = self.audit().await?;
            if audit.is_at_rest() || Instant::now() >= deadline {
                let Audit { orders, total, .. } = audit;
                self.teller
                    .tell("audit", format!("{orders} of {total} units ordered"));
                return Ok(audit);
            }
            sleep(POLL).await;
        }
    }

    async fn audit(&self) -> Result<Audit> {
        Audit::read(&*self.stack.lock().await, &self.sale).await
    }

    async fn counters(&self) -> Result<Counters> {
        Counters::read(&*self.stack.lock().await).await
    }

    async fn sql(&self) -> Result<Sql> {
        Sql::read(&self.database, &self.sale).await
    }

    /// The sale as its first endpoint shows it.
    async fn sale_snapshot(&self) -> Result<SaleSnapshot> {
        let endpoint = self.endpoints.first().context("the sale has no endpoint")?;
        SaleSnapshot::ask(&endpoint.url(), &self.sale).await
    }

    /// Edges receive a sale later than gateways.
    async fn wait_until_gateways_list_the_sale(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for endpoint in self.endpoints.iter() {
            while SaleSnapshot::ask(&endpoint.url(), &self.sale)
                .await
                .is_err()
            {
                ensure!(
                    Instant::now() < deadline,
                    "{} does not know the sale",
                    endpoint.url()
                );
                sleep(POLL).await;
            }
        }
        Ok(())
    }

    async fn is_running_at_each_door(&self) -> Result<bool> {
        for endpoint in self.endpoints.iter() {
            let snapshot = SaleSnapshot::ask(&endpoint.url(), &self.sale).await?;
            if !snapshot.has_free_units() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn checkout_bots(&self) -> Result<CheckoutBots> {
        Ok(CheckoutBots {
            paths: self.paths.clone(),
            forge: Arc::new(Forge::new(&self.sale)?),
        })
    }

    fn note(&mut self, people: Tally, bots: Tally) -> Result<()> {
        self.observed.add(&Tallies { people, bots })
    }

    fn people(&self, label: &'static str) -> Crowd {
        self.crowd(self.connections, Some(label))
    }

    fn bots(&self) -> Crowd {
        self.crowd(self.connections.div_ceil(CONNECTIONS_PER_BOT_LINE), None)
    }

    fn crowd(&self, connections: u32, label: Option<&'static str>) -> Crowd {
        Crowd {
            endpoints: self.endpoints.clone(),
            connections,
            label,
        }
    }
}

fn seconds(since: Instant) -> String {
    format!("{:.1} s", since.elapsed().as_secs_f64())
}
