//! The vehicle map, from vehicle to offset. Redis stores it in the order of offsets; a worker reads the missing part.

use core::mem;

use crate::redis::fit_vehicles::{Head, Tail, VehicleMapVersion, call};
use crate::redis::keys::VehicleMapKeys;
use crate::{Offset, VehicleId};
use hashbrown::HashMap;
use weir_engine::poll::Schedule;
use weir_scripts::Call;

/// Maximum vehicles per read: 40 KB, which takes a worker less than a millisecond.
const READ_MAX: u32 = 10_000;

/// The vehicle map and its reads.
#[derive(Debug)]
pub(crate) struct Vehicles {
    pub(crate) schedule: Schedule,
    keys: VehicleMapKeys,
    vehicles_max: u32,
    is_reading: bool,
    /// Whether the last read got no reply.
    is_unanswered: bool,
    /// The map for queries. A rebuilt map preserves offsets, so the previous one serves until the new one is complete.
    offsets: HashMap<u32, Offset>,
    /// The map being read, and its progress.
    next: HashMap<u32, Offset>,
    version: VehicleMapVersion,
    /// Whether `next` only extends the current map.
    is_current: bool,
    /// The head of the last read.
    head: Option<Head>,
}

impl Vehicles {
    /// An empty map, read at this interval once it exists.
    pub(crate) fn new(interval_ms: u64, key_prefix: &str, vehicles_max: u32) -> Self {
        Self {
            schedule: Schedule::new(interval_ms),
            keys: VehicleMapKeys::new(key_prefix),
            vehicles_max,
            is_reading: false,
            is_unanswered: false,
            offsets: HashMap::new(),
            next: HashMap::new(),
            version: VehicleMapVersion::default(),
            is_current: false,
            head: None,
        }
    }

    /// The offset of `vehicle`, if it has one.
    pub(crate) fn find(&self, vehicle: VehicleId) -> Option<Offset> {
        self.offsets.get(&vehicle.number()).copied()
    }

    /// Whether a page with this stamp is current.
    pub(crate) fn is_fresh(&self, stamp: u64) -> bool {
        self.head.is_some_and(|head| stamp >= head.stamp)
    }

    /// The read, if one is due.
    pub(crate) fn due(&mut self, now_ms: u64) -> Option<Call> {
        if self.is_reading || !self.schedule.is_due(now_ms) {
            return None;
        }
        self.is_reading = true;
        let room = self.vehicles_max.saturating_sub(self.version.count);
        Some(call(&self.keys, self.version, READ_MAX.min(room)))
    }

    /// Handles a reply without a map. Returns whether it is the first failure in a row.
    pub(crate) fn missing(&mut self) -> bool {
        self.is_reading = false;
        self.is_unanswered = false;
        self.schedule.failed()
    }

    /// Handles a missing or invalid reply. Returns whether to log it: only the first failure in a row, and only on a
    /// worker with requests. Others, such as Envoy's main thread, may have no connection to Redis.
    pub(crate) fn unanswered(&mut self, is_serving: bool) -> bool {
        self.is_reading = false;
        self.is_unanswered = true;
        is_serving && self.schedule.failed()
    }

    /// Whether the map is missing because Redis does not answer. Then the state of Redis is unknown, and the origin
    /// need not fill it.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.is_unanswered && self.head.is_none()
    }

    /// Handles a reply. Returns whether reads failed before.
    pub(crate) fn read(&mut self, tail: &Tail) -> bool {
        self.is_reading = false;
        self.is_unanswered = false;
        self.head = Some(tail.head);
        if tail.head.generation != self.version.generation || tail.head.count < self.version.count {
            self.begin_again(tail.head.generation);
        } else {
            self.append(tail);
        }
        let count = tail.head.count.min(self.vehicles_max);
        let is_whole = self.version.count >= count;
        if is_whole && !self.is_current {
            self.offsets = mem::take(&mut self.next);
            self.is_current = true;
        }
        let has_more = !is_whole && (!tail.vehicles.is_empty() || self.version.count == 0);
        let failed_before = self.schedule.succeeded();
        if has_more {
            self.schedule.again();
        }
        failed_before
    }

    fn begin_again(&mut self, generation: u64) {
        self.version = VehicleMapVersion {
            generation,
            count: 0,
        };
        self.next = HashMap::new();
        self.is_current = false;
    }

    fn append(&mut self, tail: &Tail) {
        let map = match self.is_current {
            true => &mut self.offsets,
            false => &mut self.next,
        };
        for vehicle in &tail.vehicles {
            self.version.count += 1;
            if let (Some(vehicle), Some(offset)) = (vehicle, Offset::new(self.version.count)) {
                map.insert(vehicle.number(), offset);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const INTERVAL_MS: u64 = 1_000;

    fn id(number: u32) -> VehicleId {
        VehicleId::from_number(number).unwrap()
    }

    /// A map in Redis, and a worker that reads it.
    struct Bench {
        vehicles: Vehicles,
        now_ms: u64,
        generation: u64,
        map: Vec<Option<VehicleId>>,
    }

    impl Bench {
        fn new(count: u32, vehicles_max: u32) -> Self {
            Self {
                vehicles: Vehicles::new(INTERVAL_MS, "w", vehicles_max),
                now_ms: 1_000_000,
                generation: 7,
                map: (1..=count)
                    .map(|number| Some(id(1_000_000 + number)))
                    .collect(),
            }
        }

        /// Answers a read with at most `most` vehicles. Returns whether one was due.
        fn read(&mut self, most: usize) -> bool {
            if self.vehicles.due(self.now_ms).is_none() {
                return false;
            }
            let existing = self.vehicles.version;
            let tail = match existing.generation == self.generation {
                true => self.map.get(existing.count as usize..).unwrap_or_default(),
                false => &[],
            };
            let room = (self.vehicles.vehicles_max - existing.count) as usize;
            let tail = Tail {
                head: Head {
                    generation: self.generation,
                    count: self.map.len() as u32,
                    stamp: self.generation,
                },
                vehicles: tail.iter().take(most.min(room)).copied().collect(),
            };
            self.vehicles.read(&tail);
            true
        }

        /// Reads until nothing is due. Returns the number of reads.
        fn read_all(&mut self, most: usize) -> usize {
            let mut reads = 0;
            while self.read(most) {
                reads += 1;
                assert!(reads < 100, "it reads without end");
            }
            self.now_ms += INTERVAL_MS;
            reads
        }

        fn offset(&self, number: u32) -> Option<u32> {
            self.vehicles.find(id(number)).map(Offset::get)
        }
    }

    #[test]
    fn vehicle_map_is_read_once_and_then_only_its_tail() {
        let mut bench = Bench::new(25, 1_000);
        assert_eq!(bench.read_all(10), 4, "the head, and 25 in steps of 10");
        assert_eq!(bench.offset(1_000_025), Some(25));
        assert_eq!(bench.offset(1_000_026), None);
        bench.map.push(Some(id(5)));
        assert_eq!(bench.read_all(10), 1);
        assert_eq!(bench.offset(5), Some(26));
    }

    #[test]
    fn previous_vehicle_map_is_used_until_the_next_is_complete() {
        let mut bench = Bench::new(25, 1_000);
        bench.read_all(10);
        bench.map[3] = None;
        bench.generation += 1;
        bench.read(10);
        bench.read(10);
        assert_eq!(bench.offset(1_000_004), Some(4), "it is not whole");
        bench.read_all(10);
        assert_eq!(bench.offset(1_000_004), None, "it was retired");
        assert_eq!(bench.offset(1_000_025), Some(25));
    }

    #[test]
    fn vehicle_map_shorter_than_its_count_is_not_read_forever() {
        let mut bench = Bench::new(25, 1_000);
        bench.read_all(10);
        bench.map.truncate(5);
        bench.read_all(10);
        assert_eq!(bench.offset(1_000_005), Some(5));
        let mut existing = bench.vehicles.head.unwrap();
        existing.count = 30;
        bench.now_ms += INTERVAL_MS;
        assert!(bench.vehicles.due(bench.now_ms).is_some());
        let tail = Tail {
            head: existing,
            vehicles: Vec::new(),
        };
        bench.vehicles.read(&tail);
        assert!(
            bench.vehicles.due(bench.now_ms).is_none(),
            "at the next interval"
        );
    }

    #[test]
    fn vehicle_cache_is_bounded() {
        let mut bench = Bench::new(25, 10);
        bench.read_all(4);
        assert_eq!(
            (bench.offset(1_000_010), bench.offset(1_000_011)),
            (Some(10), None)
        );
        assert_eq!(bench.vehicles.offsets.len(), 10);
        assert!(bench.vehicles.is_fresh(7) && !bench.vehicles.is_fresh(6));
    }
}
