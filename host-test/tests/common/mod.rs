//! Filters as WebAssembly text: a prelude with the ABI's imports and some helpers.

// Each test file uses a part of this.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::time::Duration;

use weir_host_test::{Builder, Host};

const PRELUDE: &str = r#"
  (import "env" "proxy_log" (func $proxy_log (param i32 i32 i32) (result i32)))
  (import "env" "proxy_get_current_time_nanoseconds" (func $now (param i32) (result i32)))
  (import "env" "proxy_set_tick_period_milliseconds" (func $set_tick (param i32) (result i32)))
  (import "env" "proxy_get_buffer_bytes" (func $get_buffer (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_buffer_bytes" (func $set_buffer (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_header_map_pairs" (func $get_pairs (param i32 i32 i32) (result i32)))
  (import "env" "proxy_set_header_map_pairs" (func $set_pairs (param i32 i32 i32) (result i32)))
  (import "env" "proxy_get_header_map_value" (func $get_header (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_add_header_map_value" (func $add_header (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_replace_header_map_value" (func $replace_header (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_remove_header_map_value" (func $remove_header (param i32 i32 i32) (result i32)))
  (import "env" "proxy_get_property" (func $get_property (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_property" (func $set_property (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_shared_data" (func $get_shared (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_shared_data" (func $set_shared (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_register_shared_queue" (func $register_queue (param i32 i32 i32) (result i32)))
  (import "env" "proxy_resolve_shared_queue" (func $resolve_queue (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_enqueue_shared_queue" (func $enqueue (param i32 i32 i32) (result i32)))
  (import "env" "proxy_dequeue_shared_queue" (func $dequeue (param i32 i32 i32) (result i32)))
  (import "env" "proxy_define_metric" (func $define_metric (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_increment_metric" (func $increment (param i32 i64) (result i32)))
  (import "env" "proxy_record_metric" (func $record (param i32 i64) (result i32)))
  (import "env" "proxy_get_metric" (func $get_metric (param i32 i32) (result i32)))
  (import "env" "proxy_http_call" (func $http_call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_stream" (func $grpc_stream (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_send" (func $grpc_send (param i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_grpc_cancel" (func $grpc_cancel (param i32) (result i32)))
  (import "env" "proxy_grpc_close" (func $grpc_close (param i32) (result i32)))
  (import "env" "proxy_get_status" (func $get_status (param i32 i32 i32) (result i32)))
  (import "env" "proxy_set_effective_context" (func $set_effective (param i32) (result i32)))
  (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
  (import "env" "proxy_close_stream" (func $close (param i32) (result i32)))
  (import "env" "proxy_send_local_response" (func $send_local (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_call_foreign_function" (func $foreign (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_done" (func $proxy_done (result i32)))

  (memory (export "memory") 32)
  (global $heap (mut i32) (i32.const 65536))
  (global $root (mut i32) (i32.const 0))

  ;; 0..1023: a filter's own data. 1024..: scratch. 2048..: the letters that $note writes.
  (func $malloc (export "proxy_on_memory_allocate") (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (global.get $heap))
    (global.set $heap (i32.add (global.get $heap) (local.get $size)))
    (local.get $at))
  (func (export "proxy_abi_version_0_2_1"))

  ;; Logs what the length at 1028 and the pointer at 1024 say.
  (func $say_result
    (drop (call $proxy_log (i32.const 2) (i32.load (i32.const 1024)) (i32.load (i32.const 1028)))))
  (func $say (param $at i32) (param $size i32)
    (drop (call $proxy_log (i32.const 2) (local.get $at) (local.get $size))))
  ;; Logs a number below 100 as two digits.
  (func $note (param $n i32)
    (i32.store8 (i32.const 2048) (i32.add (i32.const 48) (i32.div_u (local.get $n) (i32.const 10))))
    (i32.store8 (i32.const 2049) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
    (drop (call $proxy_log (i32.const 2) (i32.const 2048) (i32.const 2))))
  ;; Answers the effective stream with a status and no body.
  (func $answer (param $status i32)
    (drop (call $send_local (local.get $status) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
      (i32.const 0) (i32.const 0) (i32.const -1))))
"#;

/// A whole module from the prelude and a filter's own part.
pub fn wat(own: &str) -> String {
    format!("(module {PRELUDE} {own})")
}

/// A builder for such a module.
pub fn host(own: &str) -> Builder {
    Host::builder().module_wat(wat(own))
}

/// The log without the canary's and the main thread's lines.
pub fn worker_logs(host: &Host) -> Vec<String> {
    (host.logs().into_iter())
        .filter(|line| matches!(line.thread, weir_host_test::Thread::Worker(_)))
        .map(|line| line.message)
        .collect()
}

/// Name–value pairs in the ABI's encoding, as the text of a WAT string.
pub fn pairs(pairs: &[(&str, &str)]) -> String {
    let mut bytes = (pairs.len() as u32).to_le_bytes().to_vec();
    for (name, value) in pairs {
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
    }
    for (name, value) in pairs {
        bytes.extend(format!("{name}\0{value}\0").bytes());
    }
    bytes.iter().map(|byte| format!("\\{byte:02x}")).collect()
}

/// Length of [`pairs`] in bytes.
pub fn pairs_len(pairs: &[(&str, &str)]) -> usize {
    let text = |(name, value): &(&str, &str)| name.len() + value.len() + 10;
    4 + pairs.iter().map(text).sum::<usize>()
}

/// A server that reads a command and answers in two pieces.
pub fn resp_server(reply: &'static [u8]) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut command = [0; 256];
        while client.read(&mut command).unwrap_or(0) > 0 {
            let (first, rest) = reply.split_at(reply.len() / 2);
            client.write_all(first).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            client.write_all(rest).unwrap();
        }
    });
    address
}
