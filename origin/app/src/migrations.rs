//! The schema's history. All domains share one database, so their migrations have one order.

use crate::sql::Migrations;

/// One file for each database.
macro_rules! migration {
    ($database:literal, $version:literal, $name:literal, $file:literal) => {
        (
            $version,
            $name,
            include_str!(concat!("../../migrations/", $database, "/", $file, ".sql")),
        )
    };
}

/// All migrations of one database, in order. A file never changes once it is released.
macro_rules! migrations {
    ($database:literal) => {
        &[
            migration!($database, 1, "sales and orders", "0001_sales_and_orders"),
            migration!(
                $database,
                2,
                "risk checks that fail",
                "0002_risk_checks_that_fail"
            ),
            migration!($database, 3, "links", "0003_links"),
            migration!($database, 4, "link clicks", "0004_link_clicks"),
            migration!($database, 5, "order counts", "0005_order_counts"),
            migration!($database, 15, "idempotency keys", "0015_idempotency_keys"),
            migration!($database, 16, "payments", "0016_payments"),
            migration!($database, 17, "cooldowns", "0017_cooldowns"),
            migration!(
                $database,
                18,
                "visitors of risk checks",
                "0018_visitors_of_risk_checks"
            ),
            migration!($database, 19, "archive", "0019_archive"),
            migration!(
                $database,
                25,
                "link bots and errors",
                "0025_link_bots_and_errors"
            ),
            migration!($database, 26, "link domains", "0026_link_domains"),
            migration!($database, 27, "cancelled holds", "0027_cancelled_holds"),
            migration!($database, 28, "events", "0028_events"),
            migration!($database, 29, "history", "0029_history"),
            migration!($database, 30, "fitment", "0030_fitment"),
            migration!($database, 34, "event archives", "0034_event_archives"),
            migration!($database, 35, "history begins", "0035_history_begins"),
            migration!($database, 36, "fitment marks", "0036_fitment_marks"),
            migration!(
                $database,
                37,
                "link edits by time",
                "0037_link_edits_by_time"
            ),
            migration!($database, 38, "link feed", "0038_link_feed"),
            migration!($database, 50, "rooms", "0050_rooms"),
            migration!($database, 60, "stock changes", "0060_stock_changes"),
            migration!($database, 65, "order changes", "0065_order_changes"),
            migration!(
                $database,
                66,
                "orders for operators",
                "0066_orders_for_operators"
            ),
            migration!($database, 67, "user list", "0067_user_list"),
            migration!($database, 68, "listed sales", "0068_listed_sales"),
            migration!($database, 69, "order payloads", "0069_order_payloads"),
            migration!($database, 70, "draws", "0070_draws"),
            migration!($database, 75, "link totals", "0075_link_totals"),
            migration!($database, 76, "link click cells", "0076_link_click_cells"),
            migration!($database, 85, "access", "0085_access"),
            migration!($database, 90, "challenges", "0090_challenges"),
            migration!($database, 91, "sale groups", "0091_sale_groups"),
            migration!($database, 92, "prices", "0092_prices"),
            migration!($database, 93, "link changes", "0093_link_changes"),
            migration!($database, 94, "clicks of orders", "0094_clicks_of_orders"),
            migration!($database, 103, "tenants", "0103_tenants"),
        ]
    };
}

/// The migrations of both databases.
pub const ALL: Migrations = Migrations {
    sqlite: migrations!("sqlite"),
    mysql: migrations!("mysql"),
};
