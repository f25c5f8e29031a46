//! An origin's I/O: Redis, SQL, time. Its code is asynchronous, like the real one; the queue of the virtual clock is
//! the runtime.

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

/// An operation that a task waits for.
pub(crate) type OpId = u64;

/// The future of a task.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// One transaction, which stores its result for its caller.
pub(crate) type Transaction = Box<dyn FnOnce(&mut Sql)>;

/// A task's request to the world.
pub(crate) enum TaskOperation {
    /// Commands for Redis.
    Redis(Vec<u8>),
    Sql(Transaction),
    Sleep {
        us: u64,
    },
    /// The answer to a request; the task does not wait.
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

/// An origin's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The code for clients.
    pub(crate) word: &'static str,
    /// The order in the answer.
    pub(crate) order: Option<crate::sql::ClaimName>,
}

/// The result of an operation.
#[derive(Debug)]
pub(crate) enum Done {
    Replied(Vec<u8>),
    /// For a transaction, and for time.
    Over,
    /// The connection broke immediately: the operation may have run.
    Broken,
    /// No reply in time: the operation may have run, or may run later.
    Timeout,
    /// SQL did not answer.
    Failed,
}

/// The shared state of tasks and world.
#[derive(Debug, Default)]
pub(crate) struct Bus {
    /// The requests, with their tasks: the world takes them after each step of a task.
    pub(crate) requested: Vec<(TaskId, OpId, TaskOperation)>,
    pub(crate) done: BTreeMap<OpId, Done>,
    next_op: OpId,
    /// The running task.
    pub(crate) running: TaskId,
    /// The current time of each origin's clock.
    pub(crate) clocks_ms: Vec<u64>,
    /// Units that reconcilers added or removed to repair the balance.
    pub(crate) units_repaired: u64,
    /// The buckets of all users of the schedule.
    pub(crate) buckets: std::collections::BTreeSet<u32>,
}

/// An origin's access to everything outside.
#[derive(Clone, Debug)]
pub(crate) struct Io {
    pub(crate) bus: Rc<RefCell<Bus>>,
    pub(crate) origin: usize,
    /// Its site, whose Redis it calls.
    pub(crate) site: usize,
    /// The number of sites.
    pub(crate) sites: u32,
    pub(crate) mutation: Option<Mutation>,
}

/// Redis did not reply usefully. Whether the command ran is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RedisError;

/// SQL did not reply. Whether the transaction ran is unknown.
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
    /// The bus of `origins` origins.
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
        bus.requested.push((running, id, op));
        Wait {
            bus: Rc::clone(&self.bus),
            op: id,
        }
    }

    /// A unique name for a rebuild.
    pub(crate) fn token(&self) -> String {
        let mut bus = self.bus.borrow_mut();
        bus.next_op += 1;
        format!("{}-{}", self.origin, bus.next_op)
    }

    /// Whether any user of the schedule is in this bucket.
    pub(crate) fn has_users_in(&self, bucket: u32) -> bool {
        self.bus.borrow().buckets.contains(&bucket)
    }

    /// The time of this origin's clock.
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

    /// Runs a script by its digest, or by its source if Redis does not have it.
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

    /// Sends one command, and retries once if its connection broke.
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
        // The task does not wait.
        drop(self.ask(TaskOperation::Answer(request, response)));
    }
}

fn no_error(value: Value) -> Result<Value, RedisError> {
    match value {
        Value::Error(_) => Err(RedisError),
        value => Ok(value),
    }
}
