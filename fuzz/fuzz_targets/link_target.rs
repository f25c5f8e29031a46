//! [`weir_fuzz::link_target`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::link_target(data));
