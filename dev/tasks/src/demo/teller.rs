//! Prints events as they happen: one line each, with the time.

use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::Instant;

/// Prints to standard output, with bold text only in a terminal.
#[derive(Debug)]
pub(super) struct StoryPrinter {
    started: Instant,
    is_bold: bool,
    reported: Vec<StoryLine>,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StoryLine {
    /// Seconds since the start of the demo.
    pub(super) at_s: f64,
    pub(super) phase: &'static str,
    pub(super) text: String,
}

impl StoryPrinter {
    pub(super) fn new() -> Self {
        let is_bold = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self {
            started: Instant::now(),
            is_bold,
            reported: Vec::new(),
        }
    }

    /// Whether the output is a terminal that supports colours.
    pub(super) fn has_colours(&self) -> bool {
        self.is_bold
    }

    /// Prints one line of `phase`. The first line of a phase includes its name.
    pub(super) fn tell(&mut self, phase: &'static str, text: impl Into<String>) {
        let line = StoryLine {
            at_s: self.started.elapsed().as_secs_f64(),
            phase,
            text: text.into(),
        };
        let goes_on = self.reported.last().is_some_and(|last| last.phase == phase);
        let name = if goes_on { "" } else { phase };
        println!("{}", line.line(name, self.is_bold));
        self.reported.push(line);
    }

    pub(super) fn json(&self) -> Value {
        let reply = self.reported.iter();
        reply
            .map(|reply| json!({ "at_s": reply.at_s, "phase": reply.phase, "text": reply.text }))
            .collect()
    }
}

impl StoryLine {
    fn line(&self, name: &str, is_bold: bool) -> String {
        let Self { at_s, text, .. } = self;
        match is_bold {
            true => format!("{at_s:>6.1} s  \x1b[1m{name:<11}\x1b[0m {text}"),
            false => format!("{at_s:>6.1} s  {name:<11} {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_and_plain_ones_lack_control_characters() {
        let line = |at_s, phase, is_bold| {
            let text = "x".to_owned();
            StoryLine { at_s, phase, text }.line(phase, is_bold)
        };
        let plain = line(1.26, "rush", false);
        assert_eq!(plain, "   1.3 s  rush        x");
        assert_eq!(line(100.0, "reservation", false).len(), plain.len());
        assert!(!plain.contains(char::is_control));
        let bold = line(1.26, "rush", true)
            .replace("\x1b[1m", "")
            .replace("\x1b[0m", "");
        assert_eq!(bold, plain);
    }
}
