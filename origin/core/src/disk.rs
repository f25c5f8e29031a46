//! How full the disks are that the origin writes to.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// With less room than this a disk counts as full: the next writes may fail.
pub const FULL_BELOW_BYTES: u64 = 1024 * 1024;

/// A folder that the origin writes to.
#[derive(Clone, Debug)]
pub struct Disk {
    /// What is written there, as labels and `/readyz` name it.
    pub name: &'static str,
    /// The folder.
    pub folder: PathBuf,
    /// Whether the origin can do nothing useful when it is full.
    pub is_vital: bool,
}

/// The room on a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// For whoever is not root.
    pub free_bytes: u64,
    /// With what is in use.
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

    /// The same, without which the origin can do nothing useful.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.is_vital = true;
        self
    }

    /// Its room now.
    ///
    /// # Errors
    /// When the folder is gone.
    pub fn room(&self) -> io::Result<Room> {
        let seen = rustix::fs::statvfs(&self.folder)?;
        Ok(Room {
            free_bytes: seen.f_bavail.saturating_mul(seen.f_frsize),
            size_bytes: seen.f_blocks.saturating_mul(seen.f_frsize),
        })
    }

    /// What is wrong with it, in a word; `None` if nothing is.
    pub fn problem(&self) -> Option<&'static str> {
        match self.room() {
            Ok(room) if room.free_bytes < FULL_BELOW_BYTES => Some("full"),
            Ok(_) => None,
            Err(_) => Some("gone"),
        }
    }
}

/// All disks that the origin writes to. Cloning it is cheap: clones share them. Their room is shown as gauges, asked for with
/// each scrape.
#[derive(Clone, Debug, Default)]
pub struct Disks(Arc<Mutex<Vec<Disk>>>);

impl Disks {
    /// One more.
    pub fn add(&self, disk: Disk) {
        self.lock().push(disk);
    }

    /// Those that are known now.
    pub fn all(&self) -> Vec<Disk> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Disk>> {
        // Nothing in it can be half done.
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
    fn a_folder_that_is_gone_is_told_from_one_with_room() {
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
