//! [`weir_fuzz::bridge_config`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::bridge_config(data));
