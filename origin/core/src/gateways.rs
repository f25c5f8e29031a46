//! What gateways report about themselves; see [`weir_scripts::gateway_report`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use redis::from_redis_value;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_scripts::gateway_report::{BYTES_MAX, REPORTERS_MAX};
use weir_scripts::keys;

use crate::redis::{CallError, Redis};

/// Milliseconds of a minute. Gateways report more often.
const MINUTE_MS: u64 = 60_000;

/// A configuration is replaced if a newer one of the same process is this much younger.
const REPLACED_MS: u64 = 50_000;

/// Maximum differences in an answer.
const DIFFERENCES_MAX: usize = 100;

/// Maximum gateways that a variant names.
const NAMES_MAX: usize = 10;

/// A rate limit, waiting room or route of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = GatewayItem)]
pub struct Item {
    /// `rule`, `room` or `route`; a newer gateway may have others.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its most important settings, for people.
    #[serde(default)]
    pub text: String,
    /// Its most important numbers by name.
    #[serde(default)]
    pub numbers: BTreeMap<String, u64>,
    /// A hash of all its settings.
    pub digest: String,
}

/// The report of one filter, as gateways write it.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// The gateway's name; unique after [`read`].
    pub gateway: String,
    process: String,
    /// What it runs.
    #[serde(flatten)]
    pub filter: Filter,
}

/// A filter of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = GatewayFilter)]
pub struct Filter {
    /// The filter's name.
    #[serde(rename = "filter")]
    pub name: String,
    /// Its version.
    pub version: String,
    /// A hash of its configuration as text.
    pub configuration: String,
    /// Time of the report, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Its rate limits, waiting rooms and routes, at most 64.
    pub items: Vec<Item>,
    /// Number of items that the report left out.
    pub left_out: usize,
}

/// A gateway and its filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Gateway {
    /// The id of the Envoy node or the host name.
    name: String,
    /// Its filters with a connection to Redis.
    filters: Vec<Filter>,
}

/// A difference between gateways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = GatewayDifference)]
pub struct Difference {
    /// The filter.
    filter: String,
    /// `version`, `configuration`, or the kind of an item.
    kind: String,
    /// The item's name; empty for others.
    name: String,
    /// The variants, at least two.
    variants: Vec<Variant>,
}

/// The gateways that agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = GatewayVariant)]
pub struct Variant {
    /// The version, or the item's text; empty: the gateways do not have the item.
    value: String,
    /// Number of gateways.
    count: usize,
    /// The first ten gateways.
    gateways: Vec<String>,
}

/// Reads the current reports, by gateway and filter.
///
/// # Errors
/// When Redis does not answer.
pub async fn read(redis: &Redis, now_ms: u64) -> Result<Vec<Report>, CallError> {
    let minutes = [now_ms, now_ms.saturating_sub(MINUTE_MS)];
    let commands = minutes.map(|at_ms| {
        let mut command = redis::cmd("HGETALL");
        command.arg(keys::gateways(redis.prefix(), at_ms));
        command
    });
    let mut reports = Vec::new();
    for reply in redis.send_all(commands.into()).await? {
        let minute: Vec<(Vec<u8>, Vec<u8>)> = from_redis_value(reply)
            .map_err(|error| CallError::unexpected("HGETALL", error.to_string()))?;
        let all = minute.into_iter().take(REPORTERS_MAX as usize);
        let all = all.filter(|(_, json)| json.len() <= BYTES_MAX);
        // A gateway of another version may write a report that this origin cannot read.
        reports.extend(all.filter_map(|(_, json)| serde_json::from_slice(&json).ok()));
    }
    Ok(current(reports))
}

/// The latest report of each configuration in use, with unique names of gateways.
fn current(mut reports: Vec<Report>) -> Vec<Report> {
    reports.sort_by_key(|report| Reverse(report.filter.at_ms));
    let mut newest = BTreeMap::new();
    let mut existing = BTreeSet::new();
    let mut names = BTreeMap::<_, BTreeSet<String>>::new();
    reports.retain(|report| {
        let filter = &report.filter;
        let name = (report.gateway.clone(), filter.name.clone());
        let process = (name.clone(), report.process.clone());
        let newest_ms = *newest.entry(process.clone()).or_insert(filter.at_ms);
        let is_kept = newest_ms - filter.at_ms < REPLACED_MS
            && existing.insert((process, filter.configuration.clone()));
        if is_kept {
            names
                .entry(name)
                .or_default()
                .insert(report.process.clone());
        }
        is_kept
    });
    for report in &mut reports {
        let name = (report.gateway.clone(), report.filter.name.clone());
        let is_unique = names.get(&name).is_none_or(|processes| processes.len() < 2);
        if report.gateway.is_empty() || !is_unique {
            let process: String = report.process.chars().take(8).collect();
            report.gateway = format!("{} {process}", report.gateway).trim().to_owned();
        }
    }
    reports.sort_by(|a, b| (&a.gateway, &a.filter.name).cmp(&(&b.gateway, &b.filter.name)));
    reports
}

/// The gateways with their filters.
pub fn gateways(reports: Vec<Report>) -> Vec<Gateway> {
    let mut gateways: Vec<Gateway> = Vec::new();
    for report in reports {
        match gateways.last_mut() {
            Some(last) if last.name == report.gateway => last.filters.push(report.filter),
            _ => gateways.push(Gateway {
                name: report.gateway,
                filters: vec![report.filter],
            }),
        }
    }
    gateways
}

/// The items of one kind by name, each from the latest report, with the number of gateways that have it.
pub fn items<'a>(reports: &'a [Report], kind: &str) -> BTreeMap<&'a str, (&'a Item, usize)> {
    let mut items = BTreeMap::<_, (&Item, u64, BTreeSet<&str>)>::new();
    for report in reports {
        for item in report.filter.items.iter().filter(|item| item.kind == kind) {
            let at_ms = report.filter.at_ms;
            let known = items.entry(item.name.as_str());
            let (latest, latest_ms, gateways) = known.or_insert((item, at_ms, BTreeSet::new()));
            gateways.insert(&report.gateway);
            if at_ms > *latest_ms {
                (*latest, *latest_ms) = (item, at_ms);
            }
        }
    }
    let counted = items.into_iter();
    counted
        .map(|(name, (item, _, gateways))| (name, (item, gateways.len())))
        .collect()
}

/// What differs between the gateways of each filter.
pub fn differences(reports: &[Report]) -> Vec<Difference> {
    let mut by_filter = BTreeMap::<&str, BTreeMap<&str, Vec<&Filter>>>::new();
    for report in reports {
        let filter = by_filter.entry(&report.filter.name).or_default();
        let gateway = filter.entry(&report.gateway).or_default();
        gateway.push(&report.filter);
    }
    let mut all: Vec<Difference> = by_filter
        .iter()
        .flat_map(|(filter, gateways)| of_filter(filter, gateways))
        .collect();
    all.truncate(DIFFERENCES_MAX);
    all
}

/// The settings of each gateway that runs one filter.
type ByGateway<'a> = BTreeMap<&'a str, Vec<&'a Filter>>;

fn of_filter(filter: &str, gateways: &ByGateway<'_>) -> Vec<Difference> {
    let version = compare(gateways, |all| joined(all, |one| one.version.clone()));
    let mut found: Vec<_> = version
        .map(|variants| ("version", "", variants))
        .into_iter()
        .collect();
    let names: BTreeSet<_> = gateways
        .values()
        .flatten()
        .flat_map(|one| &one.items)
        .map(|item| (item.kind.as_str(), item.name.as_str()))
        .collect();
    let is_cut = gateways.values().flatten().any(|one| one.left_out > 0);
    for (kind, name) in names {
        let of = |all: &[&Filter], text: fn(&Item) -> String| {
            let items = all.iter().flat_map(|one| &one.items);
            let texts: BTreeSet<_> = items
                .filter(|item| item.kind == kind && item.name == name)
                .map(text)
                .collect();
            texts.into_iter().collect::<Vec<_>>().join(" and ")
        };
        let digests = compare(gateways, |all| of(all, |item| item.digest.clone()));
        let Some(digests) = digests else { continue };
        // Without all items, a missing one is no difference.
        if is_cut && digests.len() == 2 && digests.iter().any(|one| one.value.is_empty()) {
            continue;
        }
        // The texts explain the difference, unless it is in settings that they leave out.
        let texts = compare(gateways, |all| of(all, |item| item.text.clone()));
        let texts = texts.filter(|texts| texts.len() == digests.len());
        found.push((kind, name, texts.unwrap_or(digests)));
    }
    if found.is_empty() {
        let configuration = compare(gateways, |all| joined(all, |one| one.configuration.clone()));
        found.extend(configuration.map(|variants| ("configuration", "", variants)));
    }
    let found = found.into_iter();
    found
        .map(|(kind, name, variants)| Difference {
            filter: filter.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            variants,
        })
        .collect()
}

fn joined(all: &[&Filter], value: impl Fn(&Filter) -> String) -> String {
    let values: BTreeSet<_> = all.iter().map(|one| value(one)).collect();
    values.into_iter().collect::<Vec<_>>().join(" and ")
}

/// The variants of a value; `None` if all gateways agree.
fn compare(gateways: &ByGateway<'_>, value: impl Fn(&[&Filter]) -> String) -> Option<Vec<Variant>> {
    let mut variants = BTreeMap::<String, Vec<&str>>::new();
    for (gateway, filters) in gateways {
        variants.entry(value(filters)).or_default().push(gateway);
    }
    let variants = (variants.len() > 1).then_some(variants)?.into_iter();
    let variant = |(value, names): (String, Vec<&str>)| Variant {
        value,
        count: names.len(),
        gateways: names
            .into_iter()
            .take(NAMES_MAX)
            .map(String::from)
            .collect(),
    };
    Some(variants.map(variant).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(kind: &str, name: &str, text: &str) -> Item {
        Item {
            kind: kind.to_owned(),
            name: name.to_owned(),
            text: text.to_owned(),
            numbers: BTreeMap::new(),
            digest: format!("digest of {text}"),
        }
    }

    fn report(gateway: &str, at_ms: u64, items: Vec<Item>) -> Report {
        Report {
            gateway: gateway.to_owned(),
            process: format!("{gateway}-process"),
            filter: Filter {
                name: "ratelimit".to_owned(),
                version: "1.0.0".to_owned(),
                configuration: "c".to_owned(),
                at_ms,
                items,
                left_out: 0,
            },
        }
    }

    fn shown(reports: Vec<Report>) -> serde_json::Value {
        serde_json::to_value(differences(&current(reports))).unwrap()
    }

    #[test]
    fn equal_gateways_have_no_differences() {
        let rules = || vec![item("rule", "a", "5 per 1 s")];
        assert_eq!(
            shown(vec![report("1", 9, rules()), report("2", 7, rules())]),
            json!([])
        );
    }

    #[test]
    fn differing_missing_and_hidden_settings_are_differences() {
        let hidden = Item {
            digest: "other".to_owned(),
            ..item("rule", "c", "same")
        };
        let first = vec![item("rule", "a", "5 per 1 s"), item("rule", "c", "same")];
        let second = vec![
            item("rule", "a", "6 per 1 s"),
            item("rule", "b", "new"),
            hidden,
        ];
        let variant = |value: &str, gateway: &str| json!({ "value": value, "count": 1, "gateways": [gateway] });
        let of = |name: &str, variants: [serde_json::Value; 2]| json!({ "filter": "ratelimit", "kind": "rule", "name": name, "variants": variants });
        let expected = json!([
            of("a", [variant("5 per 1 s", "1"), variant("6 per 1 s", "2")]),
            of("b", [variant("", "1"), variant("new", "2")]),
            of("c", [variant("digest of same", "1"), variant("other", "2")]),
        ]);
        assert_eq!(
            shown(vec![report("1", 9, first), report("2", 9, second)]),
            expected
        );
    }

    #[test]
    fn different_version_and_configuration_are_differences() {
        let mut newer = report("2", 9, vec![]);
        newer.filter.version = "1.1.0".to_owned();
        let kinds = |reports| {
            let all = differences(&current(reports)).into_iter();
            all.map(|one| one.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(vec![report("1", 9, vec![]), newer]), ["version"]);
        let mut other = report("2", 9, vec![]);
        other.filter.configuration = "d".to_owned();
        assert_eq!(
            kinds(vec![report("1", 9, vec![]), other]),
            ["configuration"]
        );
    }

    #[test]
    fn missing_item_of_a_cut_report_is_no_difference() {
        let mut cut = report("2", 9, vec![]);
        cut.filter.left_out = 1;
        assert_eq!(
            shown(vec![report("1", 9, vec![item("rule", "a", "x")]), cut]),
            json!([])
        );
    }

    #[test]
    fn latest_report_counts_and_replaced_configurations_are_dropped() {
        let mut replaced = report("1", 40_000, vec![]);
        replaced.filter.configuration = "old".to_owned();
        let rules = |text| vec![item("rule", "a", text)];
        let reports = current(vec![
            report("1", 60_000, rules("old")),
            report("1", 100_000, rules("new")),
            replaced,
        ]);
        assert_eq!(reports.len(), 1);
        assert_eq!(items(&reports, "rule")["a"].0.text, "new");
        // Two listeners with the same filter.
        let mut second = report("1", 90_000, vec![]);
        second.filter.configuration = "second".to_owned();
        assert_eq!(current(vec![report("1", 100_000, vec![]), second]).len(), 2);
    }

    #[test]
    fn gateways_with_one_name_or_none_are_named_by_process() {
        let mut twin = report("1", 9, vec![]);
        twin.process = "twin-of-the-first".to_owned();
        let reports = current(vec![report("1", 9, vec![]), twin, report("", 9, vec![])]);
        let names: Vec<_> = gateways(reports).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["-process", "1 1-proces", "1 twin-of-"]);
    }
}
