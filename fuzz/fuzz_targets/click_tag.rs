//! [`weir_fuzz::click_tag`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::click_tag(data));
