//! CSV tables (RFC 4180) without cells that a spreadsheet would run as formulas.

/// A table, or a part of one without column names.
#[derive(Default)]
pub struct Csv(String);

impl Csv {
    /// Creates a table with these column names.
    pub fn new(columns: &[&str]) -> Self {
        let mut csv = Self(String::new());
        csv.line(columns);
        csv
    }

    /// Adds a row.
    pub fn line(&mut self, cells: &[&str]) {
        for (index, cell) in cells.iter().enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            self.cell(cell);
        }
        self.0.push_str("\r\n");
    }

    /// Prefixes a cell that starts like a formula with `'`, which marks it as text in spreadsheets. Referrers and user
    /// names are untrusted.
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

    /// Returns the table as text.
    pub fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_cells_are_escaped_against_formulas_and_breakout() {
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
}
