//! The conditions of a rule.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{MatchConfig, PathConfig, Request};
use weir_base::FieldError;
use weir_base::method::is_method;

/// The validated form of [`MatchConfig`].
#[derive(Clone, Debug)]
pub struct Matching {
    methods: Vec<String>,
    path: Option<Path>,
    /// The name in lower case, and whether the header must be present.
    headers: Vec<(String, bool)>,
}

#[derive(Clone, Debug)]
enum Path {
    Exact(String),
    Prefix(String),
    /// `None` matches any segment.
    Template(Vec<Option<String>>),
}

impl Matching {
    /// Validates `config`, the field at `at`.
    ///
    /// # Errors
    /// With the path of the invalid field.
    pub fn new(config: MatchConfig, at: &str) -> Result<Self, FieldError> {
        for (index, method) in config.methods.iter().enumerate() {
            check_method(method, &format!("{at}.methods[{index}]"))?;
        }
        let path = config
            .path
            .map(|path| Path::new(path, &format!("{at}.path")));
        let mut headers = Vec::new();
        for (index, header) in config.headers.into_iter().enumerate() {
            check_token(&header.name, &format!("{at}.headers[{index}].name"))?;
            headers.push((header.name.to_ascii_lowercase(), header.present));
        }
        Ok(Self {
            methods: config.methods,
            path: path.transpose()?,
            headers,
        })
    }

    /// Whether the request meets all conditions. Cheap ones are checked first.
    pub fn is_met(&self, request: &impl Request) -> bool {
        let is_method = |method: &String| method.as_bytes() == request.method();
        (self.methods.is_empty() || self.methods.iter().any(is_method))
            && self
                .path
                .as_ref()
                .is_none_or(|path| path.is_met(without_query(request.path())))
            && self
                .headers
                .iter()
                .all(|(name, present)| request.header(name).is_some() == *present)
    }
}

impl Path {
    fn new(config: PathConfig, at: &str) -> Result<Self, FieldError> {
        let (PathConfig::Exact(text) | PathConfig::Prefix(text) | PathConfig::Template(text)) =
            &config;
        if !text.starts_with('/') || text.contains(['?', '#']) {
            let problem = "must begin with / and have no query";
            return Err(FieldError {
                path: at.into(),
                problem: problem.into(),
            });
        }
        Ok(match config {
            PathConfig::Exact(text) => Self::Exact(text),
            PathConfig::Prefix(text) => Self::Prefix(text),
            PathConfig::Template(text) => Self::Template(template(&text, at)?),
        })
    }

    fn is_met(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(text) => path == text.as_bytes(),
            Self::Prefix(text) => path.starts_with(text.as_bytes()),
            Self::Template(requested) => {
                let mut segments = segments(path);
                let is_all = requested.iter().all(|requested| {
                    let segment = segments.next();
                    segment.is_some_and(|segment| match requested {
                        Some(text) => segment == text.as_bytes(),
                        None => !segment.is_empty(),
                    })
                });
                is_all && segments.next().is_none()
            }
        }
    }
}

fn template(text: &str, at: &str) -> Result<Vec<Option<String>>, FieldError> {
    let segment = |segment: &str| match segment.strip_prefix('{') {
        Some(rest) => match rest.strip_suffix('}') {
            Some(name) if !name.is_empty() && !name.contains(['{', '}']) => Ok(None),
            _ => Err(()),
        },
        None if segment.contains(['{', '}']) => Err(()),
        None => Ok(Some(segment.into())),
    };
    let segments = text
        .split('/')
        .skip(1)
        .map(segment)
        .collect::<Result<_, ()>>();
    segments.map_err(|()| FieldError {
        path: at.into(),
        problem: "must have braces only around a whole segment, such as /users/{id}".into(),
    })
}

/// The path without the query.
pub(super) fn without_query(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'?').next().unwrap_or_default()
}

/// The path's segments between slashes.
pub(super) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').skip(1)
}

fn check_method(method: &str, at: &str) -> Result<(), FieldError> {
    if is_method(method) {
        return Ok(());
    }
    let problem = format!("must be an HTTP method in capitals, such as POST; is {method:?}");
    Err(FieldError {
        path: at.into(),
        problem,
    })
}

/// Names of headers, cookies and rules are tokens (RFC 9110, section 5.6.2).
pub(super) fn check_token(text: &str, at: &str) -> Result<(), FieldError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_token) {
        return Ok(());
    }
    Err(FieldError {
        path: at.into(),
        problem: "must be a name of letters, digits and -, such as x-api-key".into(),
    })
}
