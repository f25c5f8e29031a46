//! Free space on the disks that the origin writes to.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// A disk counts as full with less free space than this: the next writes may fail.
pub const FULL_BELOW_BYTES: u64 = 1024 * 1024;

/// A folder that the origin writes to.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Name in labels and in `/readyz`.
    pub name: &'static str,
    /// The folder.
    pub folder: PathBuf,
    /// Whether the origin is not ready when the disk is full.
    pub is_vital: bool,
}

/// The size and free space of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Free bytes, for processes other than root's.
    pub free_bytes: u64,
    /// Total bytes, used ones included.
    pub size_bytes: u64,
}

impl Disk {
    /// The disk of the folder that `file` is in.
    pub fn of_file(name: &'static str, file: &Path) -> Self {
        let folder = file.parent().filter(|path| !path.as_os_str().is_empty());
        Self {
            name,
            folder: folder.unwrap_or(Path::new(".")).to_owned(),
            is_vital: false,
        }
    }

    /// The disk of `folder`.
    pub fn of_folder(name: &'static str, folder: &Path) -> Self {
        Self {
            name,
            folder: folder.to_owned(),
            is_vital: false,
        }
    }

    /// Marks the disk as required: the origin is not ready when it is full.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.is_vital = true;
        self
    }

    /// Reads its free space.
    ///
    /// # Errors
    /// When the folder does not exist.
    pub fn room(&self) -> io::Result<Room> {
        let observed = rustix::fs::statvfs(&self.folder)?;
        Ok(Room {
            free_bytes: observed.f_bavail.saturating_mul(observed.f_frsize),
            size_bytes: observed.f_blocks.saturating_mul(observed.f_frsize),
        })
    }

    /// Label of its problem; `None` if it has none.
    pub fn problem(&self) -> Option<&'static str> {
        match self.room() {
            Ok(room) if room.free_bytes < FULL_BELOW_BYTES => Some("full"),
            Ok(_) => None,
            Err(_) => Some("gone"),
        }
    }
}

/// All disks that the origin writes to. Cloning it is cheap: clones share them. Gauges report their free space at each
/// scrape.
#[derive(Clone, Debug, Default)]
pub struct Disks(Arc<Mutex<Vec<Disk>>>);

impl Disks {
    /// Adds a disk.
    pub fn add(&self, disk: Disk) {
        self.lock().push(disk);
    }

    /// Returns the current disks.
    pub fn all(&self) -> Vec<Disk> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Disk>> {
        // The list is always consistent, even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Disks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let disks = self.all();
        let rooms = disks.iter();
        let rooms = rooms.filter_map(|disk| Some((disk.name, disk.room().ok()?)));
        let rooms: Vec<(&str, Room)> = rooms.collect();
        let mut family = |name, help, read: fn(&Room) -> u64| {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (disk, room) in &rooms {
                let bytes = i64::try_from(read(room)).unwrap_or(i64::MAX);
                let labels = [("disk", *disk)];
                ConstGauge::new(bytes).encode(metric.encode_family(&labels)?)?;
            }
            Ok(())
        };
        let help = "Free bytes on the disks where the origin writes";
        family("disk_free_bytes", help, |room| room.free_bytes)?;
        let help = "Size in bytes of the disks where the origin writes";
        family("disk_size_bytes", help, |room| room.size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_folder_differs_from_one_with_free_space() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::of_file("database", &dir.path().join("weir.db"));
        assert_eq!(disk.problem(), None);
        let room = disk.room().unwrap();
        assert!(0 < room.free_bytes && room.free_bytes <= room.size_bytes);
        drop(dir);
        assert_eq!(disk.problem(), Some("gone"));
        assert_eq!(
            Disk::of_file("database", Path::new("weir.db")).folder,
            Path::new(".")
        );
    }
}
