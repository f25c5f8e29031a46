;; The least that a filter in wasm can do to refuse a request: it fetches the request's headers by one host call,
;; looks at none of them, and sends an answer that was put together beforehand. What Envoy and V8 take for
;; that is the limit of every such filter.
(module
  (import "env" "proxy_get_header_map_pairs" (func $headers (param i32 i32 i32) (result i32)))
  (import "env" "proxy_send_local_response"
    (func $answer (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  ;; Three headers: how many, the lengths of names and values, names and values.
  (data (i32.const 1024)
    "\03\00\00\00\0e\00\00\00\08\00\00\00\0c\00\00\00\18\00\00\00\0d\00\00\00\08\00\00\00"
    "x-weir-verdict\00sold_out\00content-type\00application/problem+json\00cache-control\00no-store\00")
  (data (i32.const 2048) "{\22type\22:\22urn:weir:problem:sold_out\22,\22status\22:409,\22error\22:\22sold_out\22,\22message\22:\22sold out\22}")

  (func (export "proxy_abi_version_0_2_1"))
  (func (export "malloc") (param i32) (result i32) (i32.const 65536))
  (func (export "proxy_on_vm_start") (param i32 i32) (result i32) (i32.const 1))
  (func (export "proxy_on_configure") (param i32 i32) (result i32) (i32.const 1))
  ;; Without these two no filter can keep anything of a request.
  (func (export "proxy_on_context_create") (param i32 i32))
  (func (export "proxy_on_delete") (param i32))

  (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
    (drop (call $headers (i32.const 0) (i32.const 16) (i32.const 20)))
    (drop (call $answer (i32.const 409) (i32.const 0) (i32.const 0) (i32.const 2048) (i32.const 89)
      (i32.const 1024) (i32.const 113) (i32.const -1)))
    (i32.const 1)))
