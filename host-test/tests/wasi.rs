//! The part of WASI that Envoy implements.

use weir_host_test::{Host, LogLevel};

const MODULE: &str = r#"(module
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (import "env" "proxy_get_current_time_nanoseconds" (func $now (param i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "text\n")
  (func (export "malloc") (param i32) (result i32) (i32.const 4096))
  (func (export "proxy_abi_version_0_2_1"))
  (func $print (param $fd i32) (param $at i32) (param $size i32)
    (i32.store (i32.const 64) (local.get $at)) (i32.store (i32.const 68) (local.get $size))
    (i32.store (i32.const 72) (i32.const 0)) (i32.store (i32.const 76) (i32.const 5))
    (if (call $write (local.get $fd) (i32.const 64) (i32.const 2) (i32.const 80)) (then (unreachable))))
  ;; Before any context exists, as wasi-libc reads the environment.
  (func (export "_initialize")
    (if (call $sizes (i32.const 100) (i32.const 104)) (then (unreachable)))
    (if (i32.ne (i32.load (i32.const 100)) (i32.const 2)) (then (unreachable)))
    (if (call $environ (i32.const 108) (i32.const 200)) (then (unreachable)))
    (if (i32.ne (i32.load (i32.const 108)) (i32.const 200)) (then (unreachable)))
    (call $print (i32.const 1) (i32.load (i32.const 112)) (i32.const 3))
    (call $print (i32.const 2) (i32.const 200) (i32.load (i32.const 104))))
  (func (export "proxy_on_vm_start") (param i32 i32) (result i32)
    (drop (call $clock (i32.const 0) (i64.const 0) (i32.const 120)))
    (drop (call $now (i32.const 128)))
    (if (i64.ne (i64.load (i32.const 120)) (i64.load (i32.const 128))) (then (unreachable)))
    (drop (call $random (i32.const 136) (i32.const 12)))
    (i64.ne (i64.load (i32.const 136)) (i64.const 0)))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (call $exit (i32.const 3)) (i32.const 0)))"#;

#[test]
fn module_gets_environment_time_and_random_bytes() {
    let builder = Host::builder().module_wat(MODULE);
    let host = builder.env("KEY", "v1").env("K2", "").start().unwrap();
    let lines: Vec<_> = (host.logs().into_iter())
        .map(|line| (line.level, line.message))
        .collect();
    assert_eq!(lines[0], (LogLevel::Info, "K2=text".to_owned()));
    let all = "KEY=v1\0K2=\0text".to_owned();
    assert_eq!(lines[1], (LogLevel::Error, all));
    let stream = host.request(0).send();
    assert_eq!(stream.status(), Some(503));
    assert!(host.logged("proc_exit(3)"));
}
