//! Reports the clicks on many links: all links of some domains, or those with a label.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_link::code::{Code, DomainId, LinkId};
use weir_link::domain::Domains;

use crate::model::labels::LabelFilter;
use crate::model::stats::{Breakdown, PartCount, Point, Span};
use crate::report::{Range, Report, ReportView, Values};
use crate::store::{ClickGroup, GROUP_LINKS_MAX, LinkStore};
use weir_origin_core::sql::{MANY, SqlError};

/// Maximum number of links in a report.
const TOP_LINKS_MAX: usize = 20;

/// The links of some domains, or those of them with a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkGroup {
    /// The domains; `None`: all.
    pub domains: Option<Vec<String>>,
    /// The label.
    pub label: Option<LabelFilter>,
}

/// The clicks on the links of a group.
#[derive(Debug)]
pub struct GroupReport {
    report: Report,
    countries: Vec<PartCount>,
    links: Vec<TopLink>,
    is_partial: bool,
}

/// Click statistics of a group of links.
#[derive(Serialize, ToSchema)]
#[schema(as = LinkGroupStats)]
pub struct GroupReportView<'a> {
    /// All links without a label count a visitor once a day; for links with one, visitors of each link add up.
    #[serde(flatten)]
    report: ReportView<'a>,
    /// Clicks by country (ISO 3166-1), or `unknown`.
    #[schema(value_type = BTreeMap<String, u64>)]
    countries: Values<'a>,
    /// The most clicked links, up to 20.
    links: &'a [TopLink],
    /// Whether the label has more links than the 5,000 newest, which the report covers.
    partial: bool,
}

/// One of the most clicked links.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = LinkGroupStatsLink)]
pub struct TopLink {
    /// Its domain.
    #[schema(value_type = String)]
    domain: DomainId,
    /// Its code.
    #[schema(value_type = String)]
    code: Code,
    /// The short URL.
    pub url: String,
    /// Its title; null: none.
    #[schema(required)]
    pub title: Option<String>,
    /// The target; null: a password protects it, or the link was removed.
    #[schema(required)]
    pub target: Option<String>,
    /// Clicks in this range.
    pub clicks: u64,
}

/// Sums of several reads.
#[derive(Default)]
struct Sums {
    points: BTreeMap<u64, Point>,
    days: BTreeMap<u64, Point>,
    parts: HashMap<(Breakdown, String), PartCount>,
    links: Vec<(LinkId, u64)>,
    is_partial: bool,
}

impl LinkGroup {
    /// Its domains that exist.
    fn domains<'a>(&'a self, domains: &'a Domains) -> Vec<&'a DomainId> {
        let chosen = self.domains.as_ref();
        let is_chosen =
            |id: &DomainId| chosen.is_none_or(|all| all.iter().any(|one| one == id.as_str()));
        let all = domains.iter().map(|domain| &domain.id);
        all.filter(|id| is_chosen(id)).collect()
    }
}

impl GroupReport {
    /// Reads the report of a group.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn read(
        store: &LinkStore,
        domains: &Domains,
        group: &LinkGroup,
        range: Range,
    ) -> Result<Self, SqlError> {
        let chosen = group.domains(domains);
        let mut sums = Sums::default();
        match &group.label {
            None => {
                for domain in chosen {
                    sums.add_domain(store, domain, &range).await?;
                }
            }
            Some(label) => {
                let (key, chosen) = (label.key(), chosen.iter().map(|id| id.as_str()));
                for domains in chosen.collect::<Vec<_>>().chunks(MANY) {
                    let group = ClickGroup { key: &key, domains };
                    sums.add_labelled(store, group, &range).await?;
                }
            }
        }
        let links = top(store, domains, std::mem::take(&mut sums.links)).await?;
        Ok(sums.report(range, links))
    }

    /// The report of one link.
    ///
    /// # Errors
    /// If a SQL call fails.
    pub async fn of_link(
        store: &LinkStore,
        domains: &Domains,
        (link, created_at_ms): (&LinkId, u64),
        range: Range,
    ) -> Result<Self, SqlError> {
        let report = Report::read(store, link, created_at_ms, range).await?;
        let links = top(store, domains, vec![(link.clone(), report.clicks)]).await?;
        Ok(Self {
            countries: countries(&report),
            report,
            links,
            is_partial: false,
        })
    }

    /// The report in the API's format.
    pub fn view(&self) -> GroupReportView<'_> {
        GroupReportView {
            report: self.report.view(),
            countries: Values(&self.countries),
            links: &self.links,
            partial: self.is_partial,
        }
    }

    /// The clicks.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Clicks by country, largest first.
    pub fn countries(&self) -> &[PartCount] {
        &self.countries
    }

    /// The most clicked links.
    pub fn links(&self) -> &[TopLink] {
        &self.links
    }
}

impl Sums {
    async fn add_domain(
        &mut self,
        store: &LinkStore,
        domain: &DomainId,
        range: &Range,
    ) -> Result<(), SqlError> {
        let (clicks, all) = (store.clicks(), LinkId::whole_domain(domain.clone()));
        let (from_ms, until_ms) = (range.from_ms(), range.until_ms());
        let points = clicks.click_points(&all, range.retained(), from_ms, until_ms);
        add_points(&mut self.points, points.await?);
        let (from_ms, until_ms) = range.days();
        let days = clicks.click_points(&all, Span::Day, from_ms, until_ms);
        add_points(&mut self.days, days.await?);
        for part in clicks.click_parts(&all, from_ms, until_ms).await? {
            match part.part {
                Breakdown::Link => {
                    if let Ok(code) = Code::new(&part.value) {
                        let domain = domain.clone();
                        self.links.push((LinkId { domain, code }, part.clicks));
                    }
                }
                _ => self.add_part(part),
            }
        }
        Ok(())
    }

    async fn add_labelled(
        &mut self,
        store: &LinkStore,
        group: ClickGroup<'_>,
        range: &Range,
    ) -> Result<(), SqlError> {
        let clicks = store.clicks();
        let (from_ms, until_ms) = (range.from_ms(), range.until_ms());
        let points = clicks.group_points(group, range.retained(), from_ms, until_ms);
        add_points(&mut self.points, points.await?);
        let (from_ms, until_ms) = range.days();
        let days = clicks.group_points(group, Span::Day, from_ms, until_ms);
        add_points(&mut self.days, days.await?);
        for part in clicks.group_parts(group, from_ms, until_ms).await? {
            self.add_part(part);
        }
        let links = clicks.group_links(group, from_ms, until_ms, TOP_LINKS_MAX);
        self.links.extend(links.await?);
        self.is_partial |= clicks.group_len(group).await? > GROUP_LINKS_MAX;
        Ok(())
    }

    fn add_part(&mut self, added: PartCount) {
        let key = (added.part, added.value.clone());
        let sum = self.parts.entry(key).or_insert_with(|| PartCount {
            clicks: 0,
            over_max: 0,
            ..added.clone()
        });
        sum.clicks += added.clicks;
        sum.over_max += added.over_max;
    }

    fn report(self, range: Range, links: Vec<TopLink>) -> GroupReport {
        let [points, days] =
            [self.points, self.days].map(|sums| sums.into_values().collect::<Vec<_>>());
        let parts = sorted(self.parts.into_values().collect());
        let report = Report::new(range, &points, &days, parts);
        GroupReport {
            countries: countries(&report),
            report,
            links,
            is_partial: self.is_partial,
        }
    }
}

fn add_points(sums: &mut BTreeMap<u64, Point>, points: Vec<Point>) {
    for point in points {
        match sums.get_mut(&point.at_ms) {
            Some(sum) => sum.add(&point),
            None => {
                sums.insert(point.at_ms, point);
            }
        }
    }
}

fn sorted(mut counts: Vec<PartCount>) -> Vec<PartCount> {
    counts.sort_by(|a, b| (Reverse(a.clicks), &a.value).cmp(&(Reverse(b.clicks), &b.value)));
    counts
}

/// Sums the regions of each country.
fn countries(report: &Report) -> Vec<PartCount> {
    let regions = report.parts.get(&Breakdown::Region).into_iter().flatten();
    let mut sums: BTreeMap<&str, PartCount> = BTreeMap::new();
    for region in regions {
        let country = region.value.split('-').next().unwrap_or_default();
        let sum = sums.entry(country).or_insert_with(|| PartCount {
            value: country.to_owned(),
            clicks: 0,
            over_max: 0,
            ..region.clone()
        });
        sum.clicks += region.clicks;
        sum.over_max += region.over_max;
    }
    sorted(sums.into_values().collect())
}

async fn top(
    store: &LinkStore,
    domains: &Domains,
    mut links: Vec<(LinkId, u64)>,
) -> Result<Vec<TopLink>, SqlError> {
    links.sort_by(|(a, clicks), (b, others)| (Reverse(clicks), a).cmp(&(Reverse(others), b)));
    let mut all = Vec::new();
    for (id, clicks) in links.into_iter().take(TOP_LINKS_MAX) {
        let stored = store.link(&id).await?;
        let domain = domains.by_id(id.domain.as_str());
        let (title, target) = stored.map_or((None, None), |stored| {
            let is_open = stored.link.guard.is_none();
            (
                Some(stored.labels.title),
                is_open.then_some(stored.link.target),
            )
        });
        all.push(TopLink {
            url: domain.map_or(String::new(), |domain| domain.url(&id.code)),
            title: title.filter(|title| !title.is_empty()),
            target,
            domain: id.domain,
            code: id.code,
            clicks,
        });
    }
    Ok(all)
}
