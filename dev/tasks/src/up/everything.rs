//! The initial data of `up`: all filters on one listener, a sale, a link and event types, and the printed addresses.

use anyhow::{Context, Result};
use serde_json::json;
use weir_stack::envoy::EnvoyConfig;
use weir_stack::http::Method;
use weir_stack::sale::sale_json;
use weir_stack::storefront::Storefront;
use weir_stack::{Builder, Stack};

use super::Arguments;

/// The host of links in `envoy/all.yaml`. Browsers resolve it to this machine.
const LINK_HOST: &str = "link.localhost";
const CODE: &str = "hello";
const TARGET: &str = "https://www.envoyproxy.io/";
const SALE: &str = "demo";
const UNITS: u64 = 500;
const SHARDS: u32 = 4;
/// The event types in the examples of `docs/events.md` and of the SDK.
const EVENT_TYPES: [&str; 4] = ["cart", "page", "view", "weir.lost"];

/// Enables all filters, and the origin's part for each. Without Kafka, events are stored in files.
pub fn of(builder: Builder, arguments: &Arguments) -> Builder {
    let domain = json!({
        "id": "s",
        "hosts": [LINK_HOST],
        "scheme": "http",
        "port": arguments.chosen_gateway_port(),
    });
    let builder = builder
        .all_filters()
        .links(json!({ "domains": [domain] }).to_string())
        .fitment()
        .edit_config(EnvoyConfig::event_keys_for_any_page)
        .edit_config(EnvoyConfig::room_before_sales);
    match arguments.has_kafka() {
        true => builder,
        false => builder.events(),
    }
}

/// Creates a sale, a link and event types, and returns the text with all addresses.
///
/// # Errors
/// The origin refuses one of them.
pub async fn begin(stack: &Stack, shop: &Storefront) -> Result<String> {
    make(stack, "/sales", &sale_json(SALE, UNITS, SHARDS)?).await?;
    stack.warm_sale(SALE).await?;
    for name in EVENT_TYPES {
        make_type(stack, name).await?;
    }
    make(stack, "/links", &json!({ "target": TARGET, "code": CODE })).await?;
    stack.wait_until_known(SALE).await?;
    Ok(text(stack, shop))
}

/// Creates an object, unless an earlier run on the same data created it.
async fn make(stack: &Stack, path: &str, body: &serde_json::Value) -> Result<()> {
    let made = stack.ensure(Method::POST, path, body).await;
    made.context("cannot create the initial data")
}

/// Registers an event type that accepts any attributes, unless it exists.
async fn make_type(stack: &Stack, name: &str) -> Result<()> {
    let path = format!("/events/types/{name}");
    if stack.admin(Method::GET, &path, "", 200).await.is_ok() {
        return Ok(());
    }
    let created = stack.ensure(Method::PUT, &path, &json!({})).await;
    created.context("cannot create the initial data")
}

fn text(stack: &Stack, shop: &Storefront) -> String {
    let shop = shop.url();
    let gateway = stack.gateway_url();
    let port = gateway.rsplit(':').next().unwrap_or_default();
    let admin = stack.origin_admin_url();
    let (envoy, redis) = (stack.envoy_admin_url(), stack.redis_url());
    let dir = stack.data_dir().display();
    // Reads the token from its file, because a secret on the screen may end up in a log.
    format!(
        "\n\
         a shop        {shop} (its drop starts in half a minute)\n\
         a sale        {gateway}/sales/{SALE}\n    \
         curl -i -H 'x-user-id: ada' -X POST {gateway}/sales/{SALE}/orders\n\
         a short link  http://{LINK_HOST}:{port}/{CODE}\n    \
         curl -i -H 'host: {LINK_HOST}:{port}' {gateway}/{CODE}\n\
         waiting room  {gateway}/shop/ (600 a minute may enter)\n    \
         curl -i -b '' --retry 9 {gateway}/shop/\n\
         an event      types: cart, page, view\n    \
         curl {gateway}/events -H 'x-weir-write-key: wk_shop_web' -H 'x-user-id: ada' -H 'content-type: application/json' \
         -d '{{\"type\":\"view\",\"attributes\":{{\"sku\":\"a1\"}}}}'\n    \
         curl -H 'x-user-id: ada' {gateway}/history\n\
         limits        20 a second for each user, 40 at once\n    \
         for i in $(seq 60); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'x-user-id: bo' {gateway}/sales/{SALE}; done\n\n\
         pages         {admin}/ui (the token is in {dir}/secrets.env)\n\
         origin admin  {admin}/readyz\n\
         envoy admin   {envoy}\n\
         redis         redis-cli -u {redis}\n\
         data, logs    {dir}\n\n\
         Ctrl-C stops everything."
    )
}
