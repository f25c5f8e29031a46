//! What `up` starts with: all filters on one listener, a sale and a link, and where to look.

use anyhow::{Context, Result};
use serde_json::json;
use weir_stack::http::Method;
use weir_stack::sale::sale_json;
use weir_stack::{Builder, Stack};

use super::Arguments;

/// Links' host in `envoy/all.yaml`. Browsers take it for this machine.
const LINK_HOST: &str = "link.localhost";
const CODE: &str = "hello";
const TARGET: &str = "https://www.envoyproxy.io/";
const SALE: &str = "demo";
const UNITS: u64 = 500;
const SHARDS: u32 = 4;
/// Taken already: the data folder is an earlier run's.
const CONFLICT: u16 = 409;

/// All filters, and an origin that has a part for each.
pub(super) fn of(builder: Builder, arguments: &Arguments) -> Builder {
    let domain = json!({
        "id": "s",
        "hosts": [LINK_HOST],
        "scheme": "http",
        "port": arguments.chosen_gateway_port(),
    });
    let builder = builder
        .all_filters()
        .links(json!({ "domains": [domain] }).to_string())
        .fitment();
    match arguments.has_kafka() {
        true => builder,
        false => builder.events(),
    }
}

/// Makes a sale and a link, and says where everything is.
pub(super) async fn begin(stack: &Stack) -> Result<String> {
    make(stack, "/sales", &sale_json(SALE, UNITS, SHARDS)?).await?;
    stack.warm_sale(SALE).await?;
    make(stack, "/links", &json!({ "target": TARGET, "code": CODE })).await?;
    stack.wait_until_known(SALE).await?;
    Ok(text(stack))
}

/// Makes what an earlier run on the same data may have made already.
async fn make(stack: &Stack, path: &str, body: &serde_json::Value) -> Result<()> {
    let text = body.to_string();
    let Err(error) = stack.admin(Method::POST, path, &text, 201).await else {
        return Ok(());
    };
    let again = stack.admin(Method::POST, path, &text, CONFLICT).await;
    again.map(drop).map_err(|_| error).context("to begin with")
}

fn text(stack: &Stack) -> String {
    let gateway = stack.gateway_url();
    let port = gateway.rsplit(':').next().unwrap_or_default();
    let admin = stack.origin_admin_url();
    let (envoy, redis) = (stack.envoy_admin_url(), stack.redis_url());
    let dir = stack.data_dir().display();
    // The token is read from its file: a secret on the screen ends up in someone's log.
    format!(
        "\n\
         a sale        {gateway}/sales/{SALE}\n    \
         curl -i -H 'x-user-id: ada' -X POST {gateway}/sales/{SALE}/orders\n\
         a short link  http://{LINK_HOST}:{port}/{CODE}\n    \
         curl -i -H 'host: {LINK_HOST}:{port}' {gateway}/{CODE}\n\
         waiting room  {gateway}/shop/ (600 a minute may enter; behind it there is nothing)\n    \
         curl -i {gateway}/shop/\n\
         limits        20 a second for each user, 40 at once\n    \
         for i in $(seq 60); do curl -s -o /dev/null -w '%{{http_code}} ' -H 'x-user-id: bo' {gateway}/; done\n\n\
         pages         {admin}/ui\n\
         origin admin  {admin} (the token is in {dir}/secrets.env)\n\
         envoy admin   {envoy}\n\
         redis         {redis}\n\
         data, logs    {dir}\n\n\
         Ctrl-C stops everything."
    )
}
