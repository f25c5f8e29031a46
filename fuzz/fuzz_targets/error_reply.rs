//! [`weir_fuzz::error_reply`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::error_reply(data));
