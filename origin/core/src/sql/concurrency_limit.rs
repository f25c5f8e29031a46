//! Limits the public's concurrent work on SQL. A bounded number of calls runs, a bounded number waits, and further
//! calls are refused at once, so that accepted requests finish in time.

use std::future::Future;

use tokio::sync::Semaphore;

use super::SqlError;

/// A concurrency limit in front of a store.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    /// One permit per waiting or running call.
    used: Semaphore,
    /// One permit per running call, in FIFO order.
    working: Semaphore,
}

impl ConcurrencyLimit {
    /// Allows `working_max` running and `waiting_max` waiting calls. A `working_max` of 0 counts as 1.
    pub fn new(working_max: usize, waiting_max: usize) -> Self {
        let most = Semaphore::MAX_PERMITS;
        let working_max = working_max.clamp(1, most);
        Self {
            used: Semaphore::new(working_max.saturating_add(waiting_max).min(most)),
            working: Semaphore::new(working_max),
        }
    }

    /// Runs a call on SQL when it gets a permit.
    ///
    /// # Errors
    /// [`SqlError::Overloaded`] at once if too many calls wait, otherwise the errors of the call.
    pub async fn run<T>(
        &self,
        call: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        let _taken = self.used.try_acquire().map_err(|_| SqlError::Overloaded)?;
        let _working = self
            .working
            .acquire()
            .await
            .map_err(|_| SqlError::Overloaded)?;
        call.await
    }

    /// Number of calls that would be accepted now.
    pub fn room(&self) -> usize {
        self.used.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::sync::Arc;
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    #[tokio::test]
    async fn calls_queue_and_are_refused_beyond_the_queue_limit() {
        let shed = Arc::new(ConcurrencyLimit::new(1, 1));
        let (end, ended) = oneshot::channel::<()>();
        let (first, second) = (shed.clone(), shed.clone());
        let work = async move {
            ended.await.ok();
            Ok(1)
        };
        let works = tokio::spawn(async move { first.run(work).await });
        // Wait until the first call has its permit.
        while shed.room() > 1 {
            yield_now().await;
        }
        let waits = tokio::spawn(async move { second.run(async { Ok(2) }).await });
        while shed.room() > 0 {
            yield_now().await;
        }
        let refused = shed.run(async { Ok(3) }).await;
        assert!(matches!(refused, Err(SqlError::Overloaded)));
        assert!(!waits.is_finished());
        end.send(()).unwrap();
        assert_eq!(works.await.unwrap().unwrap(), 1);
        assert_eq!(waits.await.unwrap().unwrap(), 2);
        assert_eq!(shed.run(async { Ok(4) }).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn abandoned_call_frees_its_queue_slot() {
        let shed = Arc::new(ConcurrencyLimit::new(1, 0));
        let endless = shed.clone();
        let task = tokio::spawn(async move { endless.run::<()>(pending()).await });
        while shed.room() > 0 {
            yield_now().await;
        }
        task.abort();
        task.await.unwrap_err();
        assert_eq!(shed.room(), 1);
    }
}
