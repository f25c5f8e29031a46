//! Admission during a Redis outage: a leaky bucket in memory that all workers of a gateway share.

use alloc::format;
use alloc::string::String;

use crate::RoomName;
use crate::state::ENTRY_COST;
use weir_base::shared_data::{MISSING, SharedData};

/// Maximum retries of a compare-and-swap.
const TRIES_MAX: usize = 8;

/// How far this gateway has called the queue on its own.
#[derive(Debug)]
pub(crate) struct Local<D> {
    data: D,
    key: String,
    per_minute: u64,
}

#[derive(Clone, Copy, Default)]
struct State {
    head: u64,
    credit: u64,
    at_ms: u64,
}

impl<D: SharedData> Local<D> {
    pub(crate) fn new(data: D, room: &RoomName, per_minute: u64) -> Self {
        let key = format!("weir.room.{room}.local");
        Self {
            data,
            key,
            per_minute,
        }
    }

    /// Calls as many of the positions after `head`, up to `seq`, as the rate allows. Returns the last called position.
    pub(crate) fn call(&self, head: u64, seq: u64, now_ms: u64) -> u64 {
        let called = self.change(now_ms, |state| {
            state.head = state.head.max(head);
            let count = (state.credit / ENTRY_COST).min(seq.saturating_sub(state.head));
            state.credit -= count * ENTRY_COST;
            state.head += count;
            state.head
        });
        called.unwrap_or(head)
    }

    /// Whether one visitor without a position may enter.
    pub(crate) fn take(&self, now_ms: u64) -> bool {
        let accepted = self.change(now_ms, |state| {
            let is_free = state.credit >= ENTRY_COST;
            state.credit -= if is_free { ENTRY_COST } else { 0 };
            is_free
        });
        accepted.unwrap_or(false)
    }

    /// `None` if other workers won every race.
    fn change<T>(&self, now_ms: u64, act: impl Fn(&mut State) -> T) -> Option<T> {
        (0..TRIES_MAX).find_map(|_| {
            let (mut state, version) = match self.data.get(&self.key) {
                Some((bytes, version)) => (State::read(&bytes), version),
                None => (State::default(), MISSING),
            };
            state.accrue(now_ms, self.per_minute);
            let reply = act(&mut state);
            let is_written = self.data.set(&self.key, &state.bytes(), version);
            is_written.then_some(reply)
        })
    }
}

impl State {
    /// At first, one visitor may enter at once.
    fn accrue(&mut self, now_ms: u64, per_minute: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.at_ms).min(ENTRY_COST);
        let cap = ENTRY_COST.max(per_minute.saturating_mul(1_000));
        self.credit = (self.credit + elapsed_ms * per_minute).min(cap);
        self.at_ms = now_ms;
    }

    fn read(bytes: &[u8]) -> Self {
        let mut numbers = bytes.as_chunks::<8>().0.iter();
        let mut number = || numbers.next().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Self {
            head: number(),
            credit: number(),
            at_ms: number(),
        }
    }

    fn bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let numbers = [self.head, self.credit, self.at_ms];
        for (to, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *to = number.to_le_bytes();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use weir_base::shared_data::LocalData;

    fn local(data: &Rc<LocalData>, per_minute: u64) -> Local<Rc<LocalData>> {
        let room = RoomName::new("shop").unwrap();
        Local::new(Rc::clone(data), &room, per_minute)
    }

    #[test]
    fn all_workers_share_one_local_pace() {
        let data = Rc::new(LocalData::default());
        let workers = [local(&data, 60), local(&data, 60)];
        let now_ms = 1_000_000;
        assert_eq!(workers[0].call(10, 100, now_ms), 11);
        for second in 1..=20 {
            let worker = &workers[second as usize % 2];
            assert_eq!(worker.call(10, 100, now_ms + second * 1_000), 11 + second);
        }
        assert_eq!(
            workers[0].call(98, 100, now_ms + 90_000),
            99,
            "at most a second's worth"
        );
        assert_eq!(workers[0].call(98, 100, now_ms + 91_000), 100);
        assert_eq!(
            workers[0].call(98, 100, now_ms + 95_000),
            100,
            "nobody else is there"
        );
    }

    #[test]
    fn visitor_without_position_enters_at_local_pace_if_configured() {
        let data = Rc::new(LocalData::default());
        let worker = local(&data, 60);
        let accepted = (0..100).filter(|step| worker.take(1_000_000 + step * 100));
        assert_eq!(accepted.count(), 10);
        let none = local(&Rc::new(LocalData::default()), 0);
        assert!(!none.take(1_000_000) && none.call(3, 9, 2_000_000) == 3);
    }
}
