//! Whatever clients send, the VM survives with constant memory.

use std::time::Duration;

use weir_host_test::Thread;

use super::support::{Gate, TARGET, link, status};

#[test]
fn hostile_client_input_never_crashes_the_vm() {
    let gate = Gate::new();
    gate.put("s/abc", &link());
    let long = "x".repeat(65_536);
    let hostile: [&[u8]; 9] = [
        b"",
        b"\xff\xfe\x00",
        long.as_bytes(),
        b"/\xff\xff\xff",
        b"/abc?\xff\x00\r\n",
        b"//abc",
        b"/../abc",
        b"/a}b{c",
        b"*",
    ];
    for value in hostile {
        for name in [
            ":path",
            ":authority",
            ":method",
            "user-agent",
            "referer",
            "accept-language",
            "x-forwarded-for",
        ] {
            gate.request(0, "/abc")
                .header(name, value)
                .send()
                .disconnect();
            gate.host.run_until_idle();
        }
        let path = [b"/".as_slice(), value].concat();
        gate.host
            .request(0)
            .header(":authority", "s.example.com")
            .path(&path)
            .send();
        gate.request(0, "/abc")
            .property(&["source", "address"], value)
            .send();
        gate.host.advance(Duration::from_secs(2));
    }
    for name in [":path", ":authority", ":method", ":scheme"] {
        gate.request(0, "/abc").without(name).send();
        gate.host.run_until_idle();
    }
    let mut many = gate.request(0, "/abc");
    for number in 0..1_000 {
        many = many.header("user-agent", number.to_string());
    }
    many.send();
    gate.host.run_until_idle();
    assert!(gate.host.is_alive(0));
    assert!(!gate.host.logged("panicked"));
    assert_eq!(gate.location("/abc"), TARGET);
    gate.host.assert_sound();
}

#[test]
fn links_beyond_the_cache_limit_use_no_more_memory() {
    let gate =
        Gate::with(r#"{ "redis": {}, "cache": { "entries_max": 200, "bytes_max": 1000000 } }"#);
    for number in 0..1_000 {
        gate.put(&format!("s/link{number}"), &link());
    }
    let all = |gate: &Gate| {
        for number in 0..1_000 {
            let stream = gate.click(&format!("/link{number}"));
            assert_eq!(status(&stream), 302);
            stream.disconnect();
        }
        gate.host.advance(Duration::from_secs(2));
    };
    // The allocator settles after seven rounds; 30 more change nothing.
    for _ in 0..10 {
        all(&gate);
    }
    let pages = gate.memory_pages();
    // A leak of 800 links per round would exceed a page of 64 KiB.
    for _ in 0..3 {
        all(&gate);
    }
    assert_eq!(gate.memory_pages(), pages);
    assert!(pages <= 32, "{pages} pages of 64 KiB");
    assert!(gate.metric("evictions_total") >= 13 * 800);
    assert_eq!(gate.host.open_contexts(Thread::Worker(0)), 0);
}

#[test]
fn disconnected_clients_leave_no_state_at_any_stage() {
    let gate = Gate::new();
    gate.put("s/abc", &link());
    for _ in 0..100 {
        let early = gate.request(0, "/abd").send();
        early.disconnect();
        let late = gate.request(0, "/abe").send();
        gate.host.turn();
        late.disconnect();
        gate.host.turn();
    }
    gate.host.advance(Duration::from_secs(2));
    assert_eq!(gate.location("/abc"), TARGET);
    gate.host.assert_sound();
}
