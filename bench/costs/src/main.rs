//! Prints what a request costs, as JSON; with `--profile`, where the fuel goes, as Markdown.

use anyhow::Result;

fn main() -> Result<()> {
    if std::env::args().any(|argument| argument == "--profile") {
        for profile in weir_costs::profile::all()? {
            println!("{}", profile.table());
        }
        return Ok(());
    }
    println!("{}", serde_json::to_string_pretty(&weir_costs::all()?)?);
    Ok(())
}
