//! Hostile client input.

use std::time::Duration;

use weir_host_test::{Host, Reply, Thread};

use super::support::{CONFIG, Gate};

#[test]
fn flood_leaves_memory_flat() {
    let gate = Gate::new();
    gate.origin.borrow_mut().reply = Some(Reply::unreachable());
    let flood = |from: u32| {
        for n in from..from + 3_000 {
            let long = "x".repeat(8_000);
            gate.post(0)
                .header("x-weir-visitor", format!("v{n}"))
                .send()
                .disconnect();
            gate.post(0)
                .header("x-weir-visitor", &long)
                .send()
                .disconnect();
            gate.post(0)
                .header("origin", &long)
                .header("cookie", &long)
                .send()
                .disconnect();
            let path = format!("/events.gif?key=wk_shop_web&type=view&a.x={long}");
            gate.host.request(0).path(path).send().disconnect();
            gate.view(0, &format!("s{n}"));
            gate.view(0, &long);
        }
        gate.host.advance(Duration::from_secs(1));
    };
    flood(0);
    let pages = gate.host.memory_pages(0);
    flood(3_000);
    flood(6_000);
    assert_eq!(gate.host.memory_pages(0), pages, "memory is flat");
    assert_eq!(gate.host.open_contexts(Thread::Worker(0)), 0);
    gate.host.assert_sound();
}

#[test]
fn headers_of_any_bytes_are_answered() {
    let gate = Gate::new();
    for name in [
        "x-weir-write-key",
        "x-weir-visitor",
        "x-weir-consent",
        "content-length",
        "content-type",
        "origin",
        "cookie",
    ] {
        for value in [
            &b"\xff\xfe"[..],
            b"",
            b"\0",
            b"%%%",
            b"99999999999999999999999",
        ] {
            let stream = gate.post(0).without(name).header(name, value).send();
            let is_settled = stream.is_continued() || stream.status().is_some();
            assert!(is_settled, "{name}: {value:?}: {:?}", stream.state());
            stream.disconnect();
        }
    }
    for path in [
        &b"/events?\xff=\xff"[..],
        b"/events.gif?key=wk_shop_web&\xff",
        b"/products/\xff",
        b"/events?%",
        b"",
    ] {
        let stream = gate.host.request(0).path(path).send();
        assert!(
            stream.is_continued() || stream.status().is_some(),
            "{path:?}"
        );
        stream.disconnect();
    }
    assert!(gate.host.is_alive(0));
    gate.host.assert_sound();
}

#[test]
fn bad_configuration_is_refused_with_the_path_of_the_field() {
    let start = |config: &str| {
        let host = Host::builder()
            .module_file(weir_stack::wasm::filter("events").unwrap())
            .vm_id("weir-events")
            .plugin_config(config)
            .allow_violations()
            .start();
        host.err().map(|error| error.to_string())
    };
    let refused = start(CONFIG).expect("without its environment");
    assert!(refused.contains("keys[1].secret.env"), "{refused}");
    let refused = start("{}").expect("without keys");
    assert!(refused.contains("keys"), "{refused}");
}
