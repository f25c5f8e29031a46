//! Tables for other programs: RFC 4180, and nothing that a spreadsheet would take for a formula.

use super::stats::DAY_MS;

/// A table that is being written.
pub struct Csv(String);

impl Csv {
    /// One with these column names.
    pub fn new(columns: &[&str]) -> Self {
        let mut csv = Self(String::new());
        csv.line(columns);
        csv
    }

    /// Adds a line.
    pub fn line(&mut self, cells: &[&str]) {
        for (index, cell) in cells.iter().enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            self.cell(cell);
        }
        self.0.push_str("\r\n");
    }

    /// A cell that begins as formulas do gets a `'` in front, by which spreadsheets take it for text:
    /// referrers and names of networks are whatever somebody has sent.
    fn cell(&mut self, text: &str) {
        let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
        let is_quoted = text.contains(['"', ',', '\r', '\n']);
        if is_quoted {
            self.0.push('"');
        }
        if is_formula {
            self.0.push('\'');
        }
        self.0.push_str(&text.replace('"', "\"\""));
        if is_quoted {
            self.0.push('"');
        }
    }

    /// All of it.
    pub fn finish(self) -> String {
        self.0
    }
}

/// An instant as RFC 3339 has it, to the second: `2026-11-21T14:00:00Z`.
pub fn utc(at_ms: u64) -> String {
    let (days, seconds) = (at_ms / DAY_MS, at_ms % DAY_MS / 1_000);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date that is so many days after 1970-01-01, by Howard Hinnant's `civil_from_days`: years begin in
/// March, so that the leap day is the last of one.
fn date(days: u64) -> (u64, u64, u64) {
    // Days of 400 years, of a century, of four years, of a year; and from 0000-03-01 to 1970-01-01.
    const ERA: u64 = 146_097;
    let days = days.saturating_add(719_468);
    let (era, of_era) = (days / ERA, days % ERA);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, is_next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + is_next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_none_breaks_out() {
        let cases = [
            ("plain", "plain"),
            ("", ""),
            ("=1+1", "'=1+1"),
            ("+49", "'+49"),
            ("-2", "'-2"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\tx", "'\tx"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            (
                "=HYPERLINK(\"a\",\"b\")",
                "\"'=HYPERLINK(\"\"a\"\",\"\"b\"\")\"",
            ),
            ("a\r\nb", "\"a\r\nb\""),
        ];
        for (cell, expected) in cases {
            let mut csv = Csv::new(&["x", "y"]);
            csv.line(&[cell, "1"]);
            assert_eq!(csv.finish(), format!("x,y\r\n{expected},1\r\n"));
        }
    }

    #[test]
    fn instants_are_written_as_people_know_them() {
        for (at_ms, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_795_263_805_216, "2026-11-21T12:23:25Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(at_ms), expected);
        }
    }
}
