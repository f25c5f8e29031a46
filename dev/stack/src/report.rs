//! Progress reports for long steps.

/// Receives one line per step or result.
pub trait Reporter {
    /// Reports `text` about `subject`, a short name such as "envoy".
    fn line(&mut self, subject: &str, text: &str);
}

/// Prints `subject` and `text` in two columns to standard error. Standard output is only for results.
#[derive(Debug, Default, Clone, Copy)]
pub struct Console;

impl Reporter for Console {
    fn line(&mut self, subject: &str, text: &str) {
        eprintln!("{subject:<13} {text}");
    }
}

/// Reports actions such as downloads, but not results: for steps that run again later.
#[derive(Debug, Default, Clone, Copy)]
pub struct ProgressReporter;

impl Reporter for ProgressReporter {
    fn line(&mut self, subject: &str, text: &str) {
        if text.ends_with('…') {
            Console.line(subject, text);
        }
    }
}

/// Reports nothing: for tests.
#[derive(Debug, Default, Clone, Copy)]
pub struct SilentReporter;

impl Reporter for SilentReporter {
    fn line(&mut self, _what: &str, _text: &str) {}
}

/// Records the lines: for tests of reports.
#[derive(Debug, Default, Clone)]
pub struct RecordingReporter {
    /// All lines so far, as (what, text).
    pub lines: Vec<(String, String)>,
}

impl Reporter for RecordingReporter {
    fn line(&mut self, subject: &str, text: &str) {
        self.lines.push((subject.to_owned(), text.to_owned()));
    }
}
