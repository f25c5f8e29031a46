//! Formats errors for logs and terminals.

/// An error with its causes in one line. Many errors already end with their cause; it is not repeated.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_error_cause_is_printed_once() {
        let cause = || std::io::Error::other("no such file");
        let error = anyhow::Error::from(cause()).context("cannot open the database: no such file");
        let error = error.context("--database-url");
        let expected = "--database-url: cannot open the database: no such file";
        assert_eq!(one_line(&error), expected);
        let plain = anyhow::Error::from(cause()).context("--risk-rules: r.json");
        assert_eq!(one_line(&plain), "--risk-rules: r.json: no such file");
    }
}
