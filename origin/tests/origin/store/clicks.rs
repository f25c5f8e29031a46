//! Orders attributed to the link of a click.

use weir_origin::sales::model::click::OrderClick;
use weir_origin::sales::model::price::{Currency, Price};
use weir_origin::sales::store::{ClickOrders, OrderRequest};

use super::*;

on_every_database! {
    SaleStore:
    orders_are_summed_by_link_and_time,
}

async fn placed(store: &SaleStore, name: &str, generation: u64, click: Option<(&str, &str)>) {
    let request = OrderRequest {
        click: click.map(|(link, id)| OrderClick {
            link: link.to_owned(),
            id: id.to_owned(),
        }),
        ..OrderRequest::default()
    };
    let ticket = ticket("s", name, generation);
    let placed = store
        .claims()
        .place_asked(&ticket, &request, 100 + generation)
        .await;
    assert!(is_new(placed.unwrap()));
}

async fn orders_are_summed_by_link_and_time(store: &SaleStore) {
    let currency = Currency::try_from("EUR".to_owned()).unwrap();
    let sale = NewSale {
        fields: SaleFields {
            price: Some(Price {
                unit_amount: 250,
                currency,
            }),
            ..new_sale("s", 9, 1).fields
        },
        ..new_sale("s", 9, 1)
    };
    assert!(store.create_sale(&sale, 1).await.unwrap());
    for (name, generation, click) in [
        ("alice", 1, Some(("d/spring", "c-1"))),
        ("bob", 2, Some(("d/spring", "c-1"))),
        ("carol", 3, Some(("d/spring", "c-2"))),
        ("dave", 4, Some(("d/summer", "c-3"))),
        ("erin", 5, None),
    ] {
        placed(store, name, generation, click).await;
    }
    let sums = async |link: &str, from_ms, until_ms| {
        let found = store
            .clicks()
            .orders_of_click_link(link, from_ms, until_ms)
            .await;
        found.unwrap()
    };
    let id = ticket("s", "alice", 1).claim_id().to_string();
    assert!(matches!(
        store
            .payments()
            .pay(&id, &user("alice"), 110)
            .await
            .unwrap(),
        PaymentOutcome::Now(_)
    ));
    let all = ClickOrders {
        clicks: 2,
        orders: 3,
        units: 3,
        paid_orders: 1,
        paid_units: 1,
        revenue: [("EUR".to_owned(), 250)].into(),
    };
    assert_eq!(sums("d/spring", 0, u64::MAX / 2).await, all);
    let two = sums("d/spring", 102, 104).await;
    assert_eq!((two.clicks, two.orders, two.paid_orders), (2, 2, 0));
    assert!(two.revenue.is_empty());
    assert_eq!(sums("d/summer", 104, 105).await.orders, 1);
    assert_eq!(
        sums("d/winter", 0, u64::MAX / 2).await,
        ClickOrders::default()
    );
    // An order's click never changes.
    let order = store.order(&id, &user("alice")).await.unwrap().unwrap();
    assert_eq!(order.click.unwrap().link, "d/spring");
}
