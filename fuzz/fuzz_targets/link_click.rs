//! [`weir_fuzz::link_click`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::link_click(data));
