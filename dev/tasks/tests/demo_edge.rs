//! A small `cargo xtask demo edge`.

use serde_json::Value;
use std::io::Write;
use std::process::Command;
use weir_stack::edge;

/// Buyers at workerd and Envoy at the same time. The stock is in workerd's Durable Objects, which Envoy and origin
/// reach through the proxy. The demo checks the stock balance itself; this test checks that it does.
#[test]
fn demo_sells_one_stock_through_workerd_and_envoy() {
    if let Err(error) = edge::workerd() {
        // Printed past the captured output, because nothing was tested.
        let text = format!("\nthe demo of edges was not tested: {error:#}\n");
        std::io::stderr().write_all(text.as_bytes()).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_weir-tasks"));
    demo.args(["demo", "edge", "--once", "--users", "300", "--stock", "60"])
        .args(["--connections", "8", "--report"])
        .arg(&file);
    let output = demo.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{failed}");
    assert!(printed.contains("✓ audit: stock 0 + transfers 0 + claims 0 + orders 60 = total 60"));
    assert!(printed.contains("the stock is in its objects"), "{printed}");
    let report: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(report["good"], true, "{report}");
    assert_eq!(report["orders_paid"], 60, "{report}");
    for count in ["own", "sent_on", "granted"] {
        assert!(report["edge"][count].as_u64().unwrap() > 0, "{report}");
    }
}
