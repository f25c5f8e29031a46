//! [`weir_fuzz::order_token`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::order_token(data));
