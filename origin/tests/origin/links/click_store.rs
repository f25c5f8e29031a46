//! The SQL store of clicks on short links.

use weir_link::code::LinkId;
use weir_origin::links::model::labels::Labels;
use weir_origin::links::model::stats::{
    Batch, Breakdown, CELLS_KEPT_MS, CELLS_MAX, Clicks, DAY_MS, DAYS_KEPT_MS, HOUR_MS,
    HOURS_KEPT_MS, Slot, Span, Uniques, UniquesBySlot,
};
use weir_origin::links::store::{LinkStore, NewLink};

use crate::store::join_all;

const DAY: u64 = 20_000 * DAY_MS;

fn link(name: &str) -> LinkId {
    name.parse().unwrap()
}

fn clicks(name: &str, at_ms: u64, count: u32, referrer: &str) -> Clicks {
    let values = ["mobile", "ios", "safari", referrer, "DE-BE", "Netz", "de"];
    Clicks {
        link: link(name),
        at_ms,
        count,
        is_bot: false,
        values: values.map(str::to_owned),
    }
}

fn batch(id: &str, clicks: Vec<Clicks>) -> Batch {
    let id = id.to_owned();
    Batch { id, clicks }
}

fn uniques(name: &str, span: Span, at_ms: u64, visitors: u64, addresses: u64) -> UniquesBySlot {
    let observed = Uniques {
        visitors,
        addresses,
    };
    [(Slot::at(&link(name), span, at_ms), observed)].into()
}

/// Clicks, visitors and addresses of each interval, by its start relative to [`DAY`].
async fn points(store: &LinkStore, name: &str, span: Span) -> Vec<(u64, u64, u64, u64)> {
    let name = link(name);
    let points = store
        .clicks()
        .click_points(&name, span, DAY, DAY + 10 * DAY_MS);
    let points = points.await.unwrap().into_iter();
    let tuple = |p: weir_origin::links::model::stats::Point| {
        let Uniques {
            visitors,
            addresses,
        } = p.uniques;
        (p.at_ms - DAY, p.clicks, visitors, addresses)
    };
    points.map(tuple).collect()
}

async fn part(store: &LinkStore, name: &str, part: Breakdown) -> Vec<(String, u64)> {
    let parts = store
        .clicks()
        .click_parts(&link(name), DAY, DAY + 10 * DAY_MS)
        .await;
    let parts = parts.unwrap().into_iter().filter(|p| p.part == part);
    parts.map(|p| (p.value, p.clicks)).collect()
}

async fn batch_counts_once_in_any_combination(store: &LinkStore) {
    let none = UniquesBySlot::new();
    let one = batch("vm-1", vec![clicks("s/abc", DAY, 3, "a.example")]);
    let two = batch(
        "vm-2",
        vec![
            clicks("s/abc", DAY + HOUR_MS, 2, "b.example"),
            clicks("s/abc", DAY + DAY_MS, 1, "b.example"),
            clicks("s/xyz", DAY + 5, 7, "direct"),
        ],
    );
    let first = store
        .clicks()
        .count_clicks(std::slice::from_ref(&one), &none, DAY);
    assert_eq!(first.await.unwrap(), [true]);
    let both = [one.clone(), two.clone(), two.clone()];
    let again = store
        .clicks()
        .count_clicks(&both, &none, DAY)
        .await
        .unwrap();
    assert_eq!(again, [false, true, false]);
    let again = store
        .clicks()
        .count_clicks(&both, &none, DAY)
        .await
        .unwrap();
    assert_eq!(again, [false, false, false]);

    let hours = points(store, "s/abc", Span::Hour).await;
    assert_eq!(hours, [(0, 3, 0, 0), (HOUR_MS, 2, 0, 0), (DAY_MS, 1, 0, 0)]);
    let days = points(store, "s/abc", Span::Day).await;
    assert_eq!(days, [(0, 5, 0, 0), (DAY_MS, 1, 0, 0)]);
    let referrers = part(store, "s/abc", Breakdown::Referrer).await;
    assert_eq!(
        referrers,
        [("a.example".to_owned(), 3), ("b.example".to_owned(), 3)]
    );
    assert_eq!(
        part(store, "s/xyz", Breakdown::Region).await,
        [("DE-BE".to_owned(), 7)]
    );
    // Codes are case-sensitive.
    assert_eq!(points(store, "s/ABC", Span::Day).await, []);
}

async fn visitor_count_is_the_reported_maximum(store: &LinkStore) {
    for (id, visitors, addresses) in [("1", 5, 2), ("2", 4, 3), ("3", 6, 1)] {
        let observed = uniques("s/abc", Span::Day, DAY, visitors, addresses);
        let batch = batch(id, vec![clicks("s/abc", DAY, 1, "direct")]);
        let counted = store
            .clicks()
            .count_clicks(std::slice::from_ref(&batch), &observed, DAY);
        assert_eq!(counted.await.unwrap(), [true]);
    }
    assert_eq!(points(store, "s/abc", Span::Day).await, [(0, 3, 6, 3)]);
}

/// A flood of referrers comes first; a later frequent referrer still gets a counter.
async fn top_referrers_are_kept(store: &LinkStore) {
    let max = Breakdown::Referrer.values_max();
    let none = UniquesBySlot::new();
    let flood = |first: usize| -> Vec<Clicks> {
        let names = (first..first + max).map(|n| format!("flood-{n}.example"));
        names.map(|name| clicks("s/abc", DAY, 1, &name)).collect()
    };
    for n in 0..4 {
        let mut rows = flood(n * max);
        rows.push(clicks("s/abc", DAY, 200, "late.example"));
        let batch = batch(&n.to_string(), if n < 2 { flood(n * max) } else { rows });
        store
            .clicks()
            .count_clicks(&[batch], &none, DAY)
            .await
            .unwrap();
    }
    let name = link("s/abc");
    let parts = store.clicks().click_parts(&name, DAY, DAY + DAY_MS).await;
    let referrers: Vec<_> = parts
        .unwrap()
        .into_iter()
        .filter(|count| count.part == Breakdown::Referrer)
        .collect();
    let all = 4 * max as u64 + 400;
    // The same for the cells of an hour.
    let cells = store
        .clicks()
        .click_cells(&name, DAY, DAY + HOUR_MS)
        .await
        .unwrap();
    assert_eq!(cells.len(), CELLS_MAX);
    assert_eq!(cells.iter().map(|count| count.clicks).sum::<u64>(), all);
    let heaviest = cells.iter().max_by_key(|count| count.clicks).unwrap();
    assert_eq!(heaviest.cell.referrer, "late.example");
    assert_eq!(referrers.len(), max);
    assert_eq!(referrers.iter().map(|count| count.clicks).sum::<u64>(), all);
    let late = &referrers[0];
    assert_eq!(late.value, "late.example");
    assert!(
        (400..=400 + late.over_max).contains(&late.clicks),
        "{late:?}"
    );
    let bound = all / max as u64;
    assert!(
        referrers.iter().all(|count| count.over_max <= bound),
        "{referrers:?}"
    );
}

/// Bots are counted separately and appear in no breakdown.
async fn bots_are_counted_separately(store: &LinkStore) {
    let bot = Clicks {
        is_bot: true,
        ..clicks("s/abc", DAY, 7, "a.example")
    };
    let batch = batch("1", vec![bot, clicks("s/abc", DAY, 2, "b.example")]);
    let none = UniquesBySlot::new();
    store
        .clicks()
        .count_clicks(&[batch], &none, DAY)
        .await
        .unwrap();
    let name = link("s/abc");
    let days = store
        .clicks()
        .click_points(&name, Span::Day, DAY, DAY + DAY_MS);
    let days = days.await.unwrap();
    assert_eq!((days[0].clicks, days[0].bots), (2, 7));
    let referrers = part(store, "s/abc", Breakdown::Referrer).await;
    assert_eq!(referrers, [("b.example".to_owned(), 2)]);
}

async fn concurrent_transactions_lose_nothing(store: &LinkStore) {
    let none = UniquesBySlot::new();
    let batches: Vec<Batch> = (0..40)
        .map(|n| {
            let referrer = format!("{}.example", n % 4);
            let at_ms = DAY + (n % 3) * HOUR_MS;
            batch(&n.to_string(), vec![clicks("s/abc", at_ms, 1, &referrer)])
        })
        .collect();
    // Each batch comes twice, as from two origins.
    let calls = batches.iter().chain(&batches);
    let calls = calls.map(|batch| {
        store
            .clicks()
            .count_clicks(std::slice::from_ref(batch), &none, DAY)
    });
    let counted = join_all(calls).await.into_iter().map(Result::unwrap);
    assert_eq!(counted.flatten().filter(|new| *new).count(), 40);
    assert_eq!(points(store, "s/abc", Span::Day).await, [(0, 40, 0, 0)]);
    let referrers = part(store, "s/abc", Breakdown::Referrer).await;
    assert_eq!(
        referrers.iter().map(|(_, n)| n).collect::<Vec<_>>(),
        [&10; 4]
    );
}

async fn old_statistics_are_deleted(store: &LinkStore) {
    let none = UniquesBySlot::new();
    let batch = batch(
        "1",
        vec![clicks("s/abc", DAY, 1, "x"), clicks("s/abd", DAY, 1, "x")],
    );
    let batches = [batch];
    store
        .clicks()
        .count_clicks(&batches, &none, DAY)
        .await
        .unwrap();
    assert_eq!(store.clicks().clean_clicks(DAY).await.unwrap(), 0);
    let removed = store
        .clicks()
        .clean_clicks(DAY + CELLS_KEPT_MS)
        .await
        .unwrap();
    assert_eq!(removed, 1);
    let removed = store
        .clicks()
        .clean_clicks(DAY + CELLS_KEPT_MS + 1)
        .await
        .unwrap();
    // Of both links and of their domain.
    assert_eq!(removed, 3);
    assert_eq!(
        store
            .clicks()
            .clean_clicks(DAY + HOURS_KEPT_MS)
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        store
            .clicks()
            .clean_clicks(DAY + HOURS_KEPT_MS + 1)
            .await
            .unwrap(),
        3
    );
    assert_eq!(points(store, "s/abc", Span::Hour).await, []);
    assert_eq!(points(store, "s/abc", Span::Day).await, [(0, 1, 0, 0)]);
    assert_eq!(points(store, "s/abd", Span::Day).await, [(0, 1, 0, 0)]);
    store
        .clicks()
        .clean_clicks(DAY + DAYS_KEPT_MS + 1)
        .await
        .unwrap();
    assert_eq!(points(store, "s/abd", Span::Day).await, []);
    assert_eq!(part(store, "s/abd", Breakdown::Region).await, []);
}

on_every_database!(
    LinkStore:
    batch_counts_once_in_any_combination,
    visitor_count_is_the_reported_maximum,
    top_referrers_are_kept,
    bots_are_counted_separately,
    concurrent_transactions_lose_nothing,
    old_statistics_are_deleted,
);

#[tokio::test]
async fn clicks_are_deleted_with_their_link() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/weir.db", dir.path().display());
    let database = weir_origin::origin::open_database(&url).await.unwrap();
    let links = LinkStore::new(database);
    for (id, name) in [("1", "s/abc"), ("2", "s/abd")] {
        let new = NewLink {
            id: link(name),
            record: r#"0 0 {"t":"https://a.example/"}"#.to_owned(),
            labels: Labels::default(),
            life_ms: 1,
            ends_at_ms: 0,
            created_at_ms: DAY,
        };
        assert!(links.log().insert(&new).await.unwrap());
        let batches = [batch(id, vec![clicks(name, DAY, 1, "x")])];
        let none = UniquesBySlot::new();
        links
            .clicks()
            .count_clicks(&batches, &none, DAY)
            .await
            .unwrap();
    }
    let ended = links.ends().ended(0, DAY + 2, 9).await.unwrap();
    let first = ended.into_iter().filter(|ended| ended.id == link("s/abc"));
    assert_eq!(
        links
            .ends()
            .remove(&first.collect::<Vec<_>>())
            .await
            .unwrap(),
        1
    );
    assert_eq!(points(&links, "s/abc", Span::Hour).await, []);
    assert_eq!(points(&links, "s/abc", Span::Day).await, []);
    assert_eq!(part(&links, "s/abc", Breakdown::Region).await, []);
    assert_eq!(points(&links, "s/abd", Span::Day).await, [(0, 1, 0, 0)]);
    assert_eq!(part(&links, "s/abd", Breakdown::Region).await.len(), 1);
}
