//! The results of a soak test.

use crate::faults::Fault;
use crate::load::LoadSample;
use crate::plot;
use crate::sales::Checked;
use crate::sample::Sample;
use crate::soak::in_words;
use crate::trend::Trend;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::path::Path;

const MIB: f64 = 1024.0 * 1024.0;

/// One period.
#[derive(Debug, Clone)]
pub(crate) struct Period {
    pub(crate) fault: Fault,
    pub(crate) checked: Vec<Checked>,
    pub(crate) buying: LoadSample,
    pub(crate) following: LoadSample,
    pub(crate) sample: Sample,
}

/// A quantity over all periods.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) values: Vec<f64>,
    /// Smaller changes are noise; `None` for quantities that always grow, such as a log.
    pub(crate) grain: Option<f64>,
}

/// The results of a soak test.
#[derive(Debug, Clone)]
pub struct Report {
    planned: u32,
    rates: (f64, f64),
    periods: Vec<Period>,
    checked: Vec<Checked>,
}

impl Report {
    pub(crate) fn new(planned: u32, rates: (f64, f64)) -> Self {
        let (buyers, followers) = rates;
        println!("{buyers:.0} buyers and {followers:.0} followers of links a second");
        Self {
            planned,
            rates,
            periods: Vec::new(),
            checked: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, period: Period) {
        let number = self.periods.len() + 1;
        let fault = period.fault.name();
        println!("{number:>4}/{}  {fault}", self.planned);
        println!("           buyers: {}", in_words(&period.buying));
        println!("           links:  {}", in_words(&period.following));
        self.checked(period.checked.clone());
        self.periods.push(period);
    }

    pub(crate) fn checked(&mut self, checked: Vec<Checked>) {
        for Checked { sale, problem } in &checked {
            match problem {
                None => println!("           {sale}: every unit is back"),
                Some(problem) => println!("           {sale}: WRONG: {problem}"),
            }
        }
        self.checked.extend(checked);
    }

    /// The number of checked sales.
    pub fn sales(&self) -> usize {
        self.checked.len()
    }

    /// The problems of these sales.
    pub fn problems(&self) -> Vec<String> {
        let problems = self.checked.iter();
        let problems = problems.filter_map(|checked| {
            let problem = checked.problem.as_ref()?;
            Some(format!("{}: {problem}", checked.sale))
        });
        problems.collect()
    }

    /// The numbers of answers to buyers and to link visitors.
    pub fn answers(&self) -> (u64, u64) {
        let buying = self.periods.iter().map(|period| period.buying.answers);
        let following = self.periods.iter().map(|period| period.following.answers);
        (buying.sum(), following.sum())
    }

    /// Whether all sales balance and nothing grows.
    pub fn is_good(&self) -> bool {
        self.problems().is_empty() && self.trends().iter().all(|(_, _, grows)| !grows)
    }

    /// The result as text.
    pub fn text(&self) -> String {
        let (buying, following) = self.answers();
        let (buyers_rate, links_rate) = self.rates;
        let mut text = format!(
            "{} periods, {buying} answers to buyers ({buyers_rate:.0}/s due), {following} to followers of links \
             ({links_rate:.0}/s due)\n",
            self.periods.len()
        );
        let problems = self.problems();
        let good = self.sales() - problems.len();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{good} of {} sales have every unit", self.sales());
        for problem in problems {
            let _ = writeln!(text, "  WRONG {problem}");
        }
        text += "over the second half, in which no process was killed:\n";
        for (series, trend, grows) in self.trends() {
            let mark = if grows { "GROWS" } else { "ok" };
            let _ = writeln!(
                text,
                "  {mark:<6}{:<24} {:>10.1} {} in the middle, {:+.1}",
                series.name, trend.median, series.unit, trend.growth
            );
        }
        text
    }

    /// Writes `soak.csv` and `soak.svg` into `dir`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let faults: Vec<&str> = self.periods.iter().map(|p| p.fault.name()).collect();
        for (name, text) in [
            ("soak.csv", self.csv()),
            ("soak.svg", plot::svg(&self.series(), &faults)),
        ] {
            let file = dir.join(name);
            std::fs::write(&file, text)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    fn csv(&self) -> String {
        let series = self.series();
        let mut csv = String::from("period,fault");
        for series in &series {
            let _ = write!(csv, ",{} [{}]", series.name, series.unit);
        }
        for (number, period) in self.periods.iter().enumerate() {
            let _ = write!(csv, "\n{},{}", number + 1, period.fault.name());
            for series in &series {
                let _ = write!(csv, ",{:.1}", series.values.get(number).unwrap_or(&0.0));
            }
        }
        csv + "\n"
    }

    /// The trend of each quantity that must not grow, in the second half, and whether it grew.
    fn trends(&self) -> Vec<(Series, Trend, bool)> {
        let half = self.periods.len() / 2;
        let of = |series: Series| {
            let grain = series.grain?;
            let trend = Trend::of(series.values.get(half..)?);
            let grows = trend.grows(grain);
            Some((series, trend, grows))
        };
        self.series().into_iter().filter_map(of).collect()
    }

    fn series(&self) -> Vec<Series> {
        let mut all = vec![
            self.of("Redis' keys", "", Some(500.0), |p| {
                p.sample.redis_keys as f64
            }),
            self.of("Redis' data", "MiB", Some(4.0), |p| {
                p.sample.redis_bytes as f64 / MIB
            }),
            self.of("buyers' worst p99", "ms", None, |p| p.buying.p99_ms),
            self.of("links' worst p99", "ms", None, |p| p.following.p99_ms),
        ];
        let count = self.periods.first().map_or(0, |p| p.sample.processes.len());
        for at in 0..count {
            all.extend(self.of_process(at));
        }
        all
    }

    fn of_process(&self, at: usize) -> Vec<Series> {
        let accepted =
            |period: &Period| period.sample.processes.get(at).cloned().unwrap_or_default();
        let name = self.periods.first().map(accepted).unwrap_or_default().name;
        vec![
            self.of(&format!("{name}: memory"), "MiB", Some(4.0), |p| {
                accepted(p).memory_bytes as f64 / MIB
            }),
            self.of(&format!("{name}: files"), "", Some(20.0), |p| {
                accepted(p).file_descriptors as f64
            }),
            self.of(&format!("{name}: log"), "KiB", None, |p| {
                accepted(p).log_bytes as f64 / 1024.0
            }),
        ]
    }

    fn of(
        &self,
        name: &str,
        unit: &'static str,
        grain: Option<f64>,
        value: impl Fn(&Period) -> f64,
    ) -> Series {
        Series {
            name: name.to_owned(),
            unit,
            values: self.periods.iter().map(value).collect(),
            grain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::ProcessSample;

    fn period(memory_mib: u64, problem: Option<&str>) -> Period {
        let process = ProcessSample {
            name: "gateway".into(),
            memory_bytes: memory_mib * 1024 * 1024,
            ..ProcessSample::default()
        };
        Period {
            fault: Fault::RedisFrozen,
            checked: vec![Checked {
                sale: "s".into(),
                problem: problem.map(str::to_owned),
            }],
            buying: LoadSample::default(),
            following: LoadSample::default(),
            sample: Sample {
                processes: vec![process],
                ..Sample::default()
            },
        }
    }

    fn report(periods: impl IntoIterator<Item = Period>) -> Report {
        let mut report = Report::new(8, (1.0, 1.0));
        periods.into_iter().for_each(|period| report.add(period));
        report
    }

    #[test]
    fn leak_or_missing_unit_fails_the_report() {
        assert!(report((0..8).map(|_| period(50, None))).is_good());
        let leaks = report((0..8).map(|minute| period(50 + 5 * minute, None)));
        assert!(!leaks.is_good());
        assert!(leaks.text().contains("GROWS gateway: memory"));
        let wrong = report((0..8).map(|_| period(50, Some("units are missing"))));
        assert!(!wrong.is_good());
        assert!(wrong.text().contains("0 of 8 sales have every unit"));
    }

    #[test]
    fn growth_in_the_first_half_counts_as_warm_up() {
        let warms = (0..8).map(|minute| period(50 + 5 * minute.min(3), None));
        assert!(report(warms).is_good());
    }

    #[test]
    fn table_and_plot_have_each_period() {
        let dir = std::env::temp_dir().join(format!("weir-soak-{}", std::process::id()));
        report((0..8).map(|_| period(50, None)))
            .write(&dir)
            .unwrap();
        let csv = std::fs::read_to_string(dir.join("soak.csv")).unwrap();
        assert_eq!(csv.lines().count(), 9);
        assert!(csv.contains("gateway: memory [MiB]"));
        let svg = std::fs::read_to_string(dir.join("soak.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("gateway: memory"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
