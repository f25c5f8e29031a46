//! A configuration that is replaced while requests wait.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use weir_stack::Stack;
use weir_stack::envoy::{Envoy, EnvoyConfig, EnvoyOptions};
use weir_stack::http::{self, Method};
use weir_stack::native::Host;
use weir_stack::report::Silent;
use weir_stack::{DataDir, ports, tools};
use weir_tests::{books, until};

const STOCK: u64 = 400;

/// The shipped file's tree, with its listener in a file of its own that Envoy watches.
fn watched(config: &EnvoyConfig, file: &Path) -> Result<(Value, Value)> {
    let mut tree: Value = serde_json::from_str(&config.render()?)?;
    let listeners = tree["static_resources"]["listeners"].take();
    tree["static_resources"]["listeners"] = json!([]);
    tree["node"] = json!({ "id": "weir", "cluster": "weir" });
    tree["dynamic_resources"] = json!({
        "lds_config": { "path_config_source": { "path": file }, "resource_api_version": "V3" }
    });
    Ok((tree, listeners[0].clone()))
}

/// Puts a listener where Envoy watches, with the filter's polls so far apart.
fn publish(listener: &Value, file: &Path, poll_interval_ms: u64) -> Result<()> {
    let mut listener = listener.clone();
    listener["@type"] = "type.googleapis.com/envoy.config.listener.v3.Listener".into();
    let filter = "/filter_chains/0/filters/0/typed_config/http_filters/0/typed_config";
    let settings = listener.pointer_mut(&format!("{filter}/filter_config/value"));
    let settings = settings.context("no settings")?;
    let mut json: Value = serde_json::from_str(settings.as_str().context("no text")?)?;
    json["poll_interval_ms"] = poll_interval_ms.into();
    *settings = json.to_string().into();
    let version = poll_interval_ms.to_string();
    let text = json!({ "version_info": version, "resources": [listener] });
    // Envoy sees files that are moved there.
    let new = file.with_extension("new");
    std::fs::write(&new, text.to_string())?;
    Ok(std::fs::rename(&new, file)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_replaced_in_mid_sale_loses_nothing() -> Result<()> {
    let builder = Stack::builder().host(Host::Native).workers(1);
    let mut stack = builder.start().await?;
    stack.open_sale("reload", STOCK, 4).await?;
    let server = stack.redis.server.as_ref().context("its own Redis")?;
    let data = DataDir::open(None)?;
    let (port, file) = (ports::free()?, data.path.join("listeners.json"));
    let origin = stack.origin_url();
    let config = EnvoyConfig::native(&Host::Native.library()?, server.port())?
        .gateway_port(port)?
        .origin(origin.trim_start_matches("http://").parse()?)?;
    let (tree, listener) = watched(&config, &file)?;
    publish(&listener, &file, 250)?;
    let options = EnvoyOptions {
        config: EnvoyConfig::parse(&tree.to_string())?.admin_port(ports::free()?)?,
        workers: 2,
        log_level: "info".to_owned(),
        variables: stack.gateway_variables().to_vec(),
        clock_ahead_ms: None,
        dir: data.path.clone(),
    };
    let tool = tools::Envoy::find_or_get(&tools::Options::default(), &mut Silent)?;
    let mut envoy = Envoy::start(&tool, &options).await?;
    let url: Arc<str> = format!("http://127.0.0.1:{port}/sales/reload/orders").into();
    until("the gateway is there", async || {
        http::get(&url).await.is_ok()
    })
    .await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut crowd = JoinSet::new();
    for client in 0..16 {
        let (url, is_over) = (Arc::clone(&url), Arc::clone(&is_over));
        crowd.spawn(async move {
            let mut user = 0;
            while !is_over.load(Ordering::Relaxed) {
                // Whoever hears nothing, or 503, is another user next time: all that was taken must be somewhere.
                let name = format!("user-{client}-{user}");
                let headers = [("x-user-id", name.as_str())];
                http::send(Method::POST, &url, &headers, "").await.ok();
                user += 1;
            }
        });
    }
    for version in 0..5 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        publish(&listener, &file, 251 + version)?;
    }
    until("all is sold", async || {
        books(&stack, "reload")
            .await
            .is_ok_and(|books| books.orders == STOCK)
    })
    .await?;
    is_over.store(true, Ordering::Relaxed);
    crowd.join_all().await;
    let sold = books(&stack, "reload").await?;
    ensure!(sold.balance() && sold.held == 0, "{sold:?}");
    let updates = envoy.stat("listener_manager.lds.update_success").await?;
    ensure!(
        updates >= 5,
        "the configuration was replaced {updates} times"
    );
    envoy.check()?;
    Ok(stack.check_children()?)
}
