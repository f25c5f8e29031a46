//! The access log of the fast path: JSON lines with the members of the HTTP access log in `envoy/native.yaml`.
//!
//! A thread writes the lines. Workers never wait for it: a line that does not fit into its queue is dropped and counted.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_base::FieldError;
use weir_engine::Answer;
use weir_envoy_abi as abi;

/// The most lines that wait for the thread.
const QUEUE_LINES_MAX: usize = 4_096;

/// How often the thread looks for a file that was moved away.
const REOPEN_PERIOD: Duration = Duration::from_secs(1);

/// The settings of the access log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessLogSettings {
    /// The file, for example `/dev/stdout`. Lines are appended; a file that was moved away is created again.
    path: String,
    /// One of this many answers below status 500 is logged, and each other answer. Default: 100.
    #[serde(default = "default_one_in")]
    one_in: u32,
}

fn default_one_in() -> u32 {
    100
}

/// One access log.
#[derive(Debug)]
pub struct AccessLog {
    lines: SyncSender<Vec<u8>>,
    one_in: u32,
    /// Answers since the last logged one.
    skipped: AtomicU32,
}

/// One line. `null`: only the HTTP stack has a value.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    method: &'a str,
    path: &'a str,
    status: u16,
    verdict: Option<String>,
    duration_ms: u64,
    origin_ms: Option<u64>,
    flags: &'static str,
    details: &'a str,
    bytes_sent: usize,
    address: &'a str,
    request_id: Option<String>,
    traceparent: Option<String>,
}

/// An answered request.
#[derive(Clone, Copy, Debug)]
pub struct LoggedRequest<'a> {
    /// The method.
    pub method: &'a str,
    /// The path with the query.
    pub path: &'a str,
    /// The client's address.
    pub address: &'a str,
    /// The `traceparent` header.
    pub traceparent: Option<&'a [u8]>,
    /// Milliseconds since the Unix epoch.
    pub now_ms: u64,
}

impl AccessLog {
    /// Opens the file and starts the thread. Creates neither while Envoy validates its configuration.
    ///
    /// # Errors
    /// Names the field that is wrong, or the file that cannot be written.
    pub fn open(settings: &AccessLogSettings) -> Result<Option<Self>, FieldError> {
        if settings.one_in == 0 {
            return Err(FieldError::new("access_log.one_in", "must be 1 or more"));
        }
        if abi::is_validating() {
            return Ok(None);
        }
        let refuse = |error| {
            let problem = format!("cannot write {}: {error}", settings.path);
            FieldError::new("access_log.path", problem)
        };
        let output = Output::open(settings.path.clone()).map_err(refuse)?;
        let (lines, queue) = sync_channel(QUEUE_LINES_MAX);
        let thread = std::thread::Builder::new().name("weir-log".into());
        thread
            .spawn(move || write(output, &queue))
            .map_err(refuse)?;
        Ok(Some(Self {
            lines,
            one_in: settings.one_in,
            skipped: AtomicU32::new(settings.one_in),
        }))
    }

    /// Logs an answer, or skips it. Returns `false` if the line was dropped.
    pub fn answered(&self, request: &LoggedRequest<'_>, answer: &Answer) -> bool {
        if answer.status < 500 && self.skipped.fetch_add(1, Ordering::Relaxed) < self.one_in - 1 {
            return true;
        }
        self.skipped.store(0, Ordering::Relaxed);
        self.lines.try_send(line(request, answer)).is_ok()
    }
}

fn line(request: &LoggedRequest<'_>, answer: &Answer) -> Vec<u8> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let line = Line {
        time: rfc3339(request.now_ms),
        method: request.method,
        path: request.path,
        status: answer.status,
        verdict: answer
            .headers
            .get("x-weir-verdict")
            .map(|value| text(&value)),
        // The histogram has smaller units.
        duration_ms: 0,
        origin_ms: None,
        flags: "-",
        details: &answer.details,
        bytes_sent: answer.body.len(),
        address: request.address,
        request_id: None,
        traceparent: request.traceparent.map(text),
    };
    let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The time as Envoy writes it, in UTC.
fn rfc3339(now_ms: u64) -> String {
    let time = i64::try_from(now_ms).ok();
    let time = time.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map(|time| format!("{time:.3}")).unwrap_or_default()
}

/// Writes lines until the log is dropped.
fn write(mut output: Output, queue: &Receiver<Vec<u8>>) {
    while let Ok(first) = queue.recv() {
        output.reopen_if_moved();
        // An error, such as a full disk, loses lines but must not end the log.
        output.write(&first);
        queue.try_iter().for_each(|line| output.write(&line));
        output.flush();
    }
}

/// The log's file.
struct Output {
    path: String,
    file: BufWriter<File>,
    checked: Instant,
    has_failed: bool,
}

impl Output {
    fn open(path: String) -> std::io::Result<Self> {
        let file = BufWriter::new(append(&path)?);
        Ok(Self {
            path,
            file,
            checked: Instant::now(),
            has_failed: false,
        })
    }

    /// Creates the file again after a log rotation has moved it.
    fn reopen_if_moved(&mut self) {
        if self.checked.elapsed() < REOPEN_PERIOD {
            return;
        }
        self.checked = Instant::now();
        let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let current = self.file.get_ref().metadata().map(id).ok();
        if current != std::fs::metadata(&self.path).map(id).ok()
            && let Ok(file) = append(&self.path)
        {
            self.file = BufWriter::new(file);
        }
    }

    fn write(&mut self, line: &[u8]) {
        let result = self.file.write_all(line);
        self.check(result);
    }

    fn flush(&mut self) {
        let result = self.file.flush();
        self.check(result);
    }

    /// Logs the first error after a success.
    fn check(&mut self, result: std::io::Result<()>) {
        match result {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    let text = format!(
                        "weir.fast_path: cannot write {}, so access log lines are lost: {error}",
                        self.path
                    );
                    abi::log(abi::Level::Warn, &text);
                }
            }
        }
    }
}

fn append(path: &str) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(path: &std::path::Path, one_in: u32) -> AccessLogSettings {
        AccessLogSettings {
            path: path.to_str().unwrap().to_owned(),
            one_in,
        }
    }

    fn answer(status: u16) -> Answer {
        let mut answer = Answer::new(status, &[("x-weir-verdict", "sold_out")], "gone");
        answer.details = "weir_sold_out".into();
        answer
    }

    const REQUEST: LoggedRequest<'static> = LoggedRequest {
        method: "POST",
        path: "/sales/a/orders?b=\"",
        address: "192.0.2.1",
        traceparent: None,
        now_ms: 784_111_777_042,
    };

    /// The log's lines once its thread has written `count` of them.
    fn lines(path: &std::path::Path, count: usize) -> Vec<serde_json::Value> {
        for _ in 0..1_000 {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if text.lines().count() >= count {
                return text
                    .lines()
                    .map(|line| serde_json::from_str(line).unwrap())
                    .collect();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{count} lines are missing in {}", path.display());
    }

    #[test]
    fn access_log_has_the_members_of_the_http_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = AccessLog::open(&settings(&path, 1)).unwrap().unwrap();
        assert!(log.answered(&REQUEST, &answer(409)));
        let logged = lines(&path, 1).remove(0);
        assert_eq!(logged["time"], "1994-11-06T08:49:37.042Z");
        assert_eq!(logged["path"], REQUEST.path);
        assert_eq!(
            (&logged["status"], &logged["verdict"]),
            (&409.into(), &"sold_out".into())
        );
        assert_eq!(logged["details"], "weir_sold_out");
        let shipped = include_str!("../../../envoy/native.yaml");
        let (before, _) = shipped.split_once("http_filters:").unwrap();
        let (_, format) = before.rsplit_once("json_format:").unwrap();
        let members = format
            .lines()
            .filter_map(|line| line.trim().split_once(": \"%"));
        let mut members: Vec<&str> = members.map(|(name, _)| name).collect();
        members.sort_unstable();
        let names: Vec<&String> = logged.as_object().unwrap().keys().collect();
        let mut names: Vec<&str> = names.into_iter().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, members);
    }

    #[test]
    fn failures_and_one_answer_in_n_are_logged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = AccessLog::open(&settings(&path, 10)).unwrap().unwrap();
        for _ in 0..21 {
            log.answered(&REQUEST, &answer(409));
        }
        log.answered(&REQUEST, &answer(503));
        let logged = lines(&path, 4);
        assert_eq!(
            logged.len(),
            4,
            "the first, the eleventh, the 21st and the failure"
        );
    }

    #[test]
    fn moved_file_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("log"), dir.path().join("log.1"));
        let mut output = Output::open(path.to_str().unwrap().to_owned()).unwrap();
        output.write(b"one\n");
        output.flush();
        std::fs::rename(&path, &moved).unwrap();
        output.checked = Instant::now().checked_sub(REOPEN_PERIOD).unwrap();
        output.reopen_if_moved();
        output.write(b"two\n");
        output.flush();
        assert_eq!(std::fs::read(&moved).unwrap(), b"one\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
    }

    #[test]
    fn unwritable_file_is_refused() {
        let error = AccessLog::open(&settings("/nonexistent/log".as_ref(), 1)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("access_log.path: cannot write /nonexistent/log"),
            "{error}"
        );
        let error = AccessLog::open(&settings("/dev/null".as_ref(), 0)).unwrap_err();
        assert!(
            error.to_string().starts_with("access_log.one_in"),
            "{error}"
        );
    }
}
