//! Reads the types of filters' configurations out of their sources: names, types and documentation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::path::Path;

use syn::{
    Attribute, Expr, ExprLit, Field, Fields, GenericArgument, Item, Lit, Meta, PathArguments, Type,
};

use super::cell;

/// What filters share.
const SHARED: [&str; 6] = ["base", "engine", "limit", "link", "event", "room"];

type Types = BTreeMap<String, Item>;

/// A table for the type `Config` of the engine in a crate, and one for each type that it leads to.
pub(super) fn tables(crates: &Path, folder: &Path) -> String {
    let mut types = Types::new();
    for shared in SHARED {
        read(&crates.join(shared).join("src"), &mut types);
    }
    // Last: its own types come before others of the same name.
    read(&crates.join(folder).join("src/engine"), &mut types);
    let (mut page, mut seen) = (String::new(), BTreeSet::new());
    let mut next = VecDeque::from(["Config".to_owned()]);
    while let Some(name) = next.pop_front() {
        if seen.insert(name.clone())
            && let Some(item) = types.get(&name)
        {
            if name != "Config" {
                write!(page, "\n### {name}\n").unwrap();
            }
            page += &table(item, &types, &mut next);
        }
    }
    page
}

/// All types of the files below a folder that are read from JSON.
fn read(folder: &Path, types: &mut Types) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // An engine's types are its own: other engines have some of the same names.
            if !path.ends_with("engine") {
                read(&path, types);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for item in syn::parse_file(&text).unwrap().items {
                let (name, attributes) = match &item {
                    Item::Struct(item) => (item.ident.to_string(), &item.attrs),
                    Item::Enum(item) => (item.ident.to_string(), &item.attrs),
                    _ => continue,
                };
                if attributes.iter().any(is_read) {
                    types.insert(name, item);
                }
            }
        }
    }
}

/// `#[derive(…, Deserialize)]`.
fn is_read(attribute: &Attribute) -> bool {
    let mut is_read = false;
    if attribute.path().is_ident("derive") {
        // What is no list of names derives nothing.
        let _ = attribute.parse_nested_meta(|meta| {
            is_read |= meta.path.is_ident("Deserialize");
            Ok(())
        });
    }
    is_read
}

fn table(item: &Item, types: &Types, next: &mut VecDeque<String>) -> String {
    let mut text = String::new();
    match item {
        Item::Struct(item) => {
            writeln!(text, "\n{}\n", documentation(&item.attrs)).unwrap();
            text += "| field | type | what it sets |\n|---|---|---|\n";
            fields(&mut text, "", &item.fields, types, next);
        }
        Item::Enum(item) => {
            writeln!(
                text,
                "\n{}\n\n| value | what it means |\n|---|---|",
                documentation(&item.attrs)
            )
            .unwrap();
            for variant in &item.variants {
                let name = snake(&variant.ident.to_string());
                writeln!(
                    text,
                    "| `{name}` | {} |",
                    cell(&documentation(&variant.attrs))
                )
                .unwrap();
                for field in &variant.fields {
                    leads_to(&field.ty, types, next);
                }
            }
        }
        _ => {}
    }
    text
}

fn fields(
    text: &mut String,
    prefix: &str,
    all: &Fields,
    types: &Types,
    next: &mut VecDeque<String>,
) {
    for field in all {
        let Some(name) = field.ident.as_ref().map(ToString::to_string) else {
            continue;
        };
        leads_to(&field.ty, types, next);
        let kind = kind(&field.ty);
        let must = if is_needed(field) { ", needed" } else { "" };
        let says = cell(&documentation(&field.attrs));
        writeln!(
            text,
            "| `{prefix}{}` | {}{must} | {says} |",
            name.trim_start_matches("r#"),
            cell(&kind)
        )
        .unwrap();
    }
}

/// Whether it has no default of its own and is no option.
fn is_needed(field: &Field) -> bool {
    let mut has_default = kind(&field.ty).ends_with("or null");
    for attribute in field
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("serde"))
    {
        let _ = attribute.parse_nested_meta(|meta| {
            has_default |= meta.path.is_ident("default") || meta.path.is_ident("flatten");
            // The value, if it has one.
            if meta.input.peek(syn::Token![=]) {
                meta.value()?.parse::<Expr>()?;
            }
            Ok(())
        });
    }
    !has_default
}

/// The documentation in one line, without links to the code.
fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(says) if says.path.is_ident("doc") => match &says.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(text),
                    ..
                }) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        });
    let text = without_targets(&lines.collect::<Vec<_>>().join(" "));
    text.replace("[`", "`").replace("`]", "`").trim().to_owned()
}

/// `[words](item)` leads to an item of the code: without where it leads.
fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.split_once(')').map_or(part, |(_, rest)| rest);
        if let Some(at) = plain.rfind('[') {
            plain.remove(at);
        }
        plain += rest;
    }
    plain
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (index, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// The last name of a type, and what it is of.
fn parts(kind: &Type) -> (String, Vec<&Type>) {
    let Type::Path(path) = kind else {
        return (String::new(), Vec::new());
    };
    let Some(last) = path.path.segments.last() else {
        return (String::new(), Vec::new());
    };
    let of = match &last.arguments {
        PathArguments::AngleBracketed(all) => all.args.iter(),
        _ => return (last.ident.to_string(), Vec::new()),
    };
    let of = of.filter_map(|argument| match argument {
        GenericArgument::Type(kind) => Some(kind),
        _ => None,
    });
    (last.ident.to_string(), of.collect())
}

/// A type in the words of JSON.
fn kind(of: &Type) -> String {
    let (name, inner) = parts(of);
    let first = || inner.first().map(|inner| kind(inner)).unwrap_or_default();
    match name.as_str() {
        "Option" => format!("{} or null", first()),
        "Vec" | "BTreeSet" => format!("list of {}", first()),
        "BTreeMap" => format!(
            "object of {}",
            inner.last().map(|last| kind(last)).unwrap_or_default()
        ),
        "Box" | "Arc" => first(),
        "String" | "str" => "text".to_owned(),
        "bool" => "true or false".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "usize" | "i64" | "f64" => "number".to_owned(),
        "" => "list".to_owned(),
        name => name.to_owned(),
    }
}

fn leads_to(kind: &Type, types: &Types, next: &mut VecDeque<String>) {
    let (name, inner) = parts(kind);
    if types.contains_key(&name) {
        next.push_back(name);
    }
    for inner in inner {
        leads_to(inner, types, next);
    }
}
