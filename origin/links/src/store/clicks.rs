//! Stores clicks on short links.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use sqlx::Error;
use weir_link::code::LinkId;

use super::{LinkStore, reads};
use crate::model::stats::{
    BATCHES_KEPT_MS, Batch, Breakdown, CELLS_KEPT_MS, CELLS_MAX, Cell, CellCount, Clicks, DAY_MS,
    DAYS_KEPT_MS, HOURS_KEPT_MS, PartCount, Point, Slot, Span, Uniques, UniquesBySlot,
};
use crate::model::top_k::{self, Changes, Count};
use weir_origin_core::sql::{Row, SqlError, Statement, Tx, damaged, filled, in_many, retried, sql};

/// Maximum number of links whose clicks a [`ClickGroup`] sums.
pub const GROUP_LINKS_MAX: usize = 5_000;

/// Maximum number of values in the breakdowns of a [`ClickGroup`].
const GROUP_VALUES_MAX: usize = 2_000;

const INSERT_BATCH: &str = "INSERT INTO click_batches (id, at_ms) VALUES (?, ?)";

const ADD_CLICKS: &str = "
    UPDATE link_clicks SET
        clicks = clicks + ?,
        bots = bots + ?,
        visitors = CASE WHEN visitors < ? THEN ? ELSE visitors END,
        addresses = CASE WHEN addresses < ? THEN ? ELSE addresses END
    WHERE domain = ? AND code = ? AND span = ? AND at_ms = ?";

const INSERT_CLICKS: &str = "
    INSERT INTO link_clicks (clicks, bots, visitors, addresses, domain, code, span, at_ms)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

const ADD_TOTAL: &str = "UPDATE link_totals SET clicks = clicks + ? WHERE domain = ? AND code = ?";

const INSERT_TOTAL: &str = "INSERT INTO link_totals (clicks, domain, code) VALUES (?, ?, ?)";

const SELECT_VALUES: &str = "
    SELECT part, value, clicks, over_max FROM link_click_parts WHERE domain = ? AND code = ? AND day_ms = ?";

const ADD_PART: &str = "
    UPDATE link_click_parts SET clicks = clicks + ?
    WHERE domain = ? AND code = ? AND day_ms = ? AND part = ? AND value = ?";

const INSERT_PART: &str = "
    INSERT INTO link_click_parts (clicks, over_max, domain, code, day_ms, part, value)
    VALUES (?, ?, ?, ?, ?, ?, ?)";

const DELETE_PART: &str = "
    DELETE FROM link_click_parts
    WHERE domain = ? AND code = ? AND day_ms = ? AND part = ? AND value = ?";

/// Clicks since the click limit was set.
const CLICKS_USED: &str = "
    SELECT clicks_before_max,
        (SELECT CAST(COALESCE(SUM(c.clicks), 0) AS SIGNED) FROM link_clicks c
         WHERE c.domain = l.domain AND c.code = l.code AND c.span = 'day') AS total
    FROM links l WHERE domain = ? AND code = ?";

const SELECT_POINTS: &str = "
    SELECT at_ms, clicks, bots, visitors, addresses FROM link_clicks
    WHERE domain = ? AND code = ? AND span = ? AND at_ms >= ? AND at_ms < ?
    ORDER BY at_ms";

const SELECT_PARTS: &str = "
    SELECT part, value, CAST(SUM(clicks) AS SIGNED) AS total,
        CAST(SUM(over_max) AS SIGNED) AS over_max
    FROM link_click_parts
    WHERE domain = ? AND code = ? AND day_ms >= ? AND day_ms < ?
    GROUP BY part, value
    ORDER BY total DESC, value";

/// The links of a [`ClickGroup`], as `g`.
fn group(links_max: usize) -> String {
    let links =
        in_many!("SELECT domain, code, created_at_ms FROM link_tags WHERE tag = ? AND domain");
    format!("({links} ORDER BY created_at_ms DESC LIMIT {links_max}) g")
}

/// Clicks before the creation of a link belong to an earlier link with its code.
static GROUP_POINTS: LazyLock<String> = LazyLock::new(|| {
    let group = group(GROUP_LINKS_MAX);
    format!(
        "SELECT c.at_ms, CAST(SUM(c.clicks) AS SIGNED) AS clicks, CAST(SUM(c.bots) AS SIGNED) AS bots,
            CAST(SUM(c.visitors) AS SIGNED) AS visitors, CAST(SUM(c.addresses) AS SIGNED) AS addresses
        FROM {group} JOIN link_clicks c ON c.domain = g.domain AND c.code = g.code
        WHERE c.span = ? AND c.at_ms >= ? AND c.at_ms < ? AND c.at_ms > g.created_at_ms - ?
        GROUP BY c.at_ms ORDER BY c.at_ms"
    )
});

static GROUP_PARTS: LazyLock<String> = LazyLock::new(|| {
    let group = group(GROUP_LINKS_MAX);
    format!(
        "SELECT p.part, p.value, CAST(SUM(p.clicks) AS SIGNED) AS total, CAST(SUM(p.over_max) AS SIGNED) AS over_max
        FROM {group} JOIN link_click_parts p ON p.domain = g.domain AND p.code = g.code
        WHERE p.day_ms >= ? AND p.day_ms < ? AND p.day_ms > g.created_at_ms - ?
        GROUP BY p.part, p.value ORDER BY total DESC, p.value LIMIT ?"
    )
});

static GROUP_LINKS: LazyLock<String> = LazyLock::new(|| {
    let group = group(GROUP_LINKS_MAX);
    format!(
        "SELECT c.domain, c.code, CAST(SUM(c.clicks) AS SIGNED) AS total
        FROM {group} JOIN link_clicks c ON c.domain = g.domain AND c.code = g.code
        WHERE c.span = ? AND c.at_ms >= ? AND c.at_ms < ? AND c.at_ms > g.created_at_ms - ?
        GROUP BY c.domain, c.code ORDER BY total DESC, c.domain, c.code LIMIT ?"
    )
});

static GROUP_LEN: LazyLock<String> = LazyLock::new(|| {
    let group = group(GROUP_LINKS_MAX + 1);
    format!("SELECT COUNT(*) AS n FROM {group}")
});

const SELECT_HOUR_CELLS: &str = "
    SELECT cell, clicks, over_max FROM link_click_cells WHERE domain = ? AND code = ? AND hour_ms = ?";

const ADD_CELL: &str = "
    UPDATE link_click_cells SET clicks = clicks + ?
    WHERE domain = ? AND code = ? AND hour_ms = ? AND cell = ?";

const INSERT_CELL: &str = "
    INSERT INTO link_click_cells (clicks, over_max, domain, code, hour_ms, cell)
    VALUES (?, ?, ?, ?, ?, ?)";

const DELETE_CELL: &str = "
    DELETE FROM link_click_cells WHERE domain = ? AND code = ? AND hour_ms = ? AND cell = ?";

const SELECT_CELLS: &str = "
    SELECT hour_ms, cell, clicks, over_max FROM link_click_cells
    WHERE domain = ? AND code = ? AND hour_ms >= ? AND hour_ms < ?";

const CLEAN_CELLS: &str = "DELETE FROM link_click_cells WHERE hour_ms < ?";

const CLEAN_BATCHES: &str = "DELETE FROM click_batches WHERE at_ms < ?";

const CLEAN_CLICKS: &str = "DELETE FROM link_clicks WHERE span = ? AND at_ms < ?";

const CLEAN_PARTS: &str = "DELETE FROM link_click_parts WHERE day_ms < ?";

/// Sums of the batches by target row. Rows are locked in this order, which makes deadlocks between transactions rare.
#[derive(Default)]
struct Sums<'a> {
    slots: BTreeMap<Slot, ClickCounts>,
    parts: BTreeMap<Slot, BTreeMap<(Breakdown, &'a str), u64>>,
    cells: BTreeMap<Slot, BTreeMap<String, u64>>,
}

/// Clicks of people and of bots.
#[derive(Clone, Copy, Default)]
struct ClickCounts {
    clicks: u64,
    bots: u64,
}

impl ClickCounts {
    fn add(&mut self, clicks: &Clicks) {
        let count = u64::from(clicks.count);
        match clicks.is_bot {
            true => self.bots += count,
            false => self.clicks += count,
        }
    }
}

impl<'a> Sums<'a> {
    fn add(&mut self, batch: &'a Batch) {
        for clicks in &batch.clicks {
            self.add_to(&clicks.link, clicks, None);
            let all = LinkId::whole_domain(clicks.link.domain.clone());
            self.add_to(&all, clicks, Some(clicks.link.code.as_str()));
        }
    }

    /// Adds clicks to the rows of `link`. `code`: their link, if `link` stands for a whole domain.
    fn add_to(&mut self, link: &LinkId, clicks: &'a Clicks, code: Option<&'a str>) {
        let count = u64::from(clicks.count);
        let hour = Slot::at(link, Span::Hour, clicks.at_ms);
        let day = Slot::at(link, Span::Day, clicks.at_ms);
        self.slots.entry(hour.clone()).or_default().add(clicks);
        self.slots.entry(day.clone()).or_default().add(clicks);
        if clicks.is_bot {
            return;
        }
        let values = clicks.values.iter().map(String::as_str);
        let values = Breakdown::ALL.into_iter().zip(values);
        let values = values.chain(code.map(|code| (Breakdown::Link, code)));
        let parts = self.parts.entry(day).or_default();
        for (part, value) in values {
            *parts.entry((part, value)).or_default() += count;
        }
        let cells = self.cells.entry(hour).or_default();
        *cells.entry(clicks.cell().to_text()).or_default() += count;
    }
}

/// Stores clicks on short links.
#[derive(Clone, Copy, Debug)]
pub struct ClickStore<'a>(pub(super) &'a LinkStore);

impl ClickStore<'_> {
    /// Counts the new batches and stores unique visitors, in one transaction. Returns for each batch whether it was
    /// new.
    pub async fn count_clicks(
        self,
        batches: &[Batch],
        uniques: &UniquesBySlot,
        now_ms: u64,
    ) -> Result<Vec<bool>, SqlError> {
        let once = || async {
            let mut tx = self.0.db.begin().await?;
            let mut sums = Sums::default();
            let mut counted = Vec::with_capacity(batches.len());
            for batch in batches {
                let insert = sql(INSERT_BATCH).text(&batch.id).number(now_ms);
                let is_new = tx.insert(insert).await?;
                counted.push(is_new);
                if is_new {
                    sums.add(batch);
                }
            }
            for (slot, clicks) in &sums.slots {
                let observed = uniques.get(slot).copied().unwrap_or_default();
                add_clicks(&mut tx, slot, *clicks, observed).await?;
            }
            for (slot, clicks) in &sums.slots {
                if slot.span == Span::Day && clicks.clicks > 0 && !slot.link.is_whole_domain() {
                    add_total(&mut tx, &slot.link, clicks.clicks).await?;
                }
            }
            // After the day rows, because other transactions that count for the same day wait for them.
            for (day, parts) in &sums.parts {
                add_parts(&mut tx, day, parts).await?;
            }
            for (hour, cells) in &sums.cells {
                add_cells(&mut tx, hour, cells).await?;
            }
            tx.commit().await?;
            Ok(counted)
        };
        Ok(retried(once).await?)
    }

    /// The hours or days of a link with clicks that begin within `from_ms..until_ms`, in order.
    pub async fn click_points(
        self,
        link: &LinkId,
        span: Span,
        from_ms: u64,
        until_ms: u64,
    ) -> Result<Vec<Point>, SqlError> {
        let select = of_link(sql(SELECT_POINTS), link).text(span.as_str());
        let rows = self
            .0
            .db
            .all(select.number(from_ms).number(until_ms))
            .await?;
        Ok(rows.iter().map(point).collect::<Result<_, _>>()?)
    }

    /// The clicks by each dimension of the days that begin within `from_ms..until_ms`, largest first.
    pub async fn click_parts(
        self,
        link: &LinkId,
        from_ms: u64,
        until_ms: u64,
    ) -> Result<Vec<PartCount>, SqlError> {
        let select = of_link(sql(SELECT_PARTS), link);
        let rows = self
            .0
            .db
            .all(select.number(from_ms).number(until_ms))
            .await?;
        rows.iter().map(part_count).collect()
    }

    /// Like [`click_points`](Self::click_points), summed over the links of a group.
    pub async fn group_points(
        self,
        group: ClickGroup<'_>,
        span: Span,
        from_ms: u64,
        until_ms: u64,
    ) -> Result<Vec<Point>, SqlError> {
        let select = group.select(&GROUP_POINTS).text(span.as_str());
        let select = select.number(from_ms).number(until_ms);
        let rows = self.0.db.all(select.number(span.len_ms())).await?;
        Ok(rows.iter().map(point).collect::<Result<_, _>>()?)
    }

    /// Like [`click_parts`](Self::click_parts), summed over the links of a group.
    pub async fn group_parts(
        self,
        group: ClickGroup<'_>,
        from_ms: u64,
        until_ms: u64,
    ) -> Result<Vec<PartCount>, SqlError> {
        let select = group.select(&GROUP_PARTS).number(from_ms);
        let select = select.number(until_ms).number(DAY_MS);
        let rows = self.0.db.all(select.number(GROUP_VALUES_MAX)).await?;
        rows.iter().map(part_count).collect()
    }

    /// The links of a group with the most clicks on days that begin within `from_ms..until_ms`, most clicked first.
    pub async fn group_links(
        self,
        group: ClickGroup<'_>,
        from_ms: u64,
        until_ms: u64,
        limit: usize,
    ) -> Result<Vec<(LinkId, u64)>, SqlError> {
        let select = group.select(&GROUP_LINKS).text(Span::Day.as_str());
        let select = select.number(from_ms).number(until_ms).number(DAY_MS);
        let rows = self.0.db.all(select.number(limit)).await?;
        let read = |row| Ok((reads::id(row)?, row.number("total")?));
        rows.iter().map(read).collect()
    }

    /// Number of links in a group, up to [`GROUP_LINKS_MAX`] and one more.
    pub async fn group_len(self, group: ClickGroup<'_>) -> Result<usize, SqlError> {
        let row = self.0.db.one(group.select(&GROUP_LEN)).await?;
        Ok(row.map_or(Ok(0), |row| row.number("n"))?)
    }

    /// The cells of the hours that begin within `from_ms..until_ms`.
    pub async fn click_cells(
        self,
        link: &LinkId,
        from_ms: u64,
        until_ms: u64,
    ) -> Result<Vec<CellCount>, SqlError> {
        let select = of_link(sql(SELECT_CELLS), link);
        let rows = self
            .0
            .db
            .all(select.number(from_ms).number(until_ms))
            .await?;
        let read = |row: &Row| {
            let text = row.text("cell")?;
            let cell = Cell::read(&text);
            Ok(CellCount {
                hour_ms: row.number("hour_ms")?,
                cell: cell.ok_or_else(|| damaged("cell", text))?,
                clicks: row.number("clicks")?,
                over_max: row.number("over_max")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Number of clicks since the click limit was set, as far as SQL has counted them; 0 for an unknown link.
    pub async fn clicks_used(self, link: &LinkId) -> Result<u64, SqlError> {
        let row = self.0.db.one(of_link(sql(CLICKS_USED), link)).await?;
        let used = row.as_ref().map(|row| {
            let total: u64 = row.number("total")?;
            let before: u64 = row.number("clicks_before_max")?;
            Ok::<u64, Error>(total.saturating_sub(before))
        });
        Ok(used.transpose()?.unwrap_or(0))
    }

    /// Deletes expired rows and returns their number.
    pub async fn clean_clicks(self, now_ms: u64) -> Result<u64, SqlError> {
        let before = |kept_ms: u64| now_ms.saturating_sub(kept_ms);
        let statements = || {
            [
                sql(CLEAN_BATCHES).number(before(BATCHES_KEPT_MS)),
                sql(CLEAN_CLICKS)
                    .text(Span::Hour.as_str())
                    .number(before(HOURS_KEPT_MS)),
                sql(CLEAN_CLICKS)
                    .text(Span::Day.as_str())
                    .number(before(DAYS_KEPT_MS)),
                sql(CLEAN_PARTS).number(before(DAYS_KEPT_MS)),
                sql(CLEAN_CELLS).number(before(CELLS_KEPT_MS)),
            ]
        };
        let mut removed = 0;
        for statement in statements() {
            removed += self.0.db.execute(statement).await?;
        }
        Ok(removed)
    }
}

async fn add_clicks(
    tx: &mut Tx,
    slot: &Slot,
    added: ClickCounts,
    uniques: Uniques,
) -> Result<(), Error> {
    let add = || {
        let update = sql(ADD_CLICKS).number(added.clicks).number(added.bots);
        let update = update.number(uniques.visitors).number(uniques.visitors);
        let update = update.number(uniques.addresses).number(uniques.addresses);
        of_slot(update, slot)
    };
    if tx.execute(add()).await? == 1 {
        return Ok(());
    }
    let insert = sql(INSERT_CLICKS).number(added.clicks).number(added.bots);
    let insert = insert.number(uniques.visitors).number(uniques.addresses);
    if !tx.insert(of_slot(insert, slot)).await? {
        // Another transaction inserted the row meanwhile.
        tx.execute(add()).await?;
    }
    Ok(())
}

/// Adds clicks to a link's total. Only clicked links have one.
async fn add_total(tx: &mut Tx, link: &LinkId, clicks: u64) -> Result<(), Error> {
    let add = || of_link(sql(ADD_TOTAL).number(clicks), link);
    if tx.execute(add()).await? == 1 {
        return Ok(());
    }
    if !tx
        .insert(of_link(sql(INSERT_TOTAL).number(clicks), link))
        .await?
    {
        // Another transaction inserted the row meanwhile.
        tx.execute(add()).await?;
    }
    Ok(())
}

/// Links with a label in some domains: at most the newest [`GROUP_LINKS_MAX`].
#[derive(Clone, Copy, Debug)]
pub struct ClickGroup<'a> {
    /// The label's [key](crate::model::labels::LabelFilter::key).
    pub key: &'a str,
    /// One to [`MANY`](weir_origin_core::sql::MANY) domains.
    pub domains: &'a [&'a str],
}

impl<'a> ClickGroup<'a> {
    fn select(self, statement: &'static LazyLock<String>) -> Statement<'a> {
        let select = sql(statement).text(self.key);
        filled(self.domains).fold(select, Statement::text)
    }
}

fn part_count<E: From<Error>>(row: &Row) -> Result<PartCount, E> {
    Ok(PartCount {
        part: part(row)?,
        value: row.text("value")?,
        clicks: row.number("total")?,
        over_max: row.number("over_max")?,
    })
}

fn of_slot<'a>(statement: Statement<'a>, slot: &'a Slot) -> Statement<'a> {
    of_link(statement, &slot.link)
        .text(slot.span.as_str())
        .number(slot.start_ms)
}

fn of_link<'a>(statement: Statement<'a>, link: &'a LinkId) -> Statement<'a> {
    statement
        .text(link.domain.as_str())
        .text(link.code.as_str())
}

/// Adds clicks to the values of a day. Each dimension keeps its top values.
async fn add_parts(
    tx: &mut Tx,
    day: &Slot,
    parts: &BTreeMap<(Breakdown, &str), u64>,
) -> Result<(), Error> {
    let select = of_link(sql(SELECT_VALUES), &day.link).number(day.start_ms);
    let mut counters: BTreeMap<Breakdown, BTreeMap<String, Count>> = BTreeMap::new();
    for row in tx.all(select).await? {
        let count = Count {
            clicks: row.number("clicks")?,
            over_max: row.number("over_max")?,
        };
        let counters = counters.entry(part(&row)?).or_default();
        counters.insert(row.text("value")?, count);
    }
    let mut observed: BTreeMap<Breakdown, BTreeMap<&str, u64>> = BTreeMap::new();
    for ((part, value), clicks) in parts {
        observed.entry(*part).or_default().insert(value, *clicks);
    }
    for (part, observed) in observed {
        let counters = counters.remove(&part).unwrap_or_default();
        let changes = top_k::add(&counters, &observed, part.values_max());
        change_part(tx, day, part, &changes).await?;
    }
    Ok(())
}

/// Adds clicks to the cells of an hour. Only the top cells are kept.
async fn add_cells(
    tx: &mut Tx,
    hour: &Slot,
    observed: &BTreeMap<String, u64>,
) -> Result<(), Error> {
    let of_hour = |statement| of_link(statement, &hour.link).number(hour.start_ms);
    let mut counters = BTreeMap::new();
    for row in tx.all(of_hour(sql(SELECT_HOUR_CELLS))).await? {
        let count = Count {
            clicks: row.number("clicks")?,
            over_max: row.number("over_max")?,
        };
        counters.insert(row.text("cell")?, count);
    }
    let observed = observed
        .iter()
        .map(|(cell, clicks)| (cell.as_str(), *clicks));
    let changes = top_k::add(&counters, &observed.collect(), CELLS_MAX);
    for cell in &changes.removed {
        tx.execute(of_hour(sql(DELETE_CELL)).text(cell)).await?;
    }
    for (cell, clicks) in &changes.added {
        let add = of_hour(sql(ADD_CELL).number(*clicks));
        tx.execute(add.text(cell)).await?;
    }
    for (cell, count) in &changes.inserted {
        let insert = sql(INSERT_CELL).number(count.clicks).number(count.over_max);
        tx.execute(of_hour(insert).text(cell)).await?;
    }
    Ok(())
}

async fn change_part(
    tx: &mut Tx,
    day: &Slot,
    part: Breakdown,
    changes: &Changes,
) -> Result<(), Error> {
    let of_value = |statement, value| {
        let statement = of_link(statement, &day.link).number(day.start_ms);
        statement.text(part.as_str()).text(value)
    };
    for value in &changes.removed {
        tx.execute(of_value(sql(DELETE_PART), value)).await?;
    }
    for (value, clicks) in &changes.added {
        tx.execute(of_value(sql(ADD_PART).number(*clicks), value))
            .await?;
    }
    for (value, count) in &changes.inserted {
        let insert = sql(INSERT_PART).number(count.clicks).number(count.over_max);
        tx.execute(of_value(insert, value)).await?;
    }
    Ok(())
}

fn part(row: &Row) -> Result<Breakdown, Error> {
    let name = row.text("part")?;
    Breakdown::from_name(&name).ok_or_else(|| damaged("part", format!("unknown {name}")))
}

fn point(row: &Row) -> Result<Point, Error> {
    Ok(Point {
        at_ms: row.number("at_ms")?,
        clicks: row.number("clicks")?,
        bots: row.number("bots")?,
        uniques: Uniques {
            visitors: row.number("visitors")?,
            addresses: row.number("addresses")?,
        },
    })
}
