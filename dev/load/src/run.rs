//! The event loop.

use crate::outcome::Outcome;
use crate::schedule::Schedule;
use crate::wire::{Wire, WireEvent};
use crate::{Pace, Plan};
use anyhow::{Context, Result, ensure};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::time::{Duration, Instant};

/// Events read per wait.
const EVENTS: usize = 256;

/// The timer's ID among the connections' IDs.
const TIMER: u64 = u64::MAX;

/// The grace period after the window. Later responses count as missing.
const GRACE: Duration = Duration::from_secs(2);

/// The maximum interval between looks at the clock.
const LOOK: Duration = Duration::from_millis(10);

/// With more reconnects the server is broken, and the run fails.
const RECONNECTS_MAX: u64 = 10_000;

/// A moment of a run, for parallel measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMark {
    /// The window begins.
    Begin,
    /// The window ends.
    End,
}

/// Runs `plan`. `request` writes the request of a number, counted from 0, once each. `mark` is called at both ends of
/// the window.
///
/// # Errors
/// The server is unreachable, does not speak HTTP, or keeps closing connections.
pub fn run(
    plan: &Plan,
    request: &mut dyn FnMut(u64, &mut Vec<u8>),
    mark: &mut dyn FnMut(RunMark),
) -> Result<Outcome> {
    ensure!(plan.connections > 0, "no connections");
    pin(plan.core)?;
    let mut generator = Generator::new(plan, request)?;
    generator.go(mark)?;
    Ok(generator.outcome)
}

fn pin(core: Option<usize>) -> Result<()> {
    let Some(core) = core else { return Ok(()) };
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores)
        .with_context(|| format!("cannot run on core {core}"))
}

struct Generator<'a> {
    plan: Plan,
    request: &'a mut dyn FnMut(u64, &mut Vec<u8>),
    wires: Vec<Wire>,
    /// Idle connections; open loop only.
    idle: Vec<usize>,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// The events of the last wait.
    ready: Vec<epoll::Event>,
    schedule: Option<Schedule>,
    begin: Instant,
    end: Instant,
    sent: u64,
    text: Vec<u8>,
    outcome: Outcome,
}

impl<'a> Generator<'a> {
    fn new(plan: &Plan, request: &'a mut dyn FnMut(u64, &mut Vec<u8>)) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        let mut wires = Vec::new();
        for number in 0..plan.connections {
            let wire = Wire::open(plan.server, number)?;
            watch(&epoll, &wire, number)?;
            wires.push(wire);
        }
        let start = Instant::now();
        let begin = start + plan.warm_up;
        let schedule = match plan.pace {
            Pace::Closed => None,
            Pace::Open { per_second } => Some(Schedule::new(start, per_second)),
        };
        Ok(Self {
            plan: *plan,
            request,
            idle: (0..wires.len()).rev().collect(),
            wires,
            epoll,
            timer,
            ready: Vec::with_capacity(EVENTS),
            schedule,
            begin,
            end: begin + plan.window,
            sent: 0,
            text: Vec::new(),
            outcome: Outcome::default(),
        })
    }

    fn go(&mut self, mark: &mut dyn FnMut(RunMark)) -> Result<()> {
        if self.plan.pace == Pace::Closed {
            for number in 0..self.wires.len() {
                self.send(number, Instant::now())?;
            }
        }
        self.turn_until(self.begin)?;
        mark(RunMark::Begin);
        let (began, busy) = (Instant::now(), on_core());
        self.begin = began;
        self.turn_until(self.end)?;
        self.end = Instant::now();
        self.outcome.window = self.end - began;
        self.outcome.busy =
            on_core().saturating_sub(busy).as_secs_f64() / self.outcome.window.as_secs_f64();
        mark(RunMark::End);
        self.finish()
    }

    /// Open loop: waits up to [`GRACE`] for requests due in the window.
    fn finish(&mut self) -> Result<()> {
        if self.schedule.is_none() {
            return Ok(());
        }
        let give_up = self.end + GRACE;
        while Instant::now() < give_up && self.is_owed() {
            self.turn(give_up)?;
        }
        let now = Instant::now();
        let under_way = self.wires.iter().filter_map(|wire| wire.since);
        let mut owed: Vec<Instant> = under_way.filter(|since| self.counts(*since)).collect();
        while let Some(due) = self.schedule.as_mut().and_then(|s| s.take(self.end)) {
            if self.counts(due) {
                owed.push(due);
            }
        }
        self.outcome.unanswered = owed.len() as u64;
        for since in owed {
            self.outcome.latencies.record(now - since);
        }
        Ok(())
    }

    fn is_owed(&self) -> bool {
        let is_unsent = self.schedule.is_some_and(|s| s.due() < self.end);
        let mut under_way = self.wires.iter().filter_map(|wire| wire.since);
        is_unsent || under_way.any(|since| self.counts(since))
    }

    /// Whether a request due at `since` belongs to the window.
    fn counts(&self, since: Instant) -> bool {
        (self.begin..self.end).contains(&since)
    }

    fn turn_until(&mut self, until: Instant) -> Result<()> {
        while Instant::now() < until {
            self.turn(until)?;
        }
        Ok(())
    }

    fn turn(&mut self, until: Instant) -> Result<()> {
        self.send_due()?;
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        self.wait(&mut ready, until)?;
        for event in &ready {
            let event: &epoll::Event = event;
            match event.data.u64() {
                TIMER => {
                    let mut expirations = [0; 8];
                    rustix::io::read(&self.timer, &mut expirations).ok();
                }
                number => self.receive(number as usize)?,
            }
        }
        self.ready = ready;
        Ok(())
    }

    fn wait(&mut self, ready: &mut Vec<epoll::Event>, until: Instant) -> Result<()> {
        let now = Instant::now();
        let limit = until.saturating_duration_since(now).min(LOOK);
        // Without a free connection nothing can be sent, even if requests are due.
        if let Some(schedule) = self.schedule.filter(|_| !self.idle.is_empty()) {
            let wait = schedule.due().saturating_duration_since(now);
            self.arm(wait.min(limit))?;
        }
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(ready),
            Some(&limit),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("epoll"),
        }
    }

    /// Sets the timer. Zero would disable it.
    fn arm(&self, wait: Duration) -> Result<()> {
        let value = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(wait.subsec_nanos().max(1)),
        };
        let never = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spec = Itimerspec {
            it_interval: never,
            it_value: value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }

    fn send_due(&mut self) -> Result<()> {
        while let Some(&number) = self.idle.last() {
            let Some(schedule) = self.schedule.as_mut() else {
                return Ok(());
            };
            let Some(due) = schedule.take(Instant::now()) else {
                return Ok(());
            };
            self.idle.pop();
            self.send(number, due)?;
        }
        Ok(())
    }

    fn send(&mut self, number: usize, since: Instant) -> Result<()> {
        self.text.clear();
        (self.request)(self.sent, &mut self.text);
        self.sent += 1;
        let Some(wire) = self.wires.get_mut(number) else {
            return Ok(());
        };
        if wire.send(&self.text, since).is_ok() {
            return Ok(());
        }
        // The server closed the connection meanwhile: send the same request on a new one.
        self.reopen(number)?;
        let wire = self.wires.get_mut(number).context("a connection")?;
        wire.send(&self.text, since).context("cannot send")
    }

    fn receive(&mut self, number: usize) -> Result<()> {
        let Some(wire) = self.wires.get_mut(number) else {
            return Ok(());
        };
        let since = wire.since;
        match wire.receive()? {
            WireEvent::Part => Ok(()),
            WireEvent::Answer { status, closes } => {
                wire.since = None;
                let since = since.context("answer without a request")?;
                self.note(status, since);
                if closes {
                    self.reopen(number)?;
                }
                self.go_on(number)
            }
            WireEvent::End => {
                self.reopen(number)?;
                match since {
                    // The unanswered request is sent again, and its latency counts from its first due time.
                    Some(since) => self.send(number, since),
                    None => Ok(()),
                }
            }
        }
    }

    fn go_on(&mut self, number: usize) -> Result<()> {
        if self.schedule.is_some() {
            self.idle.push(number);
            return self.send_due();
        }
        self.send(number, Instant::now())
    }

    fn note(&mut self, status: u16, since: Instant) {
        let now = Instant::now();
        *self.outcome.statuses.entry(status).or_default() += 1;
        let is_within = self.counts(now);
        self.outcome.answers += u64::from(is_within);
        let counts = match self.schedule {
            Some(_) => self.counts(since),
            None => is_within,
        };
        if counts {
            self.outcome.latencies.record(now - since);
        }
    }

    fn reopen(&mut self, number: usize) -> Result<()> {
        self.outcome.reconnects += 1;
        let count = self.outcome.reconnects;
        ensure!(
            count <= RECONNECTS_MAX,
            "the server closed {count} connections"
        );
        let wire = self.wires.get_mut(number).context("a connection")?;
        wire.open_again()?;
        watch(&self.epoll, wire, number)
    }
}

fn watch(epoll: &OwnedFd, wire: &Wire, number: usize) -> Result<()> {
    let data = EventData::new_u64(number as u64);
    epoll::add(epoll, &wire.stream, data, EventFlags::IN).context("epoll")
}

/// The CPU time of this thread.
fn on_core() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}
