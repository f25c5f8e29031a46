//! The origin's I/O: it sends requests, and the world answers at the right time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use weir_base::resp::{Value, decode, encode_command};
use weir_engine::FetchId;
use weir_engine::event::FetchResponse;
use weir_scripts::Call;

use super::sql::Sql;
use crate::host::WorkerLife;
use crate::mutation::Mutation;

pub(super) type TaskId = u64;
pub(super) type OpId = u64;

/// A task of the origin.
pub(super) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// One transaction.
pub(super) type Transaction = Box<dyn FnOnce(&mut Sql)>;

/// A task's request.
pub(super) enum TaskOperation {
    Redis(Vec<u8>),
    Sql(Transaction),
    Sleep {
        ms: u64,
    },
    /// Answers a lookup; the task does not wait.
    Answer(WorkerLife, FetchId, Option<FetchResponse>),
}

/// The result of a request.
#[derive(Debug)]
pub(super) enum Done {
    Replied(Vec<u8>),
    /// For a transaction, and for time.
    Over,
    /// No answer: it may have been done, or may yet be.
    Failed,
}

/// The shared state of tasks and world.
#[derive(Debug, Default)]
pub(super) struct Bus {
    /// The requests, with their tasks: the world takes them after each step of a task.
    pub(super) requested: Vec<(TaskId, OpId, TaskOperation)>,
    pub(super) done: BTreeMap<OpId, Done>,
    next_op: OpId,
    /// The running task.
    pub(super) running: TaskId,
    pub(super) now_ms: u64,
}

impl std::fmt::Debug for TaskOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Op")
    }
}

#[derive(Clone, Debug)]
pub(super) struct Io {
    pub(super) bus: Rc<RefCell<Bus>>,
    pub(super) mutation: Option<Mutation>,
}

/// Redis did not reply usefully. Whether the command ran is unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct RedisError;

/// SQL did not reply. Whether the transaction ran is unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct SqlError;

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

    pub(super) fn now_ms(&self) -> u64 {
        self.bus.borrow().now_ms
    }

    pub(super) fn makes(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(super) async fn sleep_ms(&self, ms: u64) {
        self.ask(TaskOperation::Sleep { ms }).await;
    }

    /// Runs one transaction.
    pub(super) async fn sql<T: 'static>(
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

    /// Runs a script by its source: Redis' script cache matters only for gateways.
    pub(super) async fn run(&self, call: &Call) -> Result<Value, RedisError> {
        let mut commands = Vec::new();
        call.encode_eval(&mut commands);
        self.ask_redis(commands).await
    }

    /// Sends one command.
    pub(super) async fn send(&self, words: &[&[u8]]) -> Result<Value, RedisError> {
        let mut command = Vec::new();
        encode_command(&mut command, words.iter().copied());
        self.ask_redis(command).await
    }

    async fn ask_redis(&self, command: Vec<u8>) -> Result<Value, RedisError> {
        let Done::Replied(bytes) = self.ask(TaskOperation::Redis(command)).await else {
            return Err(RedisError);
        };
        match decode(&bytes) {
            Ok((Value::Error(_), _)) | Err(_) => Err(RedisError),
            Ok((value, _)) => Ok(value),
        }
    }

    pub(super) fn answer(
        &self,
        place: WorkerLife,
        fetch: FetchId,
        response: Option<FetchResponse>,
    ) {
        // The task does not wait.
        drop(self.ask(TaskOperation::Answer(place, fetch, response)));
    }
}
