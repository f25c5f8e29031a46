//! Child processes that end with this process: logged, monitored, stopped.

use crate::command;
use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

/// The time between SIGTERM and SIGKILL. Envoy and Redis stop in less than a second; the origin waits for its requests.
const GRACE: Duration = Duration::from_secs(10);

/// The polling interval for a child's state.
const POLL: Duration = Duration::from_millis(10);

/// The number of log lines in an error.
const TAIL_LINES: usize = 25;

/// The maximum line length in an error: Envoy lists its extensions in lines of thousands of characters.
const TAIL_LINE_CHARS: usize = 400;

/// The maximum number of bytes read from the end of a log.
const TAIL_BYTES: u64 = 64 * 1024;

/// A running child with a name and a log file.
///
/// It has its own process group, so that Ctrl-C in a terminal reaches only the parent, which stops children in order.
/// Dropping it stops it. Where `setpriv` (util-linux) is installed, the kernel kills it when this process dies, even by
/// SIGKILL.
pub struct Process {
    name: String,
    make: Box<dyn Fn() -> Command + Send + Sync>,
    log: PathBuf,
    child: Option<Child>,
}

/// A child that ended unexpectedly.
#[derive(Debug)]
pub struct DiedChild {
    /// The process name, such as `envoy`.
    pub name: String,
    /// The exit status.
    pub status: ExitStatus,
    /// The path of its complete log.
    pub log: PathBuf,
    /// The end of the log.
    pub log_tail: String,
}

impl fmt::Display for DiedChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name, status, log, ..
        } = self;
        let log = log.display();
        write!(
            f,
            "{name} exited ({status}); the end of {log}:\n{}",
            self.log_tail
        )
    }
}

impl std::error::Error for DiedChild {}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The command is omitted, because its environment contains secrets.
        let pid = self.pid();
        write!(
            f,
            "Process({}, pid {pid:?}, log {})",
            self.name,
            self.log.display()
        )
    }
}

impl Process {
    /// Starts the command that `make` creates. Appends both its outputs to the file `log`. [`Process::start_again`]
    /// calls `make` again.
    pub fn start(
        name: &str,
        log: &Path,
        make: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Result<Self> {
        let mut process = Self {
            name: name.to_owned(),
            make: Box::new(make),
            log: log.to_path_buf(),
            child: None,
        };
        process.start_again()?;
        Ok(process)
    }

    /// Restarts it after [`Process::stop`], [`Process::kill`] or an unexpected end.
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(!self.is_running(), "{} is already running", self.name);
        let output = self.open_log()?;
        let mut command = die_with_parent(&(self.make)());
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        let child = spawn(command).with_context(|| format!("cannot start {}", self.name))?;
        self.child = Some(child);
        Ok(())
    }

    fn open_log(&self) -> Result<File> {
        let open = || {
            std::fs::create_dir_all(self.log.parent().unwrap_or(Path::new(".")))?;
            OpenOptions::new().create(true).append(true).open(&self.log)
        };
        open().with_context(|| format!("cannot open the log {}", self.log.display()))
    }

    /// Its name in errors and logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process ID while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last `lines` lines of the log.
    pub fn tail(&self, lines: usize) -> String {
        tail_of(&self.log, lines)
    }

    /// The exit status of an unexpected end; `None` while it runs or after it was stopped.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.child {
            Some(child) => child
                .try_wait()
                .with_context(|| format!("cannot watch {}", self.name)),
            None => Ok(None),
        }
    }

    /// Returns an error if it ended unexpectedly.
    pub fn check(&mut self) -> Result<(), DiedChild> {
        match self.try_wait() {
            Ok(Some(status)) => Err(DiedChild {
                name: self.name.clone(),
                status,
                log: self.log.clone(),
                log_tail: self.tail(TAIL_LINES),
            }),
            _ => Ok(()),
        }
    }

    /// Whether it was started and has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.is_some() && matches!(self.try_wait(), Ok(None))
    }

    /// Sends SIGTERM, and SIGKILL after 10 s. Does nothing if it has ended. Blocks until it ends.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        if ended_within(&mut child, Duration::ZERO) {
            return;
        }
        signal(&child, Signal::TERM);
        if !ended_within(&mut child, GRACE) {
            kill_group(&child);
            child.wait().ok();
        }
    }

    /// Sends SIGKILL to it and to its children, without a chance to write anything. Blocks until it has ended.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            kill_group(&child);
            child.wait().ok();
        }
    }

    /// Sends SIGSTOP: the process and its connections stay, but it does nothing until [`Process::thaw`].
    pub fn freeze(&self) {
        if let Some(child) = &self.child {
            signal(child, Signal::STOP);
        }
    }

    /// Continues it after [`Process::freeze`].
    pub fn thaw(&self) {
        if let Some(child) = &self.child {
            signal(child, Signal::CONT);
        }
    }

    /// Waits until `ready` returns `true`. Returns an error if the process ends first, or after `limit`. Both errors
    /// contain the end of its log.
    pub async fn wait_ready<F>(&mut self, limit: Duration, ready: impl Fn() -> F) -> Result<()>
    where
        F: Future<Output = bool>,
    {
        let deadline = Instant::now() + limit;
        loop {
            self.check()?;
            if ready().await {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(anyhow!(
                    "{} was not ready within {} s; the end of {}:\n{}",
                    self.name,
                    limit.as_secs(),
                    self.log.display(),
                    self.tail(TAIL_LINES)
                ));
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

fn ended_within(child: &mut Child, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

fn signal(child: &Child, signal: Signal) {
    if let Some(pid) = pid(child) {
        // It may just have ended; the caller waits for it in either case.
        kill_process(pid, signal).ok();
    }
}

/// Kills the group, because Node would leave workerd behind.
fn kill_group(child: &Child) {
    if let Some(pid) = pid(child) {
        kill_process_group(pid, Signal::KILL).ok();
    }
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn tail_of(log: &Path, lines: usize) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let tail = command::last_lines(&read().unwrap_or_default(), lines);
    tail.lines().map(shortened).collect::<Vec<_>>().join("\n")
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(TAIL_LINE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Runs the command through `setpriv`, with a request to the kernel to kill it when the thread that started it ends.
/// The underlying call needs `unsafe` between fork and exec, which this workspace denies. setpriv execs the command, so
/// the process ID stays the same.
fn die_with_parent(command: &Command) -> Command {
    let Some(setpriv) = command::on_path("setpriv") else {
        return copy(command, Command::new(command.get_program()));
    };
    let mut wrapped = Command::new(setpriv);
    wrapped
        .args(["--pdeathsig", "KILL", "--"])
        .arg(command.get_program());
    copy(command, wrapped)
}

fn copy(from: &Command, mut to: Command) -> Command {
    to.args(from.get_args());
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
    if let Some(dir) = from.get_current_dir() {
        to.current_dir(dir);
    }
    to
}

/// Starts `command` from a thread that lives as long as this process. The kernel ties the child's life to the *thread*
/// that started it, and a runtime's worker threads are temporary.
fn spawn(command: Command) -> Result<Child> {
    type Order = (Command, mpsc::Sender<std::io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, accepted) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in accepted {
                answer.send(command.spawn()).ok();
            }
        });
        orders
    });
    let (answer, child) = mpsc::channel();
    spawner
        .send((command, answer))
        .context("the spawner thread has ended")?;
    Ok(child.recv().context("the spawner thread has ended")??)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &'static str) -> (tempfile::TempDir, Process) {
        let temp = tempfile::tempdir().unwrap();
        let make = move || {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let process = Process::start("child", &temp.path().join("child.log"), make).unwrap();
        (temp, process)
    }

    fn wait_for_end(process: &mut Process) -> DiedChild {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Err(died) = process.check() {
                return died;
            }
            assert!(Instant::now() < deadline, "the child did not end");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn exited_child_is_reported_with_its_status_and_log() {
        let (_temp, mut process) = shell("echo out; echo reason >&2; exit 7");
        let died = wait_for_end(&mut process);
        assert_eq!((died.name.as_str(), died.status.code()), ("child", Some(7)));
        let message = died.to_string();
        assert!(
            message.contains("out") && message.contains("reason"),
            "{message}"
        );
    }

    #[test]
    fn log_tail_has_the_last_lines_and_shortens_endless_ones() {
        let temp = tempfile::tempdir().unwrap();
        let log = temp.path().join("log");
        std::fs::write(&log, format!("first\n{}\nlast\n", "é".repeat(5000))).unwrap();
        let tail = tail_of(&log, 2);
        assert!(
            tail.ends_with("…\nlast") && !tail.contains("first"),
            "{tail}"
        );
        assert!(tail.chars().count() < TAIL_LINE_CHARS + 10);
    }

    #[test]
    fn stop_is_not_a_crash_and_the_child_can_restart() {
        let (_temp, mut process) = shell("echo started; exec sleep 60");
        process.stop();
        assert!(process.check().is_ok() && !process.is_running());
        process.start_again().unwrap();
        assert!(process.is_running());
    }

    #[test]
    fn descendants_of_a_killed_child_end_with_it() {
        let (_temp, mut process) = shell("sleep 60 & echo $!; wait");
        let deadline = Instant::now() + Duration::from_secs(10);
        let grandchild = loop {
            if let Some(pid) = process.tail(1).parse().ok().and_then(Pid::from_raw) {
                break pid;
            }
            assert!(Instant::now() < deadline, "it has started nothing");
            std::thread::sleep(POLL);
        };
        let state = || {
            let stat =
                std::fs::read_to_string(format!("/proc/{}/stat", grandchild.as_raw_nonzero()));
            // `<pid> (sleep) <state> …`; the process may not have been reaped yet.
            stat.ok()
                .and_then(|stat| stat.split(' ').nth(2).map(str::to_owned))
        };
        // It may not be sleeping yet.
        let lives = || state().is_some_and(|state| state != "Z");
        assert!(lives());
        process.kill();
        while lives() {
            assert!(Instant::now() < deadline, "it lives on");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn child_outlives_the_thread_that_started_it() {
        let (_temp, mut process) = std::thread::spawn(|| shell("exec sleep 60"))
            .join()
            .unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert!(process.is_running());
    }

    #[tokio::test]
    async fn wait_for_an_exited_child_ends_at_once() {
        let (_temp, mut process) = shell("echo refused; exit 1");
        let started = Instant::now();
        let never = || async { false };
        let error = process
            .wait_ready(Duration::from_secs(30), never)
            .await
            .unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(5));
        assert!(error.to_string().contains("refused"), "{error}");
    }
}
