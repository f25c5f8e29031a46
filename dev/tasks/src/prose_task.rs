//! `cargo xtask prose`: checks documents, help texts and page texts with Vale and the rules in `docs/.vale`.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::Chars;
use std::time::Duration;
use weir_stack::report::{Console, Reporter};
use weir_stack::tools::Vale;
use weir_stack::{command, origin, workspace};

/// Sentences that the rules must detect, one per line.
const SENTENCES: &str = "docs/.vale/sentences.txt";

/// The English texts of pages and messages for buyers and visitors.
const TABLE: &str = "crates/text/texts/en.json";

/// Sources with other texts for visitors and operators: their string literals are checked. HTML is checked as it is.
const TEXTS: [&str; 2] = ["crates/*/page/*.js", "origin/*/page/*.js"];

const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn run() -> Result<ExitCode> {
    let vale = match Vale::find_or_get(&mut Console) {
        Err(error) if command::on_path("go").is_none() => {
            Console.line("prose", &format!("1 skipped: {error:#}"));
            return Ok(ExitCode::SUCCESS);
        }
        found => found?,
    };
    let out = workspace::out_dir().join("prose");
    let mut files = tracked(&["*.md", "crates/*/page/*.html", "origin/*/page/*.html"])?;
    files.extend(help(&origin::ensure_built()?, &out)?);
    files.extend(help(&std::env::current_exe()?, &out)?);
    let table = std::fs::read_to_string(workspace::root().join(TABLE))?;
    let texts = texts_of(&table).with_context(|| format!("cannot read {TABLE}"))?;
    files.push(write(&out, &format!("texts/{TABLE}.md"), &texts)?);
    for source in tracked(&TEXTS)? {
        let text = std::fs::read_to_string(workspace::root().join(&source))?;
        let name = format!("texts/{}.md", source.display());
        files.push(write(&out, &name, &literals(&text).join("\n\n"))?);
    }
    let finished = vale.run(&files)?;
    print!("{}{}", finished.stdout, finished.stderr);
    ensure!(
        finished.status.success(),
        "rewrite these lines by their messages"
    );
    check_sentences(&vale, &out)?;
    Console.line("prose", &format!("{} files, no alerts", files.len()));
    Ok(ExitCode::SUCCESS)
}

/// Tracked files that match, relative to the repository's root. Each pattern must match at least one.
fn tracked(patterns: &[&str]) -> Result<Vec<PathBuf>> {
    let root = workspace::root();
    let mut files = Vec::new();
    for pattern in patterns {
        let mut git = Command::new("git");
        git.current_dir(&root)
            .args(["ls-files", "-co", "--exclude-standard", pattern]);
        let found = command::succeed(&mut git, LIMIT)?;
        ensure!(!found.is_empty(), "{pattern} matches no file: correct it");
        files.extend(found.lines().map(PathBuf::from));
    }
    // A deleted file is still listed until the deletion is committed.
    files.retain(|file| root.join(file).is_file());
    Ok(files)
}

fn write(out: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let file = out.join(name);
    workspace::write_atomic(&file, text.as_bytes())?;
    Ok(file)
}

/// The help of a program and of its subcommands, each as a Markdown file.
fn help(program: &Path, out: &Path) -> Result<Vec<PathBuf>> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let mut files = Vec::new();
    let mut pending = vec![vec![]];
    while let Some(words) = pending.pop() {
        let mut command = Command::new(program);
        let text = command::succeed(command.args(&words).arg("--help"), LIMIT)?;
        let (prose, subcommands) = help_prose(&text);
        let file = format!("help/{name} {}.md", words.join(" "));
        files.push(write(out, &file, &prose)?);
        for next in subcommands {
            pending.push([words.as_slice(), &[next]].concat());
        }
    }
    Ok(files)
}

/// The sentences of a help text without flags, defaults and usage, and the names of subcommands.
fn help_prose(text: &str) -> (String, Vec<String>) {
    let (mut prose, mut commands) = (String::new(), Vec::new());
    for line in text.lines() {
        let text = line.trim();
        let is_flag = ["--", "-h", "-V", "[", "<", "WEIR_"]
            .iter()
            .any(|mark| text.starts_with(mark));
        match text.split_once("  ") {
            // A two-column entry is a paragraph; other text may continue on the next line.
            Some((name, words)) => {
                // Variables are listed in the same way, in upper case.
                let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '-';
                let is_command = name.starts_with(char::is_alphabetic)
                    && name.chars().all(is_name)
                    && name != "help";
                commands.extend(is_command.then(|| name.to_owned()));
                prose += &format!("\n{}\n\n", words.trim());
            }
            None if text.starts_with("Usage:") => {}
            None if is_flag => prose += "\n",
            None => prose += &format!("{text}\n"),
        }
    }
    (prose.replace(['<', '>'], ""), commands)
}

/// The texts of at least two words in a table, each as a paragraph.
fn texts_of(table: &str) -> Result<String> {
    let table: BTreeMap<String, String> = serde_json::from_str(table)?;
    let texts = table.into_values().filter(|text| text.contains(' '));
    Ok(texts.collect::<Vec<String>>().join("\n\n"))
}

/// String literals of at least two words in JavaScript or Rust.
fn literals(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with(['/', '*']);
    let code: Vec<&str> = source.lines().filter(is_code).collect();
    let code = code.join("\n").replace("'\"'", "''");
    let mut letters = code.chars().peekable();
    let (mut found, mut text, mut open) = (Vec::new(), String::new(), None);
    while let Some(letter) = letters.next() {
        match open {
            None if matches!(letter, '"' | '`') => open = Some(letter),
            None => {}
            Some(mark) if mark == letter => {
                let literal = std::mem::take(&mut text);
                if literal.trim().contains(' ') {
                    found.push(literal);
                }
                open = None;
            }
            // Skips the indentation of a continued line, or one escaped letter.
            Some(_) if letter == '\\' => skip_escape(&mut letters),
            Some('`') if letter == '$' && letters.peek() == Some(&'{') => {
                // Skips a placeholder, which may contain braces.
                let mut depth = 0;
                letters.by_ref().find(|&letter| {
                    depth += i32::from(letter == '{') - i32::from(letter == '}');
                    depth == 0
                });
                text.push('1');
            }
            Some(_) => text.push(letter),
        }
    }
    found
}

fn skip_escape(letters: &mut Peekable<Chars<'_>>) {
    if letters.next() == Some('\n') {
        while letters.next_if(|letter| letter.is_whitespace()).is_some() {}
    }
}

/// Checks that each listed sentence has an alert.
fn check_sentences(vale: &Vale, out: &Path) -> Result<()> {
    for sentence in std::fs::read_to_string(workspace::root().join(SENTENCES))?.lines() {
        let file = write(out, "sentence.md", sentence)?;
        let is_caught = !vale.run(&[file])?.status.success();
        ensure!(is_caught, "no rule of docs/.vale catches: {sentence}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_two_or_more_words_are_prose() {
        let source = "// \"in a comment\"\nconst A = [\"one two\", \"one\"];\nf(`${g({})} of ${n} kept`, \"id\");";
        assert_eq!(literals(source), ["one two", "1 of 1 kept"]);
        assert_eq!(literals("x(\"a \\\"b\\\" c \\\n    d\")"), ["a b c d"]);
    }

    #[test]
    fn texts_of_a_table_become_paragraphs() {
        let table = r#"{"a.b": "one two", "a.c": "one", "a.d": "three “four”"}"#;
        assert_eq!(texts_of(table).unwrap(), "one two\n\nthree “four”");
        assert!(texts_of("[]").is_err());
    }

    #[test]
    fn help_is_prose_without_flags() {
        let help = "Serves orders.\n\nUsage: x [OPTIONS]\n\nCommands:\n  links  Manages links\n  help   Prints this\n\nOptions:\n      --a <A>\n          Sets `a` of\n          <A>\n\n          [default: 1]\n  -h, --help  Prints help";
        let (prose, commands) = help_prose(help);
        assert_eq!(commands, ["links"]);
        let lines: Vec<&str> = prose.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(
            lines,
            [
                "Serves orders.",
                "Commands:",
                "Manages links",
                "Prints this",
                "Options:",
                "Sets `a` of",
                "Prints help"
            ]
        );
    }
}
