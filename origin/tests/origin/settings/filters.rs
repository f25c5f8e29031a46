//! Documents the filters' configurations from the sources of their types, under the names that serde reads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::path::Path;

use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, Expr, ExprLit, Field, Fields, GenericArgument, Ident, Item, Lit, LitStr, Meta,
    PathArguments, Token, Type, UseTree, Variant,
};
use weir_registry::Filter;

use super::cell;

/// The crates of types that several filters share.
const SHARED: [&str; 3] = ["base", "engine", "limit"];

/// A type that serde reads.
struct Declaration {
    /// Its crate and modules.
    module: Vec<String>,
    name: String,
    text: String,
    rows: Vec<Row>,
}

/// A field or a variant.
struct Row {
    name: String,
    /// The type of the field, or of the variant's content.
    kind: Option<Kind>,
    is_required: bool,
    text: String,
}

/// A type in JSON terms.
enum Kind {
    Word(&'static str),
    List(Box<Kind>),
    Object(Box<Kind>),
    /// A project type, by its path.
    Named(Vec<String>),
}

/// Where a declaration is: its crate and modules, and the names that its file imports.
struct Scope {
    module: Vec<String>,
    imports: BTreeMap<String, Vec<String>>,
}

/// All declarations that configurations may use.
struct Types(Vec<Declaration>);

/// The sections of all filters, and one for the types that several of them use.
pub(super) fn sections(crates: &Path, filters: &[Filter]) -> String {
    let folders = filters.iter().map(|filter| filter.crate_folder);
    let folders: BTreeSet<&str> = folders.chain(SHARED).collect();
    let mut types = Types(Vec::new());
    for folder in folders {
        let module = [format!("weir_{folder}")];
        types.read(&crates.join(folder).join("src"), &module);
    }
    let reached: Vec<Vec<usize>> = filters.iter().map(|filter| types.reached(filter)).collect();
    let is_shared = |index: &usize| reached.iter().filter(|all| all.contains(index)).count() > 1;
    let mut sections: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut shared = Vec::new();
    for (filter, all) in filters.iter().zip(&reached) {
        let own = all.iter().copied().filter(|index| !is_shared(index));
        sections.push((filter.name, own.collect()));
        let others = all.iter().copied().filter(is_shared);
        shared.extend(
            others
                .filter(|index| !shared.contains(index))
                .collect::<Vec<_>>(),
        );
    }
    sections.push(("Shared types", shared));
    let anchors = types.anchors(&sections);
    let mut page = String::new();
    for (title, all) in &sections {
        match *title {
            "Shared types" => page += "\n## Shared types\n",
            filter => write!(page, "\n## `{filter}`\n").unwrap(),
        }
        for index in all {
            let declaration = &types.0[*index];
            if declaration.name != "Config" {
                write!(page, "\n### {}\n", declaration.name).unwrap();
            }
            types.write(&mut page, declaration, &anchors);
        }
    }
    page
}

impl Types {
    /// Adds the declarations of all files below a folder.
    fn read(&mut self, folder: &Path, module: &[String]) {
        let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::path);
        for entry in entries {
            let path = entry.path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let mut module = module.to_vec();
            if !matches!(name.as_str(), "lib" | "mod") {
                module.push(name);
            }
            if path.is_dir() {
                self.read(&path, &module);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let file = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
                let scope = Scope::new(module, &file.items);
                let declarations = file.items.iter().filter_map(|item| scope.declaration(item));
                self.0.extend(declarations);
            }
        }
    }

    /// The configuration of a filter, and all types that it refers to.
    fn reached(&self, filter: &Filter) -> Vec<usize> {
        let root = format!("weir_{}", filter.crate_folder);
        let root = [root.as_str(), "engine", "config", "Config"].map(ToOwned::to_owned);
        let mut reached = Vec::new();
        let mut next = VecDeque::from([self.find(&root)]);
        while let Some(index) = next.pop_front() {
            if !reached.contains(&index) {
                reached.push(index);
                let kinds = self.0[index]
                    .rows
                    .iter()
                    .filter_map(|row| row.kind.as_ref());
                next.extend(kinds.filter_map(|kind| self.index(kind)));
            }
        }
        reached
    }

    fn index(&self, kind: &Kind) -> Option<usize> {
        match kind {
            Kind::Word(_) => None,
            Kind::List(inner) | Kind::Object(inner) => self.index(inner),
            Kind::Named(path) => Some(self.find(path)),
        }
    }

    /// The declaration with this path. A re-exported type is found by its crate, its name, and those of its modules that the
    /// path has.
    fn find(&self, path: &[String]) -> usize {
        let (name, module) = path.split_last().unwrap();
        let exact = self
            .0
            .iter()
            .position(|one| one.name == *name && one.module == module);
        let is_like = |one: &Declaration| {
            one.name == *name && module.iter().all(|part| one.module.contains(part))
        };
        let found = || {
            let mut all = (0..self.0.len()).filter(|index| is_like(&self.0[*index]));
            match (all.next(), all.next()) {
                (Some(index), None) => index,
                (first, _) => panic!(
                    "{path:?} is {}",
                    if first.is_some() {
                        "ambiguous"
                    } else {
                        "unknown"
                    }
                ),
            }
        };
        exact.unwrap_or_else(found)
    }

    /// The link targets of the headings, as GitHub and mdBook number equal ones.
    fn anchors(&self, sections: &[(&str, Vec<usize>)]) -> BTreeMap<usize, String> {
        let mut counts = BTreeMap::<String, usize>::new();
        let mut anchors = BTreeMap::new();
        for (title, all) in sections {
            let mut slug = |heading: &str| {
                let slug = heading.to_lowercase().replace(' ', "-");
                let count = counts.entry(slug.clone()).or_default();
                *count += 1;
                match *count {
                    1 => slug,
                    count => format!("{slug}-{}", count - 1),
                }
            };
            slug(title);
            for index in all {
                let name = &self.0[*index].name;
                if name != "Config" {
                    anchors.insert(*index, slug(name));
                }
            }
        }
        anchors
    }

    fn write(&self, page: &mut String, of: &Declaration, anchors: &BTreeMap<usize, String>) {
        write!(page, "\n{}\n\n", of.text).unwrap();
        for row in &of.rows {
            let kind = row.kind.as_ref();
            let kind = kind.map(|kind| self.type_name(kind, anchors));
            let required = row.is_required.then(|| "required".to_owned());
            let notes: Vec<String> = kind.into_iter().chain(required).collect();
            let notes = match notes.is_empty() {
                true => String::new(),
                false => format!(" ({})", notes.join(", ")),
            };
            writeln!(page, "- `{}`{notes}: {}", row.name, cell(&row.text)).unwrap();
        }
    }

    fn type_name(&self, kind: &Kind, anchors: &BTreeMap<usize, String>) -> String {
        match kind {
            Kind::Word(word) => (*word).to_owned(),
            Kind::List(inner) => format!("list of {}", self.type_name(inner, anchors)),
            Kind::Object(inner) => format!("object of {}", self.type_name(inner, anchors)),
            Kind::Named(path) => {
                let index = self.find(path);
                format!("[{}](#{})", self.0[index].name, anchors[&index])
            }
        }
    }
}

impl Scope {
    fn new(module: Vec<String>, items: &[Item]) -> Self {
        let mut scope = Self {
            module,
            imports: BTreeMap::new(),
        };
        for item in items {
            if let Item::Use(item) = item {
                scope.import(&item.tree, Vec::new());
            }
        }
        scope
    }

    fn import(&mut self, tree: &UseTree, mut path: Vec<String>) {
        match tree {
            UseTree::Path(tree) => {
                let name = tree.ident.to_string();
                match (name.as_str(), path.is_empty()) {
                    ("crate", true) => path.extend(self.module.first().cloned()),
                    ("self", true) => path.clone_from(&self.module),
                    ("super", true) => {
                        path.clone_from(&self.module);
                        path.pop();
                    }
                    _ => path.push(name),
                }
                self.import(&tree.tree, path);
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = path.last().cloned() {
                    self.imports.insert(last, path);
                }
            }
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.imports.insert(name.ident.to_string(), path);
            }
            UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                self.imports.insert(name.rename.to_string(), path);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path.clone());
                }
            }
            UseTree::Glob(_) => {}
        }
    }

    /// The item as a declaration, if serde reads it.
    fn declaration(&self, item: &Item) -> Option<Declaration> {
        let (name, attributes, rows) = match item {
            Item::Struct(item) if item.attrs.iter().any(is_read) => {
                let container = Serde::of(&item.attrs);
                let rows = self.fields(&item.fields, &container);
                (&item.ident, &item.attrs, rows)
            }
            Item::Enum(item) if item.attrs.iter().any(is_read) => {
                let container = Serde::of(&item.attrs);
                let rows = item
                    .variants
                    .iter()
                    .map(|variant| self.variant(variant, &container));
                (&item.ident, &item.attrs, rows.collect())
            }
            Item::Macro(item) if item.mac.path.is_ident("words") => {
                let words: WordList = item.mac.parse_body().ok()?;
                return Some(Declaration {
                    module: self.module.clone(),
                    name: words.name,
                    text: words.text,
                    rows: words.rows,
                });
            }
            _ => return None,
        };
        Some(Declaration {
            module: self.module.clone(),
            name: name.to_string(),
            text: documentation(attributes),
            rows,
        })
    }

    fn fields(&self, fields: &Fields, container: &Serde) -> Vec<Row> {
        let named = fields.iter().filter(|field| field.ident.is_some());
        named.map(|field| self.field(field, container)).collect()
    }

    fn field(&self, field: &Field, container: &Serde) -> Row {
        let serde = Serde::of(&field.attrs);
        let name = field
            .ident
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        let has_default = container.has_default || serde.has_default;
        Row {
            name: serde
                .rename
                .unwrap_or_else(|| name.trim_start_matches("r#").to_owned()),
            kind: self.kind(&field.ty),
            is_required: !has_default && last_of(&field.ty).0 != "Option",
            text: documentation(&field.attrs),
        }
    }

    fn variant(&self, variant: &Variant, container: &Serde) -> Row {
        let name = variant.ident.to_string();
        let name = if container.is_snake {
            snake(&name)
        } else {
            name
        };
        Row {
            name: Serde::of(&variant.attrs).rename.unwrap_or(name),
            kind: variant
                .fields
                .iter()
                .next()
                .and_then(|field| self.kind(&field.ty)),
            is_required: false,
            text: documentation(&variant.attrs),
        }
    }

    /// The type in JSON terms; `None` for a type without a JSON form.
    fn kind(&self, of: &Type) -> Option<Kind> {
        let (name, inner) = last_of(of);
        let inner = || {
            inner
                .last()
                .and_then(|inner| self.kind(inner))
                .map(Box::new)
        };
        Some(match name.as_str() {
            "Option" | "Box" | "Arc" => *inner()?,
            "Vec" | "BTreeSet" => Kind::List(inner()?),
            "BTreeMap" => Kind::Object(inner()?),
            "String" | "str" | "KeyName" | "EventType" => Kind::Word("string"),
            "bool" => Kind::Word("boolean"),
            "u8" | "u16" | "u32" | "u64" | "usize" | "i64" | "f64" => Kind::Word("number"),
            "Duration" => Kind::Word("duration"),
            "" => return None,
            _ => Kind::Named(self.path(of)?),
        })
    }

    /// The full path of a type in this file.
    fn path(&self, of: &Type) -> Option<Vec<String>> {
        let Type::Path(of) = of else { return None };
        let mut names = of
            .path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        let first = names.next()?;
        let mut path = match self.imports.get(&first) {
            Some(path) => path.clone(),
            None => self.module.iter().cloned().chain([first]).collect(),
        };
        path.extend(names);
        Some(path)
    }
}

/// The content of `#[serde(…)]`.
#[derive(Default)]
struct Serde {
    rename: Option<String>,
    is_snake: bool,
    has_default: bool,
}

impl Serde {
    fn of(attributes: &[Attribute]) -> Self {
        let mut serde = Self::default();
        for attribute in attributes.iter().filter(|one| one.path().is_ident("serde")) {
            let read = attribute.parse_nested_meta(|meta| {
                let has_value = meta.input.peek(Token![=]);
                let value = has_value
                    .then(|| meta.value()?.parse::<LitStr>())
                    .transpose()?;
                let value = value.map(|value| value.value());
                serde.has_default |= meta.path.is_ident("default") || meta.path.is_ident("flatten");
                if meta.path.is_ident("rename") {
                    serde.rename = value;
                } else if meta.path.is_ident("rename_all") {
                    serde.is_snake = value.as_deref() == Some("snake_case");
                }
                Ok(())
            });
            read.unwrap();
        }
        serde
    }
}

/// A declaration by the macro `words!`: an enumeration with the JSON name of each variant.
struct WordList {
    name: String,
    text: String,
    rows: Vec<Row>,
}

impl Parse for WordList {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let text = documentation(&input.call(Attribute::parse_outer)?);
        input.parse::<Token![pub]>()?;
        input.parse::<Token![enum]>()?;
        let name = input.parse::<Ident>()?.to_string();
        let variants;
        syn::braced!(variants in input);
        let mut rows = Vec::new();
        while !variants.is_empty() {
            let text = documentation(&variants.call(Attribute::parse_outer)?);
            variants.parse::<Ident>()?;
            variants.parse::<Token![=]>()?;
            let name = variants.parse::<LitStr>()?.value();
            variants.parse::<Token![,]>()?;
            rows.push(Row {
                name,
                kind: None,
                is_required: false,
                text,
            });
        }
        Ok(Self { name, text, rows })
    }
}

/// `#[derive(…, Deserialize)]`.
fn is_read(attribute: &Attribute) -> bool {
    let mut is_read = false;
    if attribute.path().is_ident("derive") {
        // A `derive` that is not a list of names derives nothing.
        let _ = attribute.parse_nested_meta(|meta| {
            let last = meta.path.segments.last();
            is_read |= last.is_some_and(|last| last.ident == "Deserialize");
            Ok(())
        });
    }
    is_read
}

/// The documentation in one line, without links to the code.
fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(value) if value.path.is_ident("doc") => match &value.value {
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

/// Replaces `[words](item)`, a link to the code, by `words`.
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

/// The last name of a type's path, and the type's arguments.
fn last_of(kind: &Type) -> (String, Vec<&Type>) {
    let Type::Path(path) = kind else {
        return (String::new(), Vec::new());
    };
    let Some(last) = path.path.segments.last() else {
        return (String::new(), Vec::new());
    };
    let arguments = match &last.arguments {
        PathArguments::AngleBracketed(all) => all.args.iter(),
        _ => return (last.ident.to_string(), Vec::new()),
    };
    let arguments = arguments.filter_map(|argument| match argument {
        GenericArgument::Type(kind) => Some(kind),
        _ => None,
    });
    (last.ident.to_string(), arguments.collect())
}
