//! What an origin waits for: Redis, SQL, time. Its code is asynchronous, as the real one's is; the runtime is the queue
//! of the virtual clock.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the simulation, and must stop it"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_base::resp::{Value, decode};
use weir_scripts::Call;

use crate::host::RequestId;
use crate::mutation::Mutation;
use crate::queue::START_MS;
use crate::redis::digest_of;
use crate::sql::Sql;

/// A task of an origin.
pub(crate) type TaskId = u64;

/// Something that a task waits for.
pub(crate) type OpId = u64;

/// What a task does.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// One transaction, which leaves its result where its caller looks for it.
pub(crate) type Transaction = Box<dyn FnOnce(&mut Sql)>;

/// What tasks ask of the world.
pub(crate) enum TaskOperation {
    /// Commands for Redis.
    Redis(Vec<u8>),
    Sql(Transaction),
    Sleep {
        us: u64,
    },
    /// The answer to a request. Nothing comes back.
    Answer(RequestId, Response),
}

impl fmt::Debug for TaskOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(commands) => write!(f, "Redis({})", String::from_utf8_lossy(commands)),
            Self::Sql(_) => f.write_str("Sql"),
            Self::Sleep { us } => write!(f, "Sleep({us})"),
            Self::Answer(request, response) => write!(f, "Answer({request}, {response:?})"),
        }
    }
}

/// What an origin answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// One word, for clients.
    pub(crate) word: &'static str,
    /// The order that it is about.
    pub(crate) order: Option<crate::sql::ClaimName>,
}

/// How what a task has waited for has ended.
#[derive(Debug)]
pub(crate) enum Done {
    Replied(Vec<u8>),
    /// Of a transaction, and of time.
    Over,
    /// The connection broke at once: it may have been done.
    Broken,
    /// No answer in time: it may have been done, or may yet be.
    Timeout,
    /// SQL did not answer.
    Failed,
}

/// What tasks and world tell each other.
#[derive(Debug, Default)]
pub(crate) struct Bus {
    /// What is asked, of which task: the world takes it after each step of a task.
    pub(crate) asked: Vec<(TaskId, OpId, TaskOperation)>,
    pub(crate) done: BTreeMap<OpId, Done>,
    next_op: OpId,
    /// The task that takes its step now.
    pub(crate) running: TaskId,
    /// What each origin's clock shows now.
    pub(crate) clocks_ms: Vec<u64>,
    /// Units that reconcilers have added or taken because the books did not add up.
    pub(crate) units_repaired: u64,
    /// The buckets of all users of the schedule.
    pub(crate) buckets: std::collections::BTreeSet<u32>,
}

/// An origin's way to everything outside of it.
#[derive(Clone, Debug)]
pub(crate) struct Io {
    pub(crate) bus: Rc<RefCell<Bus>>,
    pub(crate) origin: usize,
    pub(crate) mutation: Option<Mutation>,
}

/// Redis gave no answer of use. Whether it did what it was asked is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RedisError;

/// SQL gave no answer. Whether it did what it was asked is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SqlError;

struct Wait {
    bus: Rc<RefCell<Bus>>,
    op: OpId,
}

impl Future for Wait {
    type Output = Done;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Done> {
        match self.bus.borrow_mut().done.remove(&self.op) {
            Some(done) => Poll::Ready(done),
            None => Poll::Pending,
        }
    }
}

impl Bus {
    /// The bus of so many origins.
    pub(crate) fn new(origins: u32) -> Self {
        Self {
            clocks_ms: vec![START_MS; origins as usize],
            ..Self::default()
        }
    }
}

impl Io {
    fn ask(&self, op: TaskOperation) -> Wait {
        let mut bus = self.bus.borrow_mut();
        let id = bus.next_op;
        bus.next_op += 1;
        let running = bus.running;
        bus.asked.push((running, id, op));
        Wait {
            bus: Rc::clone(&self.bus),
            op: id,
        }
    }

    /// A name that no other rebuild has.
    pub(crate) fn token(&self) -> String {
        let mut bus = self.bus.borrow_mut();
        bus.next_op += 1;
        format!("{}-{}", self.origin, bus.next_op)
    }

    /// Whether any user of the schedule is in this bucket.
    pub(crate) fn has_users_in(&self, bucket: u32) -> bool {
        self.bus.borrow().buckets.contains(&bucket)
    }

    /// What this origin's clock shows.
    pub(crate) fn now_ms(&self) -> u64 {
        self.bus.borrow().clocks_ms[self.origin]
    }

    pub(crate) fn makes(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(crate) async fn sleep_ms(&self, ms: u64) {
        self.ask(TaskOperation::Sleep { us: ms * 1_000 }).await;
    }

    /// Runs one transaction.
    pub(crate) async fn sql<T: 'static>(
        &self,
        transaction: impl FnOnce(&mut Sql) -> T + 'static,
    ) -> Result<T, SqlError> {
        let place = Rc::new(RefCell::new(None));
        let result = Rc::clone(&place);
        let op = TaskOperation::Sql(Box::new(move |sql| {
            *result.borrow_mut() = Some(transaction(sql));
        }));
        match self.ask(op).await {
            Done::Over => place.borrow_mut().take().ok_or(SqlError),
            _ => Err(SqlError),
        }
    }

    /// Runs a script, by its digest unless Redis does not know it.
    pub(crate) async fn run(&self, call: &Call) -> Result<Value, RedisError> {
        let mut commands = Vec::new();
        call.encode_evalsha(digest_of(call.script), &mut commands);
        let value = self.attempt(commands).await?;
        if !matches!(&value, Value::Error(error) if error.starts_with(b"NOSCRIPT")) {
            return no_error(value);
        }
        let mut commands = Vec::new();
        call.encode_eval(&mut commands);
        self.send(commands).await
    }

    pub(crate) async fn send(&self, command: Vec<u8>) -> Result<Value, RedisError> {
        no_error(self.attempt(command).await?)
    }

    /// Sends one command, and once more if its connection broke.
    async fn attempt(&self, command: Vec<u8>) -> Result<Value, RedisError> {
        let mut done = self.ask(TaskOperation::Redis(command.clone())).await;
        if matches!(done, Done::Broken) {
            done = self.ask(TaskOperation::Redis(command)).await;
        }
        match done {
            Done::Replied(bytes) => decode(&bytes)
                .map(|(value, _)| value)
                .map_err(|_| RedisError),
            _ => Err(RedisError),
        }
    }

    pub(crate) fn answer(&self, request: RequestId, response: Response) {
        // Nothing is waited for.
        drop(self.ask(TaskOperation::Answer(request, response)));
    }
}

fn no_error(value: Value) -> Result<Value, RedisError> {
    match value {
        Value::Error(_) => Err(RedisError),
        value => Ok(value),
    }
}
