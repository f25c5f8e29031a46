//! Plots as SVG, readable on light and dark pages.

mod costs;
mod lines;
mod scale;

pub(super) use costs::{Group, costs};
pub(super) use lines::{Lines, Series};

use super::system::System;
use std::fmt::Write;

/// One colour a system, on light and on dark ground, in the order of [`System::ALL`].
const COLOURS: [(&str, &str); System::ALL.len()] = [
    ("#d9480f", "#ff922b"),
    ("#5c636a", "#b6bec6"),
    ("#7048e8", "#a58bfb"),
    ("#0c8599", "#3bc9db"),
    ("#c2255c", "#f783ac"),
    ("#2b8a3e", "#69db7c"),
    ("#1864ab", "#74c0fc"),
    ("#9c36b5", "#e599f7"),
    ("#f08c00", "#ffd43b"),
    ("#a61e4d", "#ffa8a8"),
];

const STYLE: &str = "\
    text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:12px;fill:#343a40}\
    .title{font-size:17px;font-weight:600;fill:#212529}.sub,.tick{fill:#6c757d}.value{font-size:11px;fill:#495057}\
    .ground{fill:#ffffff}.grid{stroke:#e9ecef}.axis{stroke:#adb5bd}.halo{stroke:#ffffff}";
const DARK: &str = "\
    text{fill:#ced4da}.title{fill:#f1f3f5}.sub,.tick{fill:#98a1aa}.value{fill:#ced4da}\
    .ground{fill:#0d1117}.grid{stroke:#23292f}.axis{stroke:#4b545c}.halo{stroke:#0d1117}";

/// A picture under construction.
struct Svg {
    body: String,
}

impl Svg {
    fn new(title: &str, subtitle: &str) -> Self {
        let mut svg = Self {
            body: String::new(),
        };
        svg.text(24.0, 34.0, "title", "start", title);
        svg.text(24.0, 54.0, "sub", "start", subtitle);
        svg
    }

    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        self.body.write_fmt(arguments).ok();
        self.body.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let text = escaped(text);
        self.push(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    fn finish(self, width: f64, height: f64) -> String {
        let colours = |of: fn(&(&'static str, &'static str)) -> &'static str| {
            let class = |(n, pair)| {
                let colour = of(pair);
                format!(".s{n}{{stroke:{colour}}}.f{n}{{fill:{colour}}}")
            };
            COLOURS.iter().enumerate().map(class).collect::<String>()
        };
        let (light, dark) = (colours(|pair| pair.0), colours(|pair| pair.1));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\">\n<style>{STYLE}{light}\
             @media (prefers-color-scheme: dark){{{DARK}{dark}}}</style>\n\
             <rect class=\"ground\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n{}</svg>\n",
            self.body
        )
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
