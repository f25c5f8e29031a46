//! One line a system, against connections.

use super::Svg;
use super::scale::{Scale, short};
use crate::compare::statistics::Spread;
use crate::compare::system::System;

const WIDTH: f64 = 780.0;
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 596.0;
const TOP: f64 = 80.0;
const BOTTOM: f64 = 372.0;
/// Names at the lines' ends do not come nearer to each other.
const LABELS_APART: f64 = 17.0;

/// A plot with connections along its foot.
#[derive(Debug, Clone)]
pub(in crate::compare) struct Lines<'a> {
    pub(in crate::compare) title: &'a str,
    pub(in crate::compare) subtitle: &'a str,
    pub(in crate::compare) is_log: bool,
    pub(in crate::compare) series: Vec<Series>,
}

/// One system's numbers by connections.
#[derive(Debug, Clone)]
pub(in crate::compare) struct Series {
    pub(in crate::compare) system: System,
    pub(in crate::compare) points: Vec<(usize, Spread)>,
}

impl Lines<'_> {
    /// `None` if there are not at least two numbers of connections to draw a line between.
    pub(in crate::compare) fn svg(&self) -> Option<String> {
        let columns = self.columns();
        if columns.len() < 2 {
            return None;
        }
        let y = self.scale();
        let mut svg = Svg::new(self.title, self.subtitle);
        for tick in &y.ticks {
            let at = y.place(*tick);
            svg.line("grid", (LEFT, at), (RIGHT, at));
            svg.text(LEFT - 10.0, at + 4.0, "tick", "end", &short(*tick));
        }
        svg.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
        for connections in &columns {
            let text = connections.to_string();
            svg.text(
                x(&columns, *connections),
                BOTTOM + 20.0,
                "tick",
                "middle",
                &text,
            );
        }
        svg.text(
            (LEFT + RIGHT) / 2.0,
            BOTTOM + 42.0,
            "sub",
            "middle",
            "connections",
        );
        // Weir last, so that it lies on top.
        for series in self.series.iter().rev() {
            draw(&mut svg, series, &columns, &y);
        }
        self.name_lines(&mut svg, &y);
        Some(svg.finish(WIDTH, HEIGHT))
    }

    fn columns(&self) -> Vec<usize> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut columns: Vec<usize> = points.map(|(connections, _)| *connections).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    fn scale(&self) -> Scale {
        let all = || self.series.iter().flat_map(|series| &series.points);
        let greatest = all().map(|(_, spread)| spread.max).fold(0.0, f64::max);
        if self.is_log {
            let least = all().map(|(_, spread)| spread.min).fold(greatest, f64::min);
            return Scale::logarithmic(least.max(1e-3), greatest.max(1e-2), BOTTOM, TOP);
        }
        Scale::linear(greatest, BOTTOM, TOP)
    }

    /// Each name beside the end of its line, moved down where two would meet.
    fn name_lines(&self, svg: &mut Svg, y: &Scale) {
        let end = |series: &Series| {
            let (_, spread) = series.points.last()?;
            Some((y.place(spread.median), series.system))
        };
        let mut ends: Vec<(f64, System)> = self.series.iter().filter_map(end).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let room = LABELS_APART * (ends.len().saturating_sub(1)) as f64;
        let mut least = TOP;
        for (n, (wanted, system)) in ends.iter().enumerate() {
            let lowest = BOTTOM - room + LABELS_APART * n as f64;
            let at = wanted.max(least).min(lowest.max(least));
            least = at + LABELS_APART;
            let colour = system.colour();
            svg.push(format_args!(
                r#"<circle class="f{colour}" cx="{:.1}" cy="{at:.1}" r="4"/>"#,
                RIGHT + 20.0
            ));
            let weight = if *system == System::Weir {
                "700"
            } else {
                "400"
            };
            svg.push(format_args!(
                r#"<text x="{:.1}" y="{:.1}" font-weight="{weight}">{}</text>"#,
                RIGHT + 30.0,
                at + 4.0,
                super::escaped(system.label())
            ));
        }
    }
}

/// Columns stand at even distances, as connections grow by factors.
fn x(columns: &[usize], connections: usize) -> f64 {
    let at = columns
        .iter()
        .position(|column| *column == connections)
        .unwrap_or(0);
    let steps = columns.len().saturating_sub(1).max(1);
    LEFT + 24.0 + (RIGHT - LEFT - 34.0) * at as f64 / steps as f64
}

fn draw(svg: &mut Svg, series: &Series, columns: &[usize], y: &Scale) {
    let colour = series.system.colour();
    let width = if series.system == System::Weir {
        3.5
    } else {
        2.0
    };
    let place = |(connections, spread): &(usize, Spread)| {
        (x(columns, *connections), y.place(spread.median))
    };
    let path: Vec<String> = series
        .points
        .iter()
        .map(|point| format!("{:.1},{:.1}", place(point).0, place(point).1))
        .collect();
    svg.push(format_args!(
        r#"<polyline class="s{colour}" fill="none" stroke-width="{width}" stroke-linejoin="round" points="{}"/>"#,
        path.join(" ")
    ));
    for point in &series.points {
        let (x, at) = place(point);
        let (low, high) = (y.place(point.1.min), y.place(point.1.max));
        svg.push(format_args!(
            r#"<line class="s{colour}" stroke-width="1.5" stroke-opacity="0.55" x1="{x:.1}" y1="{low:.1}" x2="{x:.1}" y2="{high:.1}"/>"#
        ));
        svg.push(format_args!(
            r#"<circle class="f{colour} halo" stroke-width="1.5" cx="{x:.1}" cy="{at:.1}" r="4"/>"#
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(system: System, rates: &[(usize, f64)]) -> Series {
        let spread = |rate: f64| Spread {
            min: rate * 0.9,
            median: rate,
            max: rate * 1.1,
        };
        Series {
            system,
            points: rates.iter().map(|(n, rate)| (*n, spread(*rate))).collect(),
        }
    }

    fn lines(series: Vec<Series>, is_log: bool) -> Option<String> {
        let lines = Lines {
            title: "a < b",
            subtitle: "req/s",
            is_log,
            series,
        };
        lines.svg()
    }

    #[test]
    fn every_system_has_a_line_and_its_name() {
        let all = vec![
            series(System::Weir, &[(1, 5_000.0), (128, 40_000.0)]),
            series(System::NginxLua, &[(1, 9_000.0), (128, 39_900.0)]),
        ];
        for is_log in [false, true] {
            let svg = lines(all.clone(), is_log).unwrap();
            assert_eq!(svg.matches("<polyline").count(), 2);
            assert!(svg.contains(">Weir<") && svg.contains(">nginx + Lua<"));
            assert!(svg.contains("a &lt; b") && svg.contains("prefers-color-scheme: dark"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn one_column_makes_no_line() {
        assert!(lines(vec![series(System::Weir, &[(128, 1.0)])], false).is_none());
        assert!(lines(vec![], false).is_none());
    }

    #[test]
    fn names_do_not_overlap() {
        let all: Vec<Series> = System::ALL
            .map(|s| series(s, &[(1, 10.0), (2, 10.0)]))
            .into();
        let svg = lines(all, false).unwrap();
        let names = svg
            .lines()
            .filter(|line| line.contains("font-weight=\"4") || line.contains("font-weight=\"7"));
        let at = |line: &str| {
            line.split("y=\"")
                .nth(1)?
                .split('"')
                .next()?
                .parse::<f64>()
                .ok()
        };
        let places: Vec<f64> = names.filter_map(at).collect();
        assert_eq!(places.len(), System::ALL.len());
        assert!(
            places
                .windows(2)
                .all(|pair| pair[1] - pair[0] >= LABELS_APART - 0.11)
        );
    }
}
