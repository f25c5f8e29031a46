//! Third-party clients of the OpenAPI document: a generated client runs a sale, and a fuzzer sends valid and invalid
//! requests without causing a server error.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio_util::sync::{CancellationToken, DropGuard};
use weir_stack::report::Console;
use weir_stack::tools::OpenApiTools;

use crate::support::requests::user_headers;
use crate::support::{TOKEN, World, claim_headers};

/// Long enough for a machine that runs other tests at the same time.
const LIMIT: Duration = Duration::from_secs(180);

/// The tools. Without Python, or if they cannot be installed, the tests report so and are skipped.
fn tools() -> Option<OpenApiTools> {
    let tools = OpenApiTools::find_or_get(&mut Console);
    tools
        .map_err(|error| println!("left out: 1 test of the OpenAPI document ({error:#})"))
        .ok()
}

/// An origin's two ports, until the guard is dropped.
struct Ports {
    admin: String,
    public: String,
    _open: DropGuard,
}

async fn serve(world: &World) -> Ports {
    let stop = CancellationToken::new();
    let mut urls = Vec::new();
    for router in world.routers() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        urls.push(format!("http://{}", listener.local_addr().unwrap()));
        tokio::spawn(weir_origin::http::server::serve(
            listener,
            router,
            stop.clone(),
        ));
    }
    let [public, admin] = urls.try_into().unwrap();
    Ports {
        admin,
        public,
        _open: stop.drop_guard(),
    }
}

/// Runs a program, asserts success and returns its output.
async fn run(command: &mut Command, input: &Value) -> String {
    command.stdin(Stdio::piped()).kill_on_drop(true);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The program may have exited without reading its input.
    let _ = stdin.write_all(input.to_string().as_bytes()).await;
    drop(stdin);
    let ended = tokio::time::timeout(LIMIT, child.wait_with_output()).await;
    let output = ended.expect("it takes too long").unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{errors}");
    printed
}

fn headers(all: &[(&str, Vec<u8>)]) -> Value {
    let pairs = all.iter().map(|(name, value)| {
        let value = String::from_utf8(value.clone()).unwrap();
        ((*name).to_owned(), Value::from(value))
    });
    Value::Object(pairs.collect())
}

#[tokio::test]
async fn generated_client_creates_warms_buys_pays_and_audits() {
    let Some(tools) = tools() else { return };
    let world = World::new().await;
    let ports = serve(&world).await;
    let document = world.admin_as("GET", "/openapi.json", "", None).await.body;
    let path = world.dir.path().join("openapi.json");
    std::fs::write(&path, document.to_string()).unwrap();
    let client = world.dir.path().join("weir");
    let mut generate = Command::new(&tools.client_generator);
    generate
        .args(["generate", "--meta", "none", "--path"])
        .arg(&path);
    let output = run(generate.arg("--output-path").arg(&client), &Value::Null).await;
    assert!(!output.contains("will not be generated"), "{output}");

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("origin/clients/shop.py");
    let step = async |step: &str, input: Value| {
        let mut python = Command::new(&tools.python);
        python
            .arg(&script)
            .arg(step)
            .args([&ports.admin, &ports.public, TOKEN]);
        run(python.env("PYTHONPATH", world.dir.path()), &input).await
    };
    step("make", json!({})).await;
    let ticket = world.claim("py", "alice").await;
    // Headers added by the gateway: the claim and the signed-in user.
    let mut provided = Vec::from(claim_headers(&ticket));
    provided.extend(user_headers("alice"));
    let bought = step("buy", json!({ "headers": headers(&provided) })).await;
    let bought: Value = serde_json::from_str(&bought).unwrap();
    let payment = bought["payment"].as_str().unwrap();
    let paid = world.callback("e1", payment, "paid").await;
    assert_eq!(paid.status, 200, "{paid:?}");
    let order = &bought["order"];
    step(
        "check",
        json!({ "headers": headers(&provided), "order": order }),
    )
    .await;
}

/// Options of the fuzzer: a few requests per operation. A fixed seed makes failures reproducible. One worker, because
/// Python's parser is not thread-safe.
const TESTER: &str = "run --seed 1 --workers 1 --phases fuzzing --max-examples 6 --no-shrink --checks not_a_server_error \
    --request-timeout 20 --suppress-health-check all --no-color --warnings off";

#[tokio::test]
async fn fuzzed_requests_cause_no_server_errors() {
    let Some(tools) = tools() else { return };
    let world = World::with_everything().await;
    let world = world.and_product_keys(crate::products::keys());
    world.sale("s", 10).await;
    let ports = serve(&world).await;
    for (url, tag) in [(&ports.admin, "admin"), (&ports.public, "public")] {
        let mut tester = Command::new(&tools.schemathesis);
        tester.current_dir(world.dir.path()).args(TESTER.split(' '));
        tester.arg(format!("{}/openapi.json", ports.admin));
        tester.args(["--url", url, "--include-tag", tag]);
        let headers = match tag {
            "admin" => vec![("authorization", format!("Bearer {TOKEN}").into())],
            _ => user_headers("alice"),
        };
        for (name, value) in headers {
            let header = format!("{name}: {}", String::from_utf8_lossy(&value));
            tester.args(["-H", &header]);
        }
        run(&mut tester, &Value::Null).await;
    }
}
