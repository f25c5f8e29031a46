//! `envoy/isolated-sale.yaml`: a crowd at a sale whose orders hang does not affect normal orders.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, ensure};
use weir_stack::envoy::EnvoyConfig;
use weir_stack::fault::{Fault, FaultProxy};
use weir_stack::http::{self, Method};
use weir_stack::{Stack, ports};
use weir_tests::{Server, response, rush, stock_balance, until, users};

/// More than the connections of the cluster `sale_orders`, and fewer than its limit of pending requests.
const CROWD: usize = 600;
const SALE_CONNECTIONS: u64 = 256;
const NORMAL_ORDERS: u64 = 200;

/// A shop that accepts every order.
async fn shop() -> Result<Server> {
    let respond = |_: &hyper::Request<()>, _: hyper::body::Bytes| response(201, "text/plain", "");
    Server::start(0, Arc::new(respond)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn normal_orders_pass_while_orders_of_a_sale_hang() -> Result<()> {
    let shop = shop().await?;
    let (shop_port, origin_port, redis_port) = (ports::free()?, ports::free()?, ports::free()?);
    let origin: SocketAddr = ([127, 0, 0, 1], origin_port).into();
    let orders = FaultProxy::start(ports::free()?, origin).await?;
    let (orders_at, shop_at) = (orders.address(), shop.address());
    let stack = Stack::builder()
        .key_prefix("isolated")
        .workers(1)
        .origin_port(origin_port)
        .redis_port(redis_port)
        .edit_config(move |config| {
            EnvoyConfig::isolated_sale(orders_at, shop_port, shop_at)?
                .gateway_port(config.chosen_gateway_port())?
                .admin_port(config.chosen_admin_port())?
                .origin(origin)?
                .redis("127.0.0.1", redis_port)?
                .key_prefix("isolated")
        })
        .start()
        .await?;
    stack.open_sale("drop", CROWD as u64, 4).await?;

    orders.set(Fault::Lose);
    let crowd = async { rush(&stack, "drop", users(0..CROWD), CROWD).await };
    let normal = async {
        let busy = "cluster.sale_orders.upstream_rq_active";
        until("the sale's connections are taken", async || {
            let active = stack.envoy.stat(busy).await;
            active.is_ok_and(|active| active >= SALE_CONNECTIONS)
        })
        .await?;
        let url = format!("http://127.0.0.1:{shop_port}/orders");
        for _ in 0..NORMAL_ORDERS {
            let answer = http::send(Method::POST, &url, &[], "").await?;
            ensure!(answer.status == 201, "{answer:?}");
        }
        // Other routes of the origin use a separate cluster, too.
        let url = format!("{}/public-sales", stack.gateway_url());
        let answer = http::send(Method::GET, &url, &[], "").await?;
        ensure!(answer.status == 200, "{answer:?}");
        let still_busy = stack.envoy.stat(busy).await?;
        ensure!(still_busy >= SALE_CONNECTIONS, "the crowd had gone");
        orders.set(Fault::Pass);
        anyhow::Ok(())
    };
    let (crowd, normal) = tokio::join!(crowd, normal);
    normal?;
    let served: usize = crowd?.values().sum();
    assert_eq!(served, CROWD);
    assert_eq!(
        stack.envoy.stat("cluster.shop.upstream_rq_total").await?,
        NORMAL_ORDERS
    );
    until("the sale is exact", async || {
        let stock_balance = stock_balance(&stack, "drop").await;
        stock_balance.is_ok_and(|stock_balance| {
            stock_balance.held == 0 && stock_balance.orders + stock_balance.stock == CROWD as u64
        })
    })
    .await
}
