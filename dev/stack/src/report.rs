//! How a long step tells the person in front of it what it does.

/// Takes one line for each thing found or done.
pub trait Reporter {
    /// `what` is the short name of the thing ("envoy"), `text` what became of it.
    fn line(&mut self, what: &str, text: &str);
}

/// Prints `what` and `text` in two columns to standard error, so that standard output keeps
/// to results.
#[derive(Debug, Default, Clone, Copy)]
pub struct Console;

impl Reporter for Console {
    fn line(&mut self, what: &str, text: &str) {
        eprintln!("{what:<13} {text}");
    }
}

/// Says what is being done, like a download, but not what was found: for a step that is looked at again later.
#[derive(Debug, Default, Clone, Copy)]
pub struct ProgressReporter;

impl Reporter for ProgressReporter {
    fn line(&mut self, what: &str, text: &str) {
        if text.ends_with('…') {
            Console.line(what, text);
        }
    }
}

/// Says nothing: for tests.
#[derive(Debug, Default, Clone, Copy)]
pub struct SilentReporter;

impl Reporter for SilentReporter {
    fn line(&mut self, _what: &str, _text: &str) {}
}

/// Keeps the lines: for tests of what is said.
#[derive(Debug, Default, Clone)]
pub struct RecordingReporter {
    /// Every line so far as (what, text).
    pub lines: Vec<(String, String)>,
}

impl Reporter for RecordingReporter {
    fn line(&mut self, what: &str, text: &str) {
        self.lines.push((what.to_owned(), text.to_owned()));
    }
}
