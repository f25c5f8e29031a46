//! Where a number stands on an axis, and which numbers are written on it.

/// An axis from the bottom (or left) `from` to `to`, in pixels.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    is_log: bool,
    min: f64,
    max: f64,
    from: f64,
    to: f64,
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    /// From 0 to a round number not below `greatest`.
    pub(super) fn linear(greatest: f64, from: f64, to: f64) -> Self {
        let step = step(greatest);
        let count = (greatest / step).ceil().max(1.0);
        Self {
            is_log: false,
            min: 0.0,
            max: count * step,
            from,
            to,
            ticks: (0..=count as u32).map(|n| f64::from(n) * step).collect(),
        }
    }

    /// From a power of ten not above `least` to one not below `greatest`.
    pub(super) fn logarithmic(least: f64, greatest: f64, from: f64, to: f64) -> Self {
        let low = least.log10().floor() as i32;
        let high = (greatest.log10().ceil() as i32).max(low + 1);
        Self {
            is_log: true,
            min: 10_f64.powi(low),
            max: 10_f64.powi(high),
            from,
            to,
            ticks: (low..=high).map(|n| 10_f64.powi(n)).collect(),
        }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.min) / self.min).log10() / (self.max / self.min).log10()
        } else {
            (value - self.min) / (self.max - self.min)
        };
        self.from + share * (self.to - self.from)
    }
}

/// 1, 2 or 5 times a power of ten, so that there are four to nine steps.
fn step(greatest: f64) -> f64 {
    if greatest <= 0.0 || !greatest.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf((greatest / 4.0).log10().floor());
    let fits = |factor: &&f64| greatest / (**factor * power) >= 4.0;
    let factor = [5.0, 2.0, 1.0].iter().find(fits).copied();
    factor.unwrap_or(1.0) * power
}

/// `45k`, `1.2M`, `0.5`.
pub(super) fn short(value: f64) -> String {
    let with = |value: f64, unit: &str| {
        let digits = usize::from(value.fract().abs() > 1e-9 && value < 100.0);
        format!("{value:.digits$}{unit}")
    };
    match value.abs() {
        big if big >= 1e6 => with(value / 1e6, "M"),
        big if big >= 1e3 => with(value / 1e3, "k"),
        small if small > 0.0 && small < 1.0 => format!("{value}"),
        _ => with(value, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_hold_everything() {
        let scale = Scale::linear(58_000.0, 400.0, 60.0);
        assert_eq!(scale.ticks.last(), Some(&60_000.0));
        assert_eq!((scale.place(0.0), scale.place(60_000.0)), (400.0, 60.0));
        assert!((4..=10).contains(&scale.ticks.len()), "{scale:?}");
        assert_eq!(Scale::linear(0.0, 0.0, 1.0).ticks, [0.0, 1.0]);
        let log = Scale::logarithmic(0.3, 42.0, 0.0, 300.0);
        assert_eq!(log.ticks, [0.1, 1.0, 10.0, 100.0]);
        assert!((log.place(1.0) - 100.0).abs() < 1e-6);
    }

    #[test]
    fn numbers_are_short() {
        let all = [
            (0.0, "0"),
            (45_000.0, "45k"),
            (1_200_000.0, "1.2M"),
            (0.1, "0.1"),
            (7.25, "7.2"),
        ];
        for (value, text) in all {
            assert_eq!(short(value), text);
        }
    }
}
