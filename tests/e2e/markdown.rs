//! Checks relative links in the documents, and that the book contains every page of `docs/`.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weir_stack::command;
use weir_stack::report::Console;
use weir_stack::tools::MdBook;

/// The targets of `[text](target)`, `src="target"` and `srcset="target"` in a document.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let markdown = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next());
    let html = ["src=\"", "srcset=\"", "href=\""].into_iter();
    let html = html.flat_map(move |attribute| text.split(attribute).skip(1));
    markdown.chain(html.filter_map(|rest| rest.split('"').next()))
}

fn is_relative(target: &str) -> bool {
    let is_elsewhere = ["http:", "https:", "mailto:", "#"]
        .iter()
        .any(|start| target.starts_with(start));
    !is_elsewhere && !target.is_empty()
}

/// Folders with files of others.
const FOREIGN: [&str; 2] = ["target", "node_modules"];

fn documents(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder);
    for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let is_foreign = |name: &str| name.starts_with('.') || FOREIGN.contains(&name);
        if path.is_dir() && !name.is_some_and(is_foreign) {
            documents(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    Ok(())
}

#[test]
fn every_relative_link_has_an_existing_target() -> Result<()> {
    let root = weir_stack::workspace::root();
    let mut found = Vec::new();
    documents(&root, &mut found)?;
    ensure!(found.len() > 10, "only {} documents", found.len());
    let mut broken = Vec::new();
    let mut links = 0;
    for document in found {
        let text = std::fs::read_to_string(&document)?;
        let folder = document.parent().unwrap_or(&root);
        for target in targets(&text).filter(|target| is_relative(target)) {
            links += 1;
            let file = target.split('#').next().unwrap_or(target);
            if !folder.join(file).exists() {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }
    ensure!(links > 50, "only {links} links");
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

/// The pages that `docs/SUMMARY.md` lists.
fn summary(docs: &Path) -> Result<BTreeSet<PathBuf>> {
    let text = std::fs::read_to_string(docs.join("SUMMARY.md"))?;
    Ok(targets(&text).map(|target| docs.join(target)).collect())
}

#[test]
fn every_page_is_in_the_book() -> Result<()> {
    let docs = weir_stack::workspace::root().join("docs");
    let mut found = Vec::new();
    documents(&docs, &mut found)?;
    let mut pages: BTreeSet<PathBuf> = found.into_iter().collect();
    pages.remove(&docs.join("SUMMARY.md"));
    let in_book = summary(&docs)?;
    let missing: Vec<_> = pages.symmetric_difference(&in_book).collect();
    ensure!(
        missing.is_empty(),
        "docs/SUMMARY.md does not fit: {missing:?}"
    );
    Ok(())
}

/// mdBook builds the book. Without Python to install it, the test prints that it is skipped.
#[test]
fn documentation_book_can_be_built() -> Result<()> {
    let program = match MdBook::find_or_get(&mut Console) {
        Ok(MdBook(program)) => program,
        Err(error) => {
            println!("left out: 1 test of the book ({error:#})");
            return Ok(());
        }
    };
    let (root, out) = (weir_stack::workspace::root(), tempfile::tempdir()?);
    let mut mdbook = Command::new(program);
    mdbook
        .arg("build")
        .arg(&root)
        .arg("--dest-dir")
        .arg(out.path());
    command::succeed(&mut mdbook, Duration::from_secs(60))?;
    let docs = root.join("docs");
    for page in summary(&docs)? {
        let page = page.strip_prefix(&docs)?;
        let name = match page.ends_with("README.md") {
            true => page.with_file_name("index.html"),
            false => page.with_extension("html"),
        };
        ensure!(out.path().join(&name).is_file(), "no {}", name.display());
    }
    Ok(())
}
