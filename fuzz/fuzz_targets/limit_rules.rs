//! [`weir_fuzz::limit_rules`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::limit_rules(data));
