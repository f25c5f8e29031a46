;; An HTTP filter, as small as one can be: it asks the cluster `redis` for the key `open`, and answers 403 unless there is one.
;; A real filter is a module that your language's SDK builds.
(module
  (import "env" "proxy_http_call"
    (func $call (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_get_buffer_bytes" (func $body (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "proxy_set_effective_context" (func $enter (param i32) (result i32)))
  (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
  (import "env" "proxy_send_local_response"
    (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "redis")
  (data (i32.const 16) "*2\0d\0a$3\0d\0aGET\0d\0a$4\0d\0aopen\0d\0a")
  ;; The call's headers, in the ABI's form: their number, all lengths, then all texts with a zero after each.
  (data (i32.const 64) "\03\00\00\00\07\00\00\00\04\00\00\00\05\00\00\00\01\00\00\00\0a\00\00\00\05\00\00\00:method\00POST\00:path\00/\00:authority\00redis\00")
  (global $waiting (mut i32) (i32.const 0))
  (func (export "malloc") (param i32) (result i32) (i32.const 4096))
  (func (export "proxy_abi_version_0_2_1"))
  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (global.set $waiting (local.get 0))
    (drop (call $call (i32.const 0) (i32.const 5) (i32.const 64) (i32.const 66) (i32.const 16) (i32.const 23)
      (i32.const 0) (i32.const 0) (i32.const 200) (i32.const 32)))
    (i32.const 1))
  (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
    (if (call $enter (global.get $waiting)) (then (return)))
    ;; Two bytes of the reply tell: `$-` is no value, and an error begins with `-`.
    (if (i32.eqz (call $body (i32.const 4) (i32.const 0) (i32.const 2) (i32.const 40) (i32.const 44)))
      (then (if (i32.and
          (i32.eq (i32.load8_u (i32.load (i32.const 40))) (i32.const 36))
          (i32.ne (i32.load8_u offset=1 (i32.load (i32.const 40))) (i32.const 45)))
        (then (drop (call $continue (i32.const 0))) (return)))))
    (drop (call $reply (i32.const 403) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
      (i32.const 0) (i32.const 0) (i32.const -1)))))
