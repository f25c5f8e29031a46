//! SVG plots, readable on light and dark pages.

use std::fmt::Write;

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::statistics::Spread;
use super::system::System;

/// Width and height of a line plot. The margin on the right is for names.
const SIZE: (u32, u32) = (780, 430);
const NAMES_WIDTH: i32 = 184;
const TITLE_HEIGHT: i32 = 66;
/// The minimum distance between two names, in pixels.
const NAMES_APART: i32 = 17;

/// The height of a bar. Each system has a row below its scenario's heading.
const BAR: i32 = 16;
const ROW: i32 = 21;
const HEADING: i32 = 30;

/// A colour on a light page and on a dark one.
type Colour = (RGBColor, &'static str);

const GROUND: Colour = (RGBColor(0xff, 0xff, 0xff), "#0d1117");
const TITLE: Colour = (RGBColor(0x21, 0x25, 0x29), "#f1f3f5");
const TEXT: Colour = (RGBColor(0x34, 0x3a, 0x40), "#ced4da");
const MUTED: Colour = (RGBColor(0x6c, 0x75, 0x7d), "#98a1aa");
const GRID: Colour = (RGBColor(0xe9, 0xec, 0xef), "#23292f");
const AXIS: Colour = (RGBColor(0xad, 0xb5, 0xbd), "#4b545c");

/// In the order of [`System::ALL`].
const SYSTEMS: [Colour; System::ALL.len()] = [
    (RGBColor(0xd9, 0x48, 0x0f), "#ff922b"),
    (RGBColor(0x5c, 0x63, 0x6a), "#b6bec6"),
    (RGBColor(0x70, 0x48, 0xe8), "#a58bfb"),
    (RGBColor(0x0c, 0x85, 0x99), "#3bc9db"),
    (RGBColor(0xc2, 0x25, 0x5c), "#f783ac"),
    (RGBColor(0x2b, 0x8a, 0x3e), "#69db7c"),
    (RGBColor(0x18, 0x64, 0xab), "#74c0fc"),
    (RGBColor(0x9c, 0x36, 0xb5), "#e599f7"),
    (RGBColor(0xf0, 0x8c, 0x00), "#ffd43b"),
    (RGBColor(0xa6, 0x1e, 0x4d), "#ffa8a8"),
    (RGBColor(0x5f, 0x3d, 0xc4), "#b197fc"),
    (RGBColor(0x08, 0x7f, 0x5b), "#63e6be"),
    (RGBColor(0x5c, 0x94, 0x0d), "#c0eb75"),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Renders the picture that `draw` paints below its title.
fn picture(
    (width, height): (u32, u32),
    title: &str,
    subtitle: &str,
    draw: impl FnOnce(&Area<'_>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
    root.fill(&GROUND.0)?;
    root.draw_text(title, &font(17, TITLE, HPos::Left), (24, 28))?;
    root.draw_text(subtitle, &font(12, MUTED, HPos::Left), (24, 50))?;
    draw(&root)?;
    root.present()?;
    drop(root);
    let end = svg.rfind("</svg>").unwrap_or(svg.len());
    svg.insert_str(end, &dark_style());
    Ok(svg)
}

/// A style sheet that overrides the colour attributes.
fn dark_style() -> String {
    let mut style = "<style>@media (prefers-color-scheme: dark){".to_owned();
    for (RGBColor(r, g, b), dark) in [GROUND, TITLE, TEXT, MUTED, GRID, AXIS]
        .into_iter()
        .chain(SYSTEMS)
    {
        for property in ["fill", "stroke"] {
            // Writing to a String cannot fail.
            write!(
                style,
                "[{property}=\"#{r:02X}{g:02X}{b:02X}\"]{{{property}:{dark}}}"
            )
            .ok();
        }
    }
    style + "}</style>\n"
}

fn font(size: i32, colour: Colour, anchor: HPos) -> TextStyle<'static> {
    let mut style = ("system-ui, sans-serif", size).into_text_style(&(1_u32, 1_u32));
    style.color = colour.0.to_backend_color();
    style.pos(Pos::new(anchor, VPos::Center))
}

/// A system's name: Weir's is bold.
fn name(system: System, anchor: HPos) -> TextStyle<'static> {
    let mut style = font(12, TEXT, anchor);
    if system == System::Weir {
        style.font = style.font.style(FontStyle::Bold);
    }
    style
}

/// A plot with connections on its horizontal axis.
#[derive(Debug, Clone)]
pub(super) struct Lines<'a> {
    pub(super) title: &'a str,
    pub(super) subtitle: &'a str,
    pub(super) is_log: bool,
    pub(super) series: Vec<Series>,
}

/// One system's numbers by connections.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) system: System,
    pub(super) points: Vec<(usize, Spread)>,
}

impl Lines<'_> {
    /// Renders the plot. `None` if no series has two points to connect.
    pub(super) fn svg(&self) -> Result<Option<String>> {
        let columns = self.columns();
        if columns.len() < 2 {
            return Ok(None);
        }
        let draw = |root: &Area<'_>| self.draw(root, &columns);
        picture(SIZE, self.title, self.subtitle, draw).map(Some)
    }

    fn points(&self) -> impl Iterator<Item = &(usize, Spread)> {
        self.series.iter().flat_map(|series| &series.points)
    }

    fn columns(&self) -> Vec<usize> {
        let mut columns: Vec<usize> = self.points().map(|(connections, _)| *connections).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The position on the vertical axis: the value, or its base-10 logarithm on a logarithmic axis.
    fn height(&self, value: f64) -> f64 {
        match self.is_log {
            true => value.max(1e-3).log10(),
            false => value,
        }
    }

    /// The range of the vertical axis, and the maximum number of labels.
    fn range(&self) -> (std::ops::Range<f64>, usize) {
        let greatest = self.points().map(|(_, all)| all.max).fold(0.0, f64::max);
        if !self.is_log {
            return (0.0..greatest.max(f64::MIN_POSITIVE) * 1.05, 8);
        }
        let mins = self.points().map(|(_, all)| all.min);
        let low = self.height(mins.fold(greatest, f64::min)).floor();
        let high = self.height(greatest).ceil().max(low + 1.0);
        (low..high, (high - low) as usize + 1)
    }

    fn draw(&self, root: &Area<'_>, columns: &[usize]) -> Result<()> {
        let (range, labels) = self.range();
        let last = columns.len() as f64 - 1.0;
        let mut chart = ChartBuilder::on(root)
            .margin_top(TITLE_HEIGHT)
            .margin_right(NAMES_WIDTH)
            .x_label_area_size(50)
            .y_label_area_size(66)
            .build_cartesian_2d(-0.1..last + 0.1, range)?;
        let column = |at: &f64| match at.fract() == 0.0 {
            true => columns
                .get(*at as usize)
                .map_or(String::new(), usize::to_string),
            false => String::new(),
        };
        let value = |at: &f64| short(if self.is_log { 10_f64.powf(*at) } else { *at });
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.0)
            .axis_style(AXIS.0)
            .label_style(font(12, MUTED, HPos::Left))
            .x_desc("connections")
            .x_labels(columns.len() + 1)
            .x_label_formatter(&column)
            .y_labels(labels)
            .y_label_formatter(&value)
            .draw()?;
        let place = |connections: usize| {
            let at = columns.iter().position(|column| *column == connections);
            at.unwrap_or(0) as f64
        };
        let mut ends = Vec::new();
        // Draws Weir last, on top.
        for Series { system, points } in self.series.iter().rev() {
            let colour = SYSTEMS[system.colour()].0;
            let width = if *system == System::Weir { 3 } else { 2 };
            let mut medians = points
                .iter()
                .map(|(connections, all)| (place(*connections), self.height(all.median)));
            let line = LineSeries::new(medians.clone(), colour.filled().stroke_width(width));
            chart.draw_series(line.point_size(4))?;
            chart.draw_series(points.iter().map(|(connections, all)| {
                let [min, median, max] = [all.min, all.median, all.max].map(|v| self.height(v));
                ErrorBar::new_vertical(place(*connections), min, median, max, colour.mix(0.55), 0)
            }))?;
            let end = medians.next_back();
            ends.extend(end.map(|end| (chart.backend_coord(&end).1, *system)));
        }
        draw_names(root, ends)
    }
}

/// Draws each name next to the end of its line, moved down to avoid overlaps.
fn draw_names(root: &Area<'_>, mut ends: Vec<(i32, System)>) -> Result<()> {
    ends.sort_by_key(|(at, _)| *at);
    let bottom = SIZE.1 as i32 - 50;
    let x = SIZE.0 as i32 - NAMES_WIDTH + 20;
    let mut least = TITLE_HEIGHT;
    for (n, (requested, system)) in ends.iter().enumerate() {
        let below = (ends.len() - 1 - n) as i32;
        let at = (*requested).min(bottom - NAMES_APART * below).max(least);
        least = at + NAMES_APART;
        let colour = SYSTEMS[system.colour()].0;
        root.draw(&Circle::new((x, at), 4, colour.filled()))?;
        root.draw_text(system.label(), &name(*system, HPos::Left), (x + 10, at))?;
    }
    Ok(())
}

/// The cost per request in one scenario: server and Redis microseconds by system.
pub(super) type Group = (String, Vec<(System, f64, f64)>);

/// Processor time per request, one bar per system. `None` if there is no data.
pub(super) fn costs(subtitle: &str, groups: &[Group]) -> Result<Option<String>> {
    let all = groups.iter().flat_map(|(_, bars)| bars);
    let sums = all.map(|(_, server, redis)| server + redis);
    let Some(greatest) = sums.reduce(f64::max) else {
        return Ok(None);
    };
    let rows: usize = groups.iter().map(|(_, bars)| bars.len()).sum();
    let height = HEADING * groups.len() as i32 + ROW * rows as i32;
    let size = (SIZE.0, (TITLE_HEIGHT + height + 40) as u32);
    let draw = |root: &Area<'_>| draw_costs(root, groups, greatest, height);
    picture(size, "Processor time per request", subtitle, draw).map(Some)
}

fn draw_costs(root: &Area<'_>, groups: &[Group], greatest: f64, height: i32) -> Result<()> {
    let mut chart = ChartBuilder::on(root)
        .margin_top(TITLE_HEIGHT)
        .margin_right(90)
        .margin_bottom(10)
        .x_label_area_size(30)
        .y_label_area_size(176)
        .build_cartesian_2d(0.0..greatest, 0..height)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.0)
        .axis_style(AXIS.0)
        .label_style(font(12, MUTED, HPos::Center))
        .x_label_formatter(&|tick| format!("{} µs", short(*tick)))
        .draw()?;
    let mut y = height;
    for (title, bars) in groups {
        let heading = font(12, TITLE, HPos::Left);
        let left = chart.backend_coord(&(0.0, y - HEADING / 2)).1;
        root.draw_text(title, &heading, (24, left))?;
        y -= HEADING;
        for (system, server, redis) in bars {
            let colour = SYSTEMS[system.colour()].0;
            let bar = |from: f64, to: f64, opacity: f64| {
                Rectangle::new([(from, y), (to, y - BAR)], colour.mix(opacity).filled())
            };
            let parts = [(0.0, *server, 1.0), (*server, server + redis, 0.45)];
            let parts = parts.into_iter().filter(|(from, to, _)| from < to);
            chart.draw_series(parts.map(|(from, to, opacity)| bar(from, to, opacity)))?;
            let (right, middle) = chart.backend_coord(&(server + redis, y - BAR / 2));
            let left = chart.backend_coord(&(0.0, y)).0;
            let label = name(*system, HPos::Right);
            root.draw_text(system.label(), &label, (left - 10, middle))?;
            let value = match *redis > 0.0 {
                true => format!("{server:.1} + {redis:.1}"),
                false => format!("{server:.1}"),
            };
            let style = font(11, TEXT, HPos::Left);
            root.draw_text(&value, &style, (right + 7, middle))?;
            y -= ROW;
        }
    }
    Ok(())
}

/// `45k`, `1.2M`, `0.5`.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        big if big >= 1e6 => (value / 1e6, "M"),
        big if big >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Rounded to possible tick values, without trailing zeros.
    format!("{}{unit}", (value * 1e3).round() / 1e3)
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
        lines.svg().unwrap()
    }

    /// The texts of a picture with their vertical positions.
    fn texts(svg: &str) -> Vec<(f64, String)> {
        let parts = svg.split("<text ").skip(1).map(|text| {
            let y = text.split("y=\"").nth(1).unwrap().split('"').next();
            let body = text.split('>').nth(1).unwrap().split('<').next().unwrap();
            (y.unwrap().parse().unwrap(), body.trim().to_owned())
        });
        parts.collect()
    }

    fn has(svg: &str, expected: &str) -> bool {
        texts(svg).iter().any(|(_, text)| text == expected)
    }

    #[test]
    fn every_system_has_a_line_and_a_label() {
        let all = vec![
            series(System::Weir, &[(1, 5_000.0), (128, 40_000.0)]),
            series(System::NginxLua, &[(1, 9_000.0), (128, 39_900.0)]),
        ];
        for is_log in [false, true] {
            let svg = lines(all.clone(), is_log).unwrap();
            for colour in ["#D9480F", "#2B8A3E"] {
                let line = |part: &&str| part.contains(colour) && part.contains("points=");
                assert_eq!(svg.split('<').filter(line).count(), 1, "{colour}");
            }
            assert!(has(&svg, "Weir") && has(&svg, "nginx + Lua"));
            assert!(
                has(&svg, "1") && has(&svg, "128") && has(&svg, "10k"),
                "{svg}"
            );
            assert!(has(&svg, "a &lt; b") && svg.contains("prefers-color-scheme: dark"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn single_column_draws_no_line() {
        assert!(lines(vec![series(System::Weir, &[(128, 1.0)])], false).is_none());
        assert!(lines(vec![], false).is_none());
    }

    #[test]
    fn plot_labels_do_not_overlap() {
        let all: Vec<Series> = System::ALL
            .map(|s| series(s, &[(1, 10.0), (2, 10.0)]))
            .into();
        let svg = lines(all, false).unwrap();
        let is_name = |text: &String| System::ALL.iter().any(|s| s.label() == text);
        let mut places = texts(&svg);
        places.retain(|(_, text)| is_name(text));
        assert_eq!(places.len(), System::ALL.len());
        let apart = f64::from(NAMES_APART);
        assert!(places.windows(2).all(|pair| pair[1].0 - pair[0].0 >= apart));
    }

    #[test]
    fn plot_bars_have_a_number_and_a_redis_part() {
        let groups = vec![
            (
                "One".to_owned(),
                vec![(System::Weir, 20.0, 1.5), (System::NginxLua, 18.0, 12.0)],
            ),
            ("Two".to_owned(), vec![(System::Weir, 9.0, 0.0)]),
        ];
        let svg = costs("sub", &groups).unwrap().unwrap();
        let bars = svg
            .split('<')
            .filter(|part| part.starts_with("rect") && part.contains("height=\"16\""));
        assert_eq!(bars.count(), 5);
        assert!(has(&svg, "20.0 + 1.5") && has(&svg, "9.0") && has(&svg, "Two"));
        assert!(costs("", &[]).unwrap().is_none());
    }

    #[test]
    fn plot_numbers_are_short() {
        let all = [
            (0.0, "0"),
            (45_000.0, "45k"),
            (1_200_000.0, "1.2M"),
            (0.1, "0.1"),
            (7.25, "7.25"),
        ];
        for (value, text) in all {
            assert_eq!(short(value), text);
        }
    }
}
