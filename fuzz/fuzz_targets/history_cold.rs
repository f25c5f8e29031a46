//! [`weir_fuzz::history_cold`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::history_cold(data));
