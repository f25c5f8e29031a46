//! Small plots, one per quantity, arranged vertically.

use crate::report::Series;
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 700.0;
const ROW: f64 = 84.0;
const HEIGHT: f64 = 46.0;

/// Plots all `series` over the same periods, each of which had one of `faults`.
pub(crate) fn svg(series: &[Series], faults: &[&str]) -> String {
    let height = 20.0 + ROW * series.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\"><style>text{{fill:#333}}path{{fill:none;stroke:#0b6bcb;stroke-width:1.5}}\
         line{{stroke:#bbb}}svg{{background:#fff}}@media(prefers-color-scheme:dark){{text{{fill:#ddd}}\
         path{{stroke:#6cb2ff}}line{{stroke:#555}}svg{{background:#161616}}}}</style>\n"
    );
    for (row, series) in series.iter().enumerate() {
        let top = 20.0 + ROW * row as f64;
        svg += &plot(series, faults, top);
    }
    svg + "</svg>\n"
}

fn plot(series: &Series, faults: &[&str], top: f64) -> String {
    let greatest = series.values.iter().copied().fold(0.0, f64::max);
    let scale = if greatest > 0.0 { greatest } else { 1.0 };
    let bottom = top + HEIGHT;
    let last = series.values.len().saturating_sub(1).max(1) as f64;
    let x = |at: usize| LEFT + (RIGHT - LEFT) * at as f64 / last;
    let y = |value: f64| bottom - HEIGHT * value / scale;
    let mut svg = format!(
        "<text x=\"{LEFT}\" y=\"{:.0}\" font-weight=\"bold\">{} {}</text>\n\
         <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\n\
         <text x=\"{:.0}\" y=\"{bottom:.0}\" text-anchor=\"end\">0</text>\n\
         <line x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{RIGHT}\" y2=\"{bottom}\"/>\n",
        top - 6.0,
        series.name,
        series.unit,
        LEFT - 6.0,
        top + 8.0,
        short(greatest),
        LEFT - 6.0,
    );
    let mut path = String::new();
    for (at, value) in series.values.iter().enumerate() {
        let step = if at == 0 { 'M' } else { 'L' };
        // Writing to a String cannot fail.
        let _ = write!(path, "{step}{:.1} {:.1}", x(at), y(*value));
    }
    let _ = writeln!(svg, "<path d=\"{path}\"/>");
    for (at, fault) in faults.iter().enumerate() {
        let value = series.values.get(at).copied().unwrap_or(0.0);
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\" fill=\"#0b6bcb\"><title>{fault}: {}</title></circle>",
            x(at),
            y(value),
            short(value)
        );
    }
    svg
}

fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}
