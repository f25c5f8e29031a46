//! Processor time a request, one bar a system.

use super::Svg;
use super::scale::{Scale, short};
use crate::compare::system::System;

const WIDTH: f64 = 780.0;
const LEFT: f64 = 176.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 92.0;
const BAR: f64 = 16.0;
const ROW: f64 = 21.0;
const HEADING: f64 = 30.0;

/// What a request costs in one scenario: by system the microseconds of the server and of Redis.
pub(in crate::compare) type Group = (String, Vec<(System, f64, f64)>);

/// `None` if there is nothing to show.
pub(in crate::compare) fn costs(subtitle: &str, groups: &[Group]) -> Option<String> {
    let all = groups.iter().flat_map(|(_, bars)| bars);
    let greatest = all
        .map(|(_, server, redis)| server + redis)
        .reduce(f64::max)?;
    let x = Scale::linear(greatest, LEFT, RIGHT);
    let rows: usize = groups.iter().map(|(_, bars)| bars.len()).sum();
    let bottom = TOP + HEADING * groups.len() as f64 + ROW * rows as f64;
    let mut svg = Svg::new("Processor time a request", subtitle);
    for tick in &x.ticks {
        let at = x.place(*tick);
        svg.line("grid", (at, TOP - 14.0), (at, bottom));
        svg.text(
            at,
            TOP - 20.0,
            "tick",
            "middle",
            &format!("{} µs", short(*tick)),
        );
    }
    let mut y = TOP;
    for (title, bars) in groups {
        svg.text(24.0, y + 18.0, "heading", "start", title);
        y += HEADING;
        for bar in bars {
            draw(&mut svg, *bar, &x, y);
            y += ROW;
        }
    }
    Some(svg.finish(WIDTH, bottom + 24.0))
}

fn draw(svg: &mut Svg, (system, server, redis): (System, f64, f64), x: &Scale, y: f64) {
    let colour = system.colour();
    let weight = if system == System::Weir { "700" } else { "400" };
    svg.push(format_args!(
        r#"<text x="{:.1}" y="{:.1}" text-anchor="end" font-weight="{weight}">{}</text>"#,
        LEFT - 10.0,
        y + 12.5,
        super::escaped(system.label())
    ));
    let (middle, end) = (x.place(server), x.place(server + redis));
    let mut rect = |from: f64, to: f64, opacity: f64| {
        svg.push(format_args!(
            r#"<rect class="f{colour}" x="{from:.1}" y="{y:.1}" width="{:.1}" height="{BAR}" rx="2" fill-opacity="{opacity}"/>"#,
            (to - from).max(0.5)
        ));
    };
    rect(LEFT, middle, 1.0);
    if redis > 0.0 {
        rect(middle + 1.0, end, 0.45);
    }
    let value = match redis > 0.0 {
        true => format!("{server:.1} + {redis:.1}"),
        false => format!("{server:.1}"),
    };
    svg.text(end + 7.0, y + 12.5, "value", "start", &value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_a_bar_with_its_number_and_redis_a_part_of_it() {
        let groups = vec![
            (
                "One".to_owned(),
                vec![(System::Weir, 20.0, 1.5), (System::NginxLua, 18.0, 12.0)],
            ),
            ("Two".to_owned(), vec![(System::Weir, 9.0, 0.0)]),
        ];
        let svg = costs("sub", &groups).unwrap();
        assert_eq!(svg.matches("height=\"16\"").count(), 5);
        assert!(svg.contains(">20.0 + 1.5<") && svg.contains(">9.0<") && svg.contains(">Two<"));
        assert!(costs("", &[]).is_none());
    }
}
