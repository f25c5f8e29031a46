//! Every relative link in the documents leads somewhere.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

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

fn documents(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder);
    for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if path.is_dir() && !name.is_some_and(|name| name.starts_with('.') || name == "target") {
            documents(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    Ok(())
}

#[test]
fn every_relative_link_leads_somewhere() -> Result<()> {
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
